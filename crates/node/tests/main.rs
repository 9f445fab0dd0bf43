//! The tests of the node's databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A failed step fails the test.

mod database_formats;
mod power_loss;
mod store;
mod support;
