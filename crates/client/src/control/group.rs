//! Requests about groups.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A request about the groups of the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "group", rename_all = "kebab-case")]
pub enum GroupRequest {
    /// List all groups with their members.
    List,
    /// Add members to a group that the node keeps, which is created if it is missing.
    Add {
        /// The name of the group.
        name: String,
        /// The members: identities, prefixes of them, pinned names, and `group:NAME`.
        members: Vec<String>,
    },
    /// Remove members from a group that the node keeps, or the group.
    Remove {
        /// The name of the group.
        name: String,
        /// The members, as for [`Self::Add`]; none for the group with all of them.
        members: Vec<String>,
    },
    /// Sign groups for other nodes.
    Export {
        /// The names of the groups.
        names: Vec<String>,
        /// The name of the set.
        set: String,
        /// Seconds until it expires.
        expires_secs: u64,
    },
    /// Take over a set of groups of another node.
    Import {
        /// The absolute path of its file.
        file: PathBuf,
    },
}
