//! The tests of the `levada` binary: real processes, on loopback unless the module says otherwise.
//!
//! All modules are one program, so tests of different modules run at the same time.
//! `support/schedule.rs` keeps apart those that would disturb each other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A failed step fails the test.

mod support;

mod access;
mod attach;
mod backup;
mod capability;
mod catalogue;
mod completions;
mod container;
mod contexts;
mod crash_recovery;
mod fast;
mod forward;
mod forward_concurrency;
mod forward_configured;
mod framing;
mod get;
mod groups;
mod home_variable;
mod hostile;
#[cfg(feature = "root-tests")]
mod hosts;
mod http;
mod invoke;
mod layering;
mod metrics;
mod middlebox;
mod misbehaving_peer;
mod mitm;
mod names;
mod offline;
mod operations;
mod postgres;
mod readme;
mod resumption;
mod rights;
mod rotate;
mod rules;
#[cfg(feature = "screen-tests")]
mod screens;
mod service_units;
mod services;
mod shares;
mod swarm;
mod terminals;
mod tickets;
mod transfer;
mod transports;
mod verbs;
#[cfg(feature = "keylog")]
mod wireshark;
mod words;
