//! How a requester asks an entity for a capability through a service that neither trusts: Capone
//! (secure channels and capabilities), figure "Capability Request".
//!
//! A requester signs a [`Question`] that names both ends, the way, a challenge of the entity, and a
//! key made for it alone. The entity hears each question once ([`Hearing`]) and seals its [`Reply`]
//! to that key, signed, and bound to the question. So whoever carries the two can hold them back, and
//! nothing else: he cannot read the capability, change it, give it to another, or answer himself.

mod asking;
mod hearing;
mod question;

pub use asking::{Asking, ReplyError};
pub use hearing::Hearing;
pub use question::{Question, QuestionError, Reply, Route, Wish};
