//! Errors of announcing and browsing.

use thiserror::Error;

/// Why this machine can neither announce nor browse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DiscoveryError {
    /// Multicast is not available.
    #[error("multicast DNS does not work here: {0}")]
    NoMulticast(String),
    /// The name is not valid.
    #[error("the name cannot be announced: {0}")]
    Name(String),
    /// The mDNS thread did not start, or has ended.
    #[error("multicast DNS failed: {0}")]
    Failed(String),
}

impl From<mdns_sd::Error> for DiscoveryError {
    fn from(error: mdns_sd::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
