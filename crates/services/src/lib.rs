//! The [`Service`] trait, the registry that finds a service by its type, and the built-in services,
//! a file each.

#![forbid(unsafe_code)]

mod clock;
mod definition;
mod echo;
mod exec;
pub mod forward;
mod registry;
mod service;
pub mod stdio;
pub mod streams;
#[cfg(test)]
mod testing;

pub use definition::{Definition, DefinitionError};
pub use registry::{TYPES, build};
pub use service::{Description, Invocation, Refused, Running, Service, ServiceError};
pub use streams::Streams;
