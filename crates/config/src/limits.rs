//! The limits of a node.

use levada_service::streams::DEFAULT_STREAMS;

use super::ConfigError;
use super::reader::Section;

/// The limits of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Unfinished handshakes.
    pub half_open: usize,
    /// Connections with a finished handshake.
    pub connections: usize,
    /// Running sessions.
    pub sessions: usize,
    /// Running sessions that one identity has requested. The node's own identity has no such limit.
    pub sessions_per_requester: usize,
    /// Running sessions that are reserved for the node's own identity; at most half of all.
    pub sessions_reserved: usize,
    /// Operations per second of peers of one source that have not proved a right.
    pub operations: usize,
    /// The same of all sources together.
    pub operations_total: usize,
    /// Further streams of one session.
    pub streams: usize,
    /// Memory of all connections whose peers have not proved a right, in MiB.
    pub unproved_memory: usize,
    /// Wrong secrets of invitations and tickets of one source, after which it is locked out for ten
    /// minutes.
    pub invitation_attempts: usize,
    /// Wrong secrets of all sources within ten minutes, after which answers are delayed.
    pub invitation_attempts_total: usize,
    /// Connections of the HTTP port; at most a third of the files that the process may open.
    pub http_connections: usize,
    /// Connections of the HTTP port from one source; `None` for half of all.
    pub http_per_source: Option<usize>,
}

impl Default for Limits {
    /// Together these stay below 1024 open files, even if every session runs a program. The service
    /// `forward` has its own limit of connections.
    fn default() -> Self {
        Self {
            half_open: 256,
            connections: 256,
            sessions: 100,
            sessions_per_requester: 32,
            sessions_reserved: 4,
            operations: 100,
            operations_total: 1000,
            streams: DEFAULT_STREAMS,
            unproved_memory: 64,
            invitation_attempts: 3,
            invitation_attempts_total: 1000,
            http_connections: 8192,
            http_per_source: None,
        }
    }
}

impl Limits {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        let mut limits = Self::default();
        section.only(&[
            "half_open",
            "connections",
            "sessions",
            "sessions_per_requester",
            "sessions_reserved",
            "operations",
            "operations_total",
            "streams",
            "unproved_memory",
            "invitation_attempts",
            "invitation_attempts_total",
            "http_connections",
            "http_per_source",
        ])?;
        for value in section.values() {
            let count = value.number(1..=1_000_000)?;
            match value.name() {
                "half_open" => limits.half_open = count,
                "connections" => limits.connections = count,
                "sessions" => limits.sessions = count,
                "sessions_per_requester" => limits.sessions_per_requester = count,
                "sessions_reserved" => limits.sessions_reserved = count,
                "operations" => limits.operations = count,
                "operations_total" => limits.operations_total = count,
                "streams" => limits.streams = count,
                "unproved_memory" => limits.unproved_memory = count,
                "invitation_attempts" => limits.invitation_attempts = count,
                "invitation_attempts_total" => limits.invitation_attempts_total = count,
                "http_connections" => limits.http_connections = count,
                _ => limits.http_per_source = Some(count),
            }
        }
        Ok(limits)
    }
}
