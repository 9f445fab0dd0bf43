//! The tests of the catalogue that need more than one module: the store on failing disks, reTHINK's
//! recorded answers, and the HTTP server.
//!
//! All of them are one binary. A test that needs a process of its own starts this binary again with
//! only that test: [`child::this_test`].

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests, as in tests.

mod child;
#[cfg(feature = "engine-tests")]
mod cluster;
mod http;
#[cfg(any(feature = "engine-tests", feature = "root-tests"))]
mod isolated;
mod rethink;
mod store;
