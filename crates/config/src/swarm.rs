//! The `[swarm]` of the configuration.

use super::ConfigError;
use super::reader::Section;

/// How the node serves its shares, and packages of catalogues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// The most peers at a time, of all shares together. Neither they nor their connections count
    /// in `limits`.
    pub peers: usize,
    /// Whether the node provides packages to others that this home has fetched from catalogues.
    pub provide: bool,
}

impl Default for Swarm {
    fn default() -> Self {
        Self { peers: 500, provide: false }
    }
}

impl Swarm {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let mut swarm = Self::default();
        section.only(&["peers", "provide"])?;
        for value in section.values() {
            match value.name() {
                "provide" => swarm.provide = value.flag()?,
                _ => swarm.peers = value.number(1..=1_000_000)?,
            }
        }
        Ok(swarm)
    }
}
