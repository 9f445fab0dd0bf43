//! The catalogue over HTTP: the server on loopback, with clients on plain sockets, curl,
//! schemathesis, a browser and nginx.

#[cfg(feature = "balancer-tests")]
mod balancer;
#[cfg(feature = "browser-tests")]
mod browser;
mod caching;
mod connections;
mod curl;
mod damage;
mod hostile;
mod page;
mod reading;
mod rethink;
#[cfg(feature = "description-tests")]
mod schemathesis;
pub mod server;
mod watching;
