//! A running node: listens, checks rights, dispatches; and its client.

pub mod address;
pub mod adopt;
mod attempts;
pub mod catalogue;
pub mod client;
pub mod config;
mod connections;
pub mod control;
mod dispatch;
pub mod forward;
mod half_open;
pub mod home;
mod http;
pub mod known;
mod limiter;
mod live;
mod metrics;
mod notices;
pub mod offer;
pub mod running;
mod runs;
mod server;
pub mod store;
