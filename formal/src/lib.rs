//! A symbolic model of the handshake with middleboxes, searched in full by its tests.
//!
//! Cryptography is perfect here: a value is a *term*, and the attacker learns a term only if it was
//! sent, or can be computed from what the attacker has. Every honest role reacts to every
//! combination of messages that the attacker can provide, any number of times and in any order,
//! until nothing new can be learned (`world`). So no interleaving is left out; what is left out
//! stands in `README.md`.
//!
//! The modules: `term` (values), `knowledge` (what the attacker can compute), `setting` (who is
//! corrupt, which paths exist, which protections are removed), `schedule` (keys), `world` (the
//! fixed point), `client`, `middlebox` and `server` (the honest roles), `records` (requests,
//! answers, endorsements), `properties` (what must hold).

#![forbid(unsafe_code)]

mod client;
mod knowledge;
mod middlebox;
mod properties;
mod records;
mod schedule;
mod server;
mod setting;
mod term;
mod world;

#[cfg(test)]
mod tests;

pub use properties::{Outcome, Violation, check};
pub use setting::{Middlebox, Protection, Right, Setting};
