//! Screens of this machine: `display` shows windows of programs that run elsewhere, `input` injects
//! keyboard and pointer events. The only module that uses the X11 protocol.

pub(crate) mod display;
pub mod input;
pub mod screen;
pub mod show;
pub mod xpra;
