//! A shared HTTP cache (RFC 9111) that stores only what the server has endorsed.
//!
//! Own code, since http-cache-semantics 3.0 compares the names of directives with case, joins repeated fields of a stored answer, and adds
//! times of messages without a check for overflow, which panics.

mod directives;
mod inspector;
mod receiving;
mod request;
mod rights;
mod rules;
mod store;

pub use inspector::CacheInspector;
pub use store::Cache;
