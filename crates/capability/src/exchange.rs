//! The protocol by which a requester asks an entity for a capability through a service that neither
//! trusts: Capone (secure channels and capabilities), figure "Capability Request".
//!
//! A requester signs a [`Question`] with both ends, the route, a challenge of the entity, and a key
//! generated for this question. The entity accepts each question once ([`Registration`]), and seals
//! its signed [`Reply`] to that key, bound to the question. The service can therefore only withhold
//! messages: it cannot read or change the capability, redirect it, or answer itself.

mod pending;
mod question;
mod registration;

pub use pending::{PendingQuestion, ReplyError};
pub use question::{Question, QuestionError, Reply, Route, SessionRequest};
pub use registration::Registration;
