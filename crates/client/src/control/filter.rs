//! Conditions for lists of sessions and entries of the audit log.

use serde::{Deserialize, Serialize};

/// The conditions of a list. All of them apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// An identity, a prefix of it, or a name that is pinned in the home of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The name of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The earliest time, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
}

impl Filter {
    /// Returns true without any condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
