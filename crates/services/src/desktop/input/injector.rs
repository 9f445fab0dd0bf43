//! What puts events into a screen.

use thiserror::Error;

use super::event::Event;

/// Why an event was not put in.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub(crate) enum InjectError {
    /// This one cannot be; others can.
    #[error("{0}")]
    Refused(String),
    /// The screen is gone.
    #[error("the screen is gone: {0}")]
    Lost(String),
}

/// Puts events into a screen. One that is dropped lets go of everything it holds.
///
/// Keys are told by what they stand for, not by where they are, so that both keyboards may be different
/// ones; an implementation for the kernel's input devices (uinput) would have a table from keysyms to
/// key codes.
pub(crate) trait Injector {
    /// Puts one event in. An `Err` other than [`InjectError::Lost`] concerns this event alone.
    fn inject(&mut self, event: Event) -> Result<(), InjectError>;

    /// Waits until the screen has taken what was put in.
    fn finish(&mut self) -> Result<(), InjectError>;
}
