//! The `[swarm]` of the configuration.

use super::ConfigError;
use super::reader::Section;

/// How the node serves its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// The most peers at a time, of all shares together. Neither they nor their connections count in `limits`.
    pub peers: usize,
}

impl Default for Swarm {
    fn default() -> Self {
        Self { peers: 500 }
    }
}

impl Swarm {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let mut swarm = Self::default();
        section.only(&["peers"])?;
        for value in section.values() {
            swarm.peers = value.number(1..=1_000_000)?;
        }
        Ok(swarm)
    }
}
