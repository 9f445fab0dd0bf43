//! The built-in services, a room (module) each. [`registry`] lists their types for a node; no room but those that
//! `crates/cli/tests/layering.rs` names imports another.

#![forbid(unsafe_code)]

pub mod brokering;
pub mod catalogue;
mod clock;
pub mod desktop;
mod echo;
pub mod exec;
pub mod forward;
mod registry;

pub use registry::registry;
