//! What a program does at other nodes with the identity of a home: the home's folders and key, the names and keys that
//! it has pinned, connections, and the operations on them. Nothing here serves anything.

#![forbid(unsafe_code)]

pub mod address;
mod client;
pub mod home;
pub mod known;

pub use client::{
    Client, ClientError, DEFAULT_PORT, Joined, Listed, Listing, RequestSpec, Running, Standing,
    Stranger, Target, Verdict, close_code, operation_name,
};
