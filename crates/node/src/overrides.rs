//! Command-line settings of `levada up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use levada_core::Identity;

use levada_config::TlsFiles;

/// Settings of the command line, which override the configuration.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The node's name.
    pub name: Option<String>,
    /// Addresses to listen on; replaces the configured ones if not empty.
    pub listen: Vec<SocketAddr>,
    /// Advertised addresses; replace the configured ones if not empty.
    pub advertise: Vec<String>,
    /// Listen on UDP, too, even if the configuration does not.
    pub udp: bool,
    /// Address of the HTTP port.
    pub http: Option<SocketAddr>,
    /// The certificate of the HTTP port.
    pub http_tls: Option<TlsFiles>,
    /// Identities that may request every service.
    pub allow: Vec<Identity>,
    /// Files with one service each.
    pub services: Vec<PathBuf>,
    /// Add a service `exec` with a few harmless commands.
    pub demo: bool,
    /// Do not announce the node, even if the configuration does.
    pub no_announce: bool,
    /// Open a catalogue, and offer only services of this type.
    pub only_catalogue: bool,
}
