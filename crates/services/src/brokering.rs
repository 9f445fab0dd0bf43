//! Services between third parties: `capability` carries requests for capabilities to entities,
//! `invoke` starts sessions for clients.

pub(crate) mod capability;
pub mod invoke;
pub mod mediation;
mod pattern;

pub use pattern::{PatternError, ServicePattern};
