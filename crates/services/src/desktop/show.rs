//! The program's side of `display`, for `levada show`: runs a program here, with its windows on
//! another node's screen.
//!
//! A background process (`supervisor.rs`) owns the program, its virtual screen and the connection,
//! so that the program outlives the command that started it. Commands find that process by its
//! entry in the [`Registry`].

mod error;
mod protocol;
mod registry;
mod right;
mod supervisor;
mod tunnel;
mod virtual_screen;

pub use error::ShowError;
pub use protocol::{ControlConnection, ProgramSpec, Request, State, Status};
pub use registry::{Entry, Registry};
pub use right::{DISPLAY, Right};
pub use supervisor::supervise;
