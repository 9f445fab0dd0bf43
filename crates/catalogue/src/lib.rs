//! Descriptors of what exists, and the packages behind them: what they are, where they are kept, and how
//! they are served.

pub mod model;
pub mod store;
