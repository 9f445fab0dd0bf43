//! A catalogue of descriptors and packages: data model, storage and HTTP server.
//!
//! [`model`] defines objects, versions and packages, with every limit. [`rethink`] implements
//! compatibility with reTHINK's catalogue. [`store`] keeps versions and packages on disk. [`index`]
//! holds the frequently requested answers in memory, and [`http`] serves them.

#![forbid(unsafe_code)]

pub mod host;
// Only the reTHINK compatibility layer uses all of it.
#[cfg_attr(not(feature = "rethink"), allow(dead_code))]
pub mod http;
pub mod index;
pub mod model;
#[cfg(feature = "rethink")]
pub mod rethink;
pub mod store;
pub mod wire;
