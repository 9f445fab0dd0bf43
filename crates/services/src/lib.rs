//! The [`Service`] trait, the registry that finds a service by its type, and the built-in services,
//! a file each.

#![forbid(unsafe_code)]

mod clock;
mod definition;
mod display;
mod echo;
mod exec;
pub mod input;
pub mod program;
mod registry;
pub mod screen;
mod service;
pub mod stdio;
#[cfg(test)]
mod testing;
pub mod xpra;

pub use definition::{Definition, DefinitionError};
pub use registry::{TYPES, build};
pub use service::{Description, Invocation, Refused, Running, Service, ServiceError};
