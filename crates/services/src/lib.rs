//! The built-in services, one module each. [`registry`] lists their types for a node.
//! `crates/cli/tests/layering.rs` lists which module may import which.

#![forbid(unsafe_code)]

pub mod brokering;
pub mod catalogue;
mod clock;
#[cfg(feature = "desktop")]
pub mod desktop;
mod echo;
pub mod exec;
pub mod forward;
pub mod http;
pub mod middlebox;
mod registry;
pub mod swarm;

pub use registry::registry;
