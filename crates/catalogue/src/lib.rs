//! Descriptors of what exists, and the packages behind them: what they are, where they are kept, and how they are
//! served.
//!
//! [`model`] says what an object, a version and a package are, with every bound. [`rethink`] holds the rules of the
//! catalogue that this one is compatible with. [`store`] keeps versions and packages on disk. [`index`] has what is
//! asked for most in memory, and [`http`] serves it.

#![forbid(unsafe_code)]

pub mod http;
pub mod index;
pub mod model;
pub mod rethink;
pub mod store;
