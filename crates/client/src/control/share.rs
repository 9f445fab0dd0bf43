//! Shares in requests to the node.

use serde::{Deserialize, Serialize};

use super::Paths;

/// A request to share files.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareRequest {
    /// Absolute paths of files and folders.
    pub paths: Paths,
    /// How they are served.
    pub settings: ShareSettings,
    /// Seconds until the ticket expires.
    pub expires_secs: u64,
    /// How many identities may exchange the ticket.
    pub peers: u32,
    /// The only identity that may exchange it, or its name here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Addresses for the ticket, which precede the node's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// How the coordinator of a share serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSettings {
    /// The length of a chunk in bytes: a power of two from 1 KiB to 1 MiB.
    pub chunk: u32,
    /// The maximum rate of the coordinator, in bytes per second; `None` for no limit.
    pub upload_limit: Option<u64>,
    /// Mediated mode; `None` for direct mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mediated: Option<MediatedSettings>,
    /// The stream that uses UDP; `None` if both use TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<ByUdp>,
    /// The attributes of files that are shared; `None` in shares of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<ListingSettings>,
    /// The share ends with the process that made it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreground: bool,
}

/// The attributes of files that a share has, in addition to their names and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListingSettings {
    /// When files, folders and links were changed last.
    pub times: bool,
    /// The permissions of files and folders; otherwise, only whether a file can be executed.
    pub modes: bool,
}

/// The stream of a share that uses UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByUdp {
    /// The stream for control messages.
    Control,
    /// The stream for chunks.
    Data,
}

/// How the coordinator of a share in mediated mode works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediatedSettings {
    /// Each chunk is given to so many providers, from 1 to 16.
    pub replicas: usize,
    /// Bytes of chunks in memory; at least one chunk is.
    pub cache: u64,
    /// Chunks are given out when so many peers are there.
    pub wait: usize,
    /// Whether each provider has a range of the content; otherwise, every n-th chunk.
    pub in_blocks: bool,
}
