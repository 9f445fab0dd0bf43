//! The configuration of a server.

use std::sync::Arc;

use levada_channel::ServerConfig;
use levada_core::SecretKey;

#[cfg(test)]
use crate::messages::Share;
use crate::path::Path;
use crate::tickets::PathSessions;

/// Decides whether a path may be used, before any public-key operation. The text of a refusal goes
/// to this side's log.
pub type PathPolicy = dyn Fn(&Path) -> Result<(), String> + Send + Sync;

/// The configuration of a server for sessions with middleboxes.
#[derive(Clone)]
pub struct ServerPaths {
    /// Its TLS configuration.
    pub config: Arc<ServerConfig>,
    /// Its identity key.
    pub key: Arc<SecretKey>,
    /// Sessions that may be resumed.
    pub sessions: Arc<PathSessions>,
    /// How many tickets a session issues, at most 8.
    pub tickets: u8,
    /// The policy that accepts or refuses paths.
    pub policy: Arc<PathPolicy>,
    /// The change of a malicious server to the share of each middlebox, before it seals it.
    #[cfg(test)]
    pub(crate) alter_share: Option<Arc<AlterShare>>,
}

/// Changes the share of a middlebox, by its number.
#[cfg(test)]
pub(crate) type AlterShare = dyn Fn(u8, &mut Share) + Send + Sync;
