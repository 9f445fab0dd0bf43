//! A running node: accepts connections, checks rights, and dispatches operations to services.

mod access;
mod attempts;
mod calls;
mod carrier;
pub mod catalogue;
pub mod config;
mod connections;
pub mod control;
mod dispatch;
mod error;
mod forwards;
mod granted;
mod half_open;
mod http;
mod limiter;
mod listen;
mod live;
mod metrics;
mod middlebox;
mod node;
mod notices;
mod overrides;
mod policy;
pub mod restore;
mod rotate;
pub mod running;
mod runs;
mod server;
pub mod services;
mod shares;
pub mod store;

pub use error::UpError;
pub use listen::handed_out;
pub use overrides::Overrides;
pub use rotate::rotate;
