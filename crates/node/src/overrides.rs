//! Command-line settings of `levada up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use levada_core::Identity;

use crate::config::TlsFiles;

/// What the command line says over the configuration.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The node's name.
    pub name: Option<String>,
    /// Addresses to listen on; replaces the configured ones if not empty.
    pub listen: Vec<SocketAddr>,
    /// Where others are told that the node is; replaces what is configured if not empty.
    pub advertise: Vec<String>,
    /// Address of the HTTP port.
    pub http: Option<SocketAddr>,
    /// The certificate that it is served with.
    pub http_tls: Option<TlsFiles>,
    /// Identities that may request every service.
    pub allow: Vec<Identity>,
    /// Files with one service each.
    pub services: Vec<PathBuf>,
    /// Also offer `exec` of a few harmless commands.
    pub demo: bool,
    /// Do not announce the node, whatever the configuration says.
    pub no_announce: bool,
    /// Keep a catalogue, and offer nothing but services of this type.
    pub only_catalogue: bool,
}
