//! How the catalogue is served: limits and timeouts.

use std::time::Duration;

use super::hosts::Hosts;
use super::tls::Tls;

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a request with its body, from its first byte; for the first request, from the start of
    /// the connection.
    pub head: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Within this time a client must read [`MIN_PROGRESS`] bytes, or all that is pending.
    pub stall: Duration,
    /// For an answer that reads the store, including the time in its queue.
    pub store: Duration,
    /// Between two keep-alive events of a watch.
    pub keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(30),
            store: Duration::from_secs(30),
            keepalive: Duration::from_secs(15),
        }
    }
}

/// The number of bytes that a client must read within [`Timeouts::stall`]; the connection of a
/// slower one is closed.
pub const MIN_PROGRESS: u64 = 32 * 1024;

/// How the catalogue is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which values of `Host` are accepted.
    pub hosts: Hosts,
    /// The maximum number of connections, reduced to a third of the process's limit on open files.
    /// When it is reached, idle connections are evicted.
    pub connections: usize,
    /// The maximum number of connections of one source, an IPv4 address or the /64 of an IPv6
    /// address. `None` means half of all connections.
    pub per_source: Option<usize>,
    /// Whether the catalogue is served, or only [`Extra`](super::Extra).
    pub catalogue: bool,
    /// The certificate for HTTPS; `None` serves plain HTTP.
    pub tls: Option<Tls>,
    /// The maximum number of concurrent watches, reduced to half of the connections, but at least
    /// one; further ones get status 503.
    pub watches: usize,
    /// The size of the cache for packages and bodies made from them, in bytes.
    pub cache: u64,
    /// The timeouts of a connection.
    pub timeouts: Timeouts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: Hosts::default(),
            connections: 8192,
            per_source: None,
            catalogue: true,
            tls: None,
            watches: 1024,
            cache: 256 * 1024 * 1024,
            timeouts: Timeouts::default(),
        }
    }
}
