//! The client side of Levada: connections to nodes and the operations on them, and requests to the
//! running node of a home. No server code is in this crate.

#![forbid(unsafe_code)]

mod client;
pub mod control;

pub use client::{
    Client, ClientError, DEFAULT_PORT, Joined, Listed, Listing, Over, RequestSpec, Running,
    Standing, Target, UnpinnedNode, Verdict,
};
