//! Sessions with middleboxes over transports.

#![allow(clippy::unwrap_used)] // Helpers of tests, as in tests.

mod answers;
mod memory;
mod sessions;
mod silence;
mod support;
