//! Checks a configuration as a start of the node does, and changes nothing. A start begins with it,
//! and `levada doctor` and `levada up --check` are it: so they cannot differ.

mod configuration;
mod start;

pub use configuration::{Names, Problems, check};
pub use start::{State, catalogue, database, lock, rotation, socket, start};
