//! What goes wrong with announcing and looking.

use thiserror::Error;

/// Why this machine can neither announce nor look.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DiscoveryError {
    /// There is no multicast here.
    #[error("multicast DNS does not work here: {0}")]
    NoMulticast(String),
    /// The name cannot be announced.
    #[error("the name cannot be announced: {0}")]
    Name(String),
    /// The thread that speaks multicast DNS did not start, or has ended.
    #[error("multicast DNS failed: {0}")]
    Failed(String),
}

impl From<mdns_sd::Error> for DiscoveryError {
    fn from(error: mdns_sd::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
