//! The client side of Levada: the folders and key of a home, its pinned names and keys, connections to nodes, and the
//! operations on them. No server code is in this crate.

#![forbid(unsafe_code)]

pub mod address;
mod client;
pub mod home;
pub mod known;

pub use client::{
    Client, ClientError, DEFAULT_PORT, Joined, Listed, Listing, Over, RequestSpec, Running,
    Standing, Target, UnpinnedNode, Verdict, close_code, operation_name,
};
