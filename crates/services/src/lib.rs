//! The [`Service`] trait, the registry that finds a service by its type, and the built-in services,
//! a file each.

#![forbid(unsafe_code)]

mod capability;
pub mod catalogue;
mod client;
mod clock;
mod definition;
mod display;
mod echo;
pub mod exec;
pub mod forward;
pub mod input;
pub mod invoke;
pub mod mediation;
mod place;
pub mod program;
mod registry;
pub mod screen;
mod service;
pub mod stdio;
pub mod streams;
#[cfg(test)]
mod testing;
pub mod xpra;

pub use client::{CallError, Calling, Client, Context};
pub use definition::{Definition, DefinitionError};
pub use place::{PlaceError, PlacePattern};
pub use registry::{TYPES, build, missing};
pub use service::{Description, Invocation, Refused, Running, Service, ServiceError};
pub use streams::Streams;
