//! The [`Service`] trait, the messages and streams of a session, and the table of service types.
//! The services themselves are in other crates.

#![forbid(unsafe_code)]

mod client;
mod definition;
mod entities;
mod refused;
mod registry;
mod service;
pub mod stdio;
pub mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use client::{CallError, CallErrorKind, CallFuture, Client, Context};
pub use definition::{Definition, DefinitionError, NoOptions};
pub use entities::{Entities, EntityFuture};
pub use refused::Refused;
pub use registry::{Registry, ServiceType};
pub use service::{
    AllowedMiddlebox, Audience, Description, Invocation, LINGER, Over, Prepared, PreparedPathRun,
    PreparedRun, RunFuture, Service, ServiceError, check_none, close, exit, fail,
};
pub use streams::Streams;
