//! One SQLite file: how it is opened, migrated and written, and what can be wrong with it. What stands in it
//! is the business of whoever opens it.

mod database;
mod error;
pub mod file;
mod room;

pub use database::{Database, Kind};
pub use error::{DatabaseError, Fault};
pub use room::Disk;

#[cfg(test)]
mod tests;
