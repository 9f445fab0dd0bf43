//! The catalogue: what exists, and the code behind it.
//!
//! [`model`] says what an object, a version and a package are, with every bound. [`original`] holds the rules of the
//! catalogue that this one is compatible with: what it made of a folder of objects, and what it answered.

#![forbid(unsafe_code)]

pub mod model;
pub mod original;
