//! The catalogue over HTTP: the real server on loopback, asked by raw sockets and by curl.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests, as in tests.

mod connections;
mod curl;
mod damage;
mod hostile;
mod page;
mod reading;
mod rethink;
mod support;
mod watching;
