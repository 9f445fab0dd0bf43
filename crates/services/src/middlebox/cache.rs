//! A shared HTTP cache (RFC 9111) that stores only what the server has endorsed.
//!
//! The rules are code of this project: `docs/decisions/0040-rules-of-a-cache-of-our-own.md`.

mod directives;
mod inspector;
mod pending;
mod receiving;
mod request;
mod rules;
mod store;
mod target;

pub use inspector::CacheInspector;
pub use store::Cache;
