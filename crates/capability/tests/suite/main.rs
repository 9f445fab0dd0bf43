//! Capabilities from mint to verification, against an encoder written from `docs/protocol.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests, as in tests.

mod common;
mod exchange;
mod fixture;
mod narrowing;
mod text;
mod verification;
