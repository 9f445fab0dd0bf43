//! `input`: keyboard and pointer events of one machine, injected into the screen of another.
//!
//! - [`event`] defines [`Event`] and its encoding; [`Outbox`] is the client's queue of events.
//! - [`Capture`] grabs the keyboard and pointer of an X server; [`Script`] parses events from lines
//!   of text.
//! - `service` is the service of type `input`, which passes events to an `Injector`; `x11`
//!   implements one.

mod capture;
pub mod event;
mod injector;
mod keymap;
pub mod keysym;
mod outbox;
mod pressed;
mod rate_limiter;
mod script;
pub(crate) mod service;
mod x11;

pub use capture::{Capture, CaptureError, Captured, Combination};
pub use event::{Event, EventError};
pub use outbox::{Outbox, OutboxFull};
pub use script::{Script, ScriptError, Step};
