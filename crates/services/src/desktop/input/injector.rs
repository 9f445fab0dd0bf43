//! The trait of types that inject events into a screen.

use thiserror::Error;

use super::event::Event;

/// Why an event was not injected.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub(crate) enum InjectError {
    /// This event cannot be injected; others can.
    #[error("{0}")]
    Refused(String),
    /// The connection to the screen is lost.
    #[error("the screen is gone: {0}")]
    Lost(String),
}

/// Injects events into a screen. Dropping the injector releases all pressed keys and buttons.
///
/// Keys are identified by their keysym, not by their position, because the two keyboards may have
/// different layouts. An implementation for the kernel's input devices (uinput) would need a table
/// from keysyms to key codes.
pub(crate) trait Injector {
    /// Injects one event. After [`InjectError::Refused`] further events can be injected.
    fn inject(&mut self, event: Event) -> Result<(), InjectError>;

    /// Waits until the screen has processed all injected events.
    fn finish(&mut self) -> Result<(), InjectError>;
}
