//! A running node: listens, checks rights, dispatches.

pub mod adopt;
mod attempts;
mod calls;
pub mod catalogue;
pub mod config;
mod connections;
pub mod control;
mod dispatch;
pub mod forward;
mod half_open;
mod http;
mod limiter;
mod live;
mod metrics;
mod notices;
pub mod offer;
pub mod running;
mod runs;
mod server;
pub mod store;
