//! Keyboard and pointer of one machine, used on another: what travels, where it comes from, and what
//! puts it in.
//!
//! - [`Event`] and [`event`] are the encoding; [`Outbox`] is what waits to be sent.
//! - [`Capture`] takes keyboard and pointer of an X server; [`Script`] reads events from lines of text.
//! - `service` is the service of type `input`, which gives events to an `Injector`; `x11` is one.

mod budget;
mod capture;
pub mod event;
mod held;
mod injector;
mod keymap;
pub mod keysym;
mod outbox;
mod script;
pub(crate) mod service;
mod x11;

pub use capture::{Capture, CaptureError, Captured, Combination};
pub use event::{Event, EventError};
pub use outbox::{Behind, Outbox};
pub use script::{Script, ScriptError, Step};
