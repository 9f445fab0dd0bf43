//! SQLite files: opening, migration, transactions and typed errors. The schema is the caller's.

mod database;
mod disk;
mod error;
mod examine;
pub mod file;
mod vacuum;

pub use database::{Database, Kind};
pub use disk::DiskState;
pub use error::{DatabaseError, Fault};

#[cfg(test)]
mod tests;
