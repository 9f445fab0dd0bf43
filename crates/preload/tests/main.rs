//! Programs with and without the library: the results of their calls must not differ.
//!
//! `differential` runs scripts of calls twice and compares; `python` does the same with CPython's
//! own tests; `programs` runs servers and clients as they are installed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A failed step fails the test.

mod differential;
mod direct;
mod hostile;
mod io_uring;
mod library;
mod many;
mod probes;
mod programs;
mod python;
mod sharing;
