//! How a node finds the engine of its catalogue.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Clock, SystemClock};
use zeroize::Zeroizing;

/// What a node needs to use an engine.
#[derive(Clone)]
pub struct Options {
    /// The servers, such as `nats://10.0.0.1:4222`, or `tls://…`; any of them will do.
    pub servers: Vec<String>,
    /// The catalogue; an engine can have several. Lower-case letters, digits and `-`.
    pub name: String,
    /// How the node proves who it is.
    pub credentials: Credentials,
    /// The certificates that a server's must come from, as PEM; `None` for those of the operating
    /// system.
    pub authorities: Option<PathBuf>,
    /// How many servers of the engine have each record.
    pub replicas: usize,
    /// How many bytes of packages the node keeps on its disk, about.
    pub cache: u64,
    /// How many of the last changes are kept at least, for clients that follow them.
    pub kept_changes: u64,
    /// How many records more than the last snapshot a replica has at least when the next one is
    /// made.
    pub snapshot_growth: u64,
    /// How long a new replica waits for the engine, and for each next part of the log.
    pub connect_timeout: Duration,
    /// After this time without an answer, a change is given up.
    pub write_timeout: Duration,
    /// The time of the node.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            name: "catalogue".to_owned(),
            credentials: Credentials::None,
            authorities: None,
            replicas: 3,
            cache: 16 << 30,
            kept_changes: 65_536,
            snapshot_growth: 20_000,
            connect_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_millis(2750),
            clock: Arc::new(SystemClock),
        }
    }
}

/// How a node proves to the engine who it is.
#[derive(Clone)]
pub enum Credentials {
    /// Not at all.
    None,
    /// By a name and a password.
    Password(String, Zeroizing<String>),
    /// By the seed of an NKEY.
    Seed(Zeroizing<String>),
    /// By a file of credentials.
    File(PathBuf),
}
