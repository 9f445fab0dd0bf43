//! The configuration of a node, read from TOML. Every error names file, line and key, and says what is
//! allowed; nothing is guessed and nothing unknown is skipped.

mod catalogue;
mod duration;
mod forward;
mod identify;
mod reader;
mod service;

use levada_service::streams::DEFAULT_STREAMS;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

use levada_client::address;
use reader::{Section, Value};

pub use catalogue::Catalogue;
pub use duration::{DurationError, format_duration, parse_duration};
pub use forward::ForwardSource;
pub use identify::Who;
pub use levada_core::check_name;
pub use service::ServiceSource;

/// The longest configuration or service file, in bytes.
pub const MAX_FILE: u64 = 1024 * 1024;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}: {}{message}", KeyText(.key))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, with its tables in front; empty if the file is no TOML at all.
        key: String,
        /// What is wrong, and what is allowed.
        message: String,
    },
}

struct KeyText<'a>(&'a str);

impl fmt::Display for KeyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "key `{}`: ", self.0) }
    }
}

/// Where the HTTP port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Http {
    /// Port 5383 on loopback, or a free one if it is taken.
    #[default]
    Standard,
    /// None.
    Off,
    /// This address.
    At(SocketAddr),
}

/// Files in PEM that the HTTP port is served with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, and behind it those that lead to one that clients know.
    pub certificate: PathBuf,
    /// The key of the first.
    pub key: PathBuf,
}

/// An identity that may request, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// Who.
    pub identity: Who,
    /// The names of the services; `None` is every service of the node.
    pub services: Option<Vec<String>>,
}

/// How much a node takes on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections whose handshake is not finished.
    pub half_open: usize,
    /// Connections whose handshake is finished.
    pub connections: usize,
    /// Sessions that run.
    pub sessions: usize,
    /// Of them, those of sessions that one identity has requested; the node's own is not bound by it.
    pub sessions_per_requester: usize,
    /// Of them, those that only sessions of the node's own identity may take; at most half of all.
    pub sessions_reserved: usize,
    /// Operations a second from one source by peers that have not proved a right.
    pub operations: usize,
    /// The same from all sources together.
    pub operations_total: usize,
    /// Streams that one of them may have open beside its first.
    pub streams: usize,
    /// MiB that connections may hold together whose peers have not proved a right.
    pub unproved_memory: usize,
    /// Wrong invitations from one source before it is shut out for ten minutes.
    pub invitation_attempts: usize,
    /// Wrong invitations from all sources within ten minutes.
    pub invitation_attempts_total: usize,
    /// Connections of the HTTP port; fewer if the process may open fewer than three times as many files.
    pub http_connections: usize,
    /// Those of one source; `None` for half of all.
    pub http_per_source: Option<usize>,
}

impl Default for Limits {
    /// Together these stay below 1024 open files, even if every session runs a program. Connections that
    /// `forward` carries are counted by that service.
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

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// A node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name; `None` for the host's name.
    pub name: Option<String>,
    /// Where to listen; `None` for port 5382 on all addresses, or a free one if it is taken.
    pub listen: Option<Vec<SocketAddr>>,
    /// Where others are told that the node is, before its own addresses: `host:port` each.
    pub advertise: Vec<String>,
    /// Where the HTTP port is.
    pub http: Http,
    /// The certificate that it is served with; `None` for no TLS.
    pub http_tls: Option<TlsFiles>,
    /// Whether neighbours learn of the node by multicast DNS.
    pub announce: bool,
    /// Who may request.
    pub allow: Vec<Allow>,
    /// Identities that may do nothing; their connections are closed after the handshake.
    pub block: Vec<Who>,
    /// How much the node takes on.
    pub limits: Limits,
    /// How long a requested session may wait for its start, unless the request says so.
    pub session_expires: Duration,
    /// The services, in the order of the file.
    pub services: Vec<ServiceSource>,
    /// Whether the login shell of the node's user is offered.
    pub shell: bool,
    /// What the node carries to others, and from them.
    pub forwards: Vec<ForwardSource>,
    /// The catalogue of this node.
    pub catalogue: Catalogue,
    /// The catalogues of others that `levada ls` reads, as NODE/SERVICE.
    pub catalogues: Vec<String>,
    /// The catalogues of others in which the node publishes its services, as NODE/SERVICE.
    pub publish_in: Vec<String>,
    /// What is logged, in the form of `RUST_LOG`.
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            listen: None,
            advertise: Vec::new(),
            http: Http::default(),
            http_tls: None,
            announce: true,
            allow: Vec::new(),
            block: Vec::new(),
            limits: Limits::default(),
            session_expires: Duration::from_secs(3600),
            services: Vec::new(),
            shell: false,
            forwards: Vec::new(),
            catalogue: Catalogue::default(),
            catalogues: Vec::new(),
            publish_in: Vec::new(),
            log: "info".into(),
            log_format: LogFormat::default(),
        }
    }
}

impl Config {
    /// Reads `file`; a file that does not exist is the default configuration.
    ///
    /// # Errors
    /// [`ConfigError`] if it cannot be read, or something in it is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        match read_file(file) {
            Ok(text) => Self::parse(file, &text),
            Err(ConfigError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the text of a configuration; `file` is named in errors.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for the first thing that is wrong.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        reader::parse(file, text, Self::read)
    }

    fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        section.only(&KEYS)?;
        let mut config = Self::default();
        for value in section.values() {
            config.set(&value)?;
        }
        service::refuse_repeated(&config.services)?;
        Ok(config)
    }

    fn set(&mut self, value: &Value<'_>) -> Result<(), ConfigError> {
        match value.name() {
            "name" => self.name = Some(service::name(value)?),
            "listen" => self.listen = Some(listen(value)?),
            "advertise" => self.advertise = advertise(value)?,
            "http" => self.http = http(value)?,
            "http_tls" => self.http_tls = Some(tls_files(value)?),
            "announce" => self.announce = flag(value)?,
            "allow" => self.allow = value.each(allow)?,
            "block" => self.block = value.each(Who::read)?,
            "limits" => self.limits = limits(&value.section()?)?,
            "session_expires" => self.session_expires = expires(value)?,
            "service" => {
                self.services = value.each(|value| ServiceSource::read(&value.section()?))?
            }
            "shell" => self.shell = flag(value)?,
            "forward" => self.forwards = value.each(ForwardSource::read)?,
            "catalogue" => self.catalogue = Catalogue::read(value)?,
            "catalogues" => self.catalogues = value.each(catalogue::place)?,
            "publish_in" => self.publish_in = value.each(catalogue::place)?,
            "log" => {
                self.log = value.text("a filter such as \"info\" or \"levada_node=debug\"")?.into()
            }
            "log_format" => self.log_format = log_format(value)?,
            _ => {}
        }
        Ok(())
    }
}

const KEYS: [&str; 18] = [
    "name",
    "listen",
    "advertise",
    "http",
    "http_tls",
    "announce",
    "allow",
    "block",
    "limits",
    "session_expires",
    "service",
    "shell",
    "forward",
    "catalogue",
    "catalogues",
    "publish_in",
    "log",
    "log_format",
];

/// Reads a file of at most [`MAX_FILE`] bytes.
fn read_file(file: &Path) -> Result<String, ConfigError> {
    let fail = |source| ConfigError::Io { file: file.to_owned(), source };
    let opened = std::fs::File::open(file).map_err(fail)?;
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(opened, MAX_FILE + 1), &mut text).map_err(fail)?;
    if text.len() as u64 > MAX_FILE {
        return Err(fail(io::Error::other(format!("it is longer than {MAX_FILE} bytes"))));
    }
    Ok(text)
}

fn socket(value: &Value<'_>) -> Result<SocketAddr, ConfigError> {
    value.parsed("an address and port such as \"0.0.0.0:5382\" or \"[::1]:5382\"")
}

fn listen(value: &Value<'_>) -> Result<Vec<SocketAddr>, ConfigError> {
    if value.is_text() {
        return Ok(vec![socket(value)?]);
    }
    let addresses = value.each(socket)?;
    if addresses.is_empty() {
        return Err(value.wrong("it is empty; leave it out for port 5382 on all addresses"));
    }
    Ok(addresses)
}

fn advertise(value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
    let read = |value: &Value<'_>| {
        let text = value.text("an address such as \"box.example:5382\"")?;
        address::advertised(text).map_err(|error| value.wrong(error.to_string()))
    };
    if value.is_text() { Ok(vec![read(value)?]) } else { value.each(read) }
}

fn http(value: &Value<'_>) -> Result<Http, ConfigError> {
    match value.as_bool() {
        Some(false) => Ok(Http::Off),
        Some(true) => Ok(Http::Standard),
        None => value
            .parsed("an address and port such as \"127.0.0.1:5383\", or false for no HTTP port")
            .map(Http::At),
    }
}

fn tls_files(value: &Value<'_>) -> Result<TlsFiles, ConfigError> {
    const FORM: &str =
        "a table such as { cert = \"/etc/levada/cert.pem\", key = \"/etc/levada/key.pem\" }";
    let section = value.section_or(FORM)?;
    section.only(&["cert", "key"])?;
    let path = |name| absolute_path(&section.required(name, ABSOLUTE)?);
    Ok(TlsFiles { certificate: path("cert")?, key: path("key")? })
}

const ABSOLUTE: &str = "an absolute path";

fn absolute_path(value: &Value<'_>) -> Result<PathBuf, ConfigError> {
    let path = PathBuf::from(value.text(ABSOLUTE)?);
    if path.is_absolute() { Ok(path) } else { Err(value.not(ABSOLUTE)) }
}

fn allow(value: &Value<'_>) -> Result<Allow, ConfigError> {
    if value.is_text() {
        return Ok(Allow { identity: Who::read(value)?, services: None });
    }
    let section = value.section_or(
        "an identity, a name of `levada peers ls`, or a table such as { identity = \"lv…\", services = [\"echo\"] }",
    )?;
    section.only(&["identity", "services"])?;
    let identity = Who::read(&section.required("identity", identify::ALLOWED)?)?;
    let services = section.value("services").map(|value| services(&value)).transpose()?;
    Ok(Allow { identity, services })
}

fn services(value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
    let names = value.each(service::name)?;
    if names.is_empty() {
        return Err(value.wrong("it is empty; leave it out to allow every service"));
    }
    Ok(names)
}

fn flag(value: &Value<'_>) -> Result<bool, ConfigError> {
    value.as_bool().ok_or_else(|| value.not("true or false"))
}

fn limits(section: &Section<'_>) -> Result<Limits, ConfigError> {
    let mut limits = Limits::default();
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

fn expires(value: &Value<'_>) -> Result<Duration, ConfigError> {
    let text = value.text("a duration such as \"90s\", \"10m\", \"1h\" or \"7d\"")?;
    parse_duration(text).map_err(|error| value.wrong(error.to_string()))
}

fn log_format(value: &Value<'_>) -> Result<LogFormat, ConfigError> {
    const ALLOWED: &str = "\"text\" or \"json\"";
    match value.text(ALLOWED)? {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(value.not(ALLOWED)),
    }
}

#[cfg(test)]
mod tests;
