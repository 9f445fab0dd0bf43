//! The [`Service`] trait, the registry that finds a service by its type, and the built-in services,
//! a file each.

#![forbid(unsafe_code)]

mod capability;
mod client;
mod clock;
mod definition;
mod echo;
mod exec;
pub mod forward;
pub mod invoke;
pub mod mediation;
mod place;
mod registry;
mod service;
pub mod stdio;
pub mod streams;
#[cfg(test)]
mod testing;

pub use client::{CallError, Calling, Client, Context};
pub use definition::{Definition, DefinitionError};
pub use place::{PlaceError, PlacePattern};
pub use registry::{TYPES, build};
pub use service::{Description, Invocation, Refused, Running, Service, ServiceError};
pub use streams::Streams;
