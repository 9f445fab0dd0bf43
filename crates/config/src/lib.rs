//! The configuration of a node in TOML. An error names the file, the line, the key and the allowed
//! values. Unknown keys are errors.

#![forbid(unsafe_code)]

mod catalogue;
#[cfg(feature = "rethink")]
mod defaults;
#[cfg_attr(not(feature = "cluster"), path = "without_engine.rs")]
mod engine;
mod error;
mod expand;
mod forward;
mod group;
mod identify;
mod limits;
mod middlebox;
mod reader;
mod retention;
mod rules;
mod service;
mod swarm;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use levada_core::parse_duration;
use levada_home::address;
use reader::{Section, Value};

pub use catalogue::Catalogue;
pub use engine::Engine;
pub use error::ConfigError;
pub use expand::{
    GROUP_PREFIX, GroupDefinition, GroupError, Groups, MAX_GROUP_DEPTH, MAX_GROUP_MEMBERS,
    MAX_GROUPS, Member, Members, add_successors,
};
pub use forward::ForwardSource;
pub use group::{GroupSource, SharedGroups};
pub use identify::{GroupRef, IdentityRef, Subject};
pub use limits::Limits;
pub use middlebox::Middlebox;
pub use reader::{MAX_FILE, read_file};
pub use retention::Retention;
pub use rules::{
    Asked, Decision, Effect, PolicyFile, Prospect, RuleRight, RuleSource, Rules, Verdict,
};
pub use service::ServiceSource;
pub use swarm::Swarm;

/// The address of the HTTP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Http {
    /// Port 5383 on loopback, or a free one if it is taken.
    #[default]
    Standard,
    /// No HTTP port.
    Off,
    /// This address.
    At(SocketAddr),
}

/// The PEM files of the HTTP port's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// An entry of the allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// The identity, or the group.
    pub identity: Subject,
    /// The names of the services that it may request; `None` for every service of the node.
    pub services: Option<Vec<String>>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("expected text or json"),
        }
    }
}

/// A node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name; `None` for the host's name.
    pub name: Option<String>,
    /// Listening addresses; `None` for port 5382 on all addresses, or a free port if it is taken.
    pub listen: Option<Vec<SocketAddr>>,
    /// Advertised addresses, `host:port` each, which precede the node's own in invitations, in
    /// catalogues and in its pin. The announcement by multicast DNS has the node's own addresses
    /// only.
    pub advertise: Vec<String>,
    /// Whether the node also listens on UDP, for QUIC, at its listening addresses.
    pub udp: bool,
    /// The HTTP port.
    pub http: Http,
    /// The certificate of the HTTP port; `None` for no TLS.
    pub http_tls: Option<TlsFiles>,
    /// Whether the node is announced by multicast DNS.
    pub announce: bool,
    /// The allow-list.
    pub allow: Vec<Allow>,
    /// Blocked identities and groups, whose connections are closed after the handshake.
    pub block: Vec<Subject>,
    /// Names for sets of identities.
    pub groups: Vec<GroupSource>,
    /// The exchange of groups with other nodes.
    pub shared_groups: SharedGroups,
    /// The rules, in the order of the file.
    pub rules: Vec<RuleSource>,
    /// The limits of the node.
    pub limits: Limits,
    /// The time until a requested session expires, unless the request sets it.
    pub session_expires: Duration,
    /// The times for which the node keeps sessions that have expired, and the audit log.
    pub retention: Retention,
    /// The services, in the order of the file.
    pub services: Vec<ServiceSource>,
    /// Adds the services `echo` and `clock`.
    pub builtin: bool,
    /// Whether the node has a service for the login shell of its user.
    pub shell: bool,
    /// The forwards that the node keeps open.
    pub forwards: Vec<ForwardSource>,
    /// The middlebox that the node is for sessions of others.
    pub middlebox: Option<Middlebox>,
    /// How the node serves its shares.
    pub swarm: Swarm,
    /// The catalogue of this node.
    pub catalogue: Catalogue,
    /// The catalogues of other nodes that `levada ls` reads, as NODE/SERVICE; one on several nodes
    /// as a list, separated by commas.
    pub catalogues: Vec<String>,
    /// The catalogues of other nodes in which the node publishes its services, in the same form.
    pub publish_in: Vec<String>,
    /// The log filter, in the format of `RUST_LOG`.
    pub log: String,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The file as it was read.
    pub(crate) source: toml::Table,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            listen: None,
            advertise: Vec::new(),
            udp: false,
            http: Http::default(),
            http_tls: None,
            announce: true,
            allow: Vec::new(),
            block: Vec::new(),
            groups: Vec::new(),
            shared_groups: SharedGroups::default(),
            rules: Vec::new(),
            limits: Limits::default(),
            session_expires: Duration::from_secs(3600),
            retention: Retention::default(),
            services: Vec::new(),
            builtin: true,
            shell: false,
            forwards: Vec::new(),
            middlebox: None,
            swarm: Swarm::default(),
            catalogue: Catalogue::default(),
            catalogues: Vec::new(),
            publish_in: Vec::new(),
            log: "info".into(),
            log_format: LogFormat::default(),
            source: toml::Table::new(),
        }
    }
}

/// The keys that are read again on SIGHUP; `http_tls` names files, which are, too.
const RELOADED: [&str; 7] = ["allow", "block", "rule", "retention", "forward", "group", "groups"];

impl Config {
    /// Reads `file`. If it does not exist, returns the default configuration.
    ///
    /// # Errors
    /// [`ConfigError`] if it cannot be read, or has an error.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        match reader::read_regular_file(file) {
            Ok(text) => Self::parse(file, &text),
            Err(ConfigError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Parses the text of a configuration; errors name `file`.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`] for the first error.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut config = reader::parse(file, text, Self::read)?;
        // The reader has accepted it.
        config.source = text.parse().unwrap_or_default();
        Ok(config)
    }

    /// The keys and values of the file.
    pub fn source(&self) -> &toml::Table {
        &self.source
    }

    /// The keys that differ from `started`, the file at the start of the node, and that are not
    /// read again while it runs.
    pub fn changed_since(&self, started: &toml::Table) -> Vec<&'static str> {
        let differs = |key: &&str| self.source.get(*key) != started.get(*key);
        KEYS.into_iter().filter(|key| !RELOADED.contains(key)).filter(differs).collect()
    }

    fn read(section: &Section<'_>) -> Result<Self, ConfigError> {
        service::refuse_tables_at_top(section)?;
        section.only(&KEYS)?;
        let mut config = Self::default();
        for value in section.values() {
            config.set(&value)?;
        }
        service::refuse_repeated(&config.services)?;
        group::refuse_repeated(&config.groups)?;
        Ok(config)
    }

    fn set(&mut self, value: &Value<'_>) -> Result<(), ConfigError> {
        match value.name() {
            "name" => self.name = Some(service::name(value)?),
            "listen" => self.listen = Some(listen(value)?),
            "advertise" => self.advertise = advertise(value)?,
            "udp" => self.udp = udp(value)?,
            "http" => self.http = http(value)?,
            "http_tls" => self.http_tls = Some(tls_files(value)?),
            "announce" => self.announce = value.flag()?,
            "allow" => self.allow = value.each(allow)?,
            "block" => self.block = value.each(Subject::read)?,
            "group" => self.groups = value.each(GroupSource::read)?,
            "groups" => self.shared_groups = SharedGroups::read(&value.section()?)?,
            "rule" => self.rules = value.each(RuleSource::read)?,
            "limits" => self.limits = Limits::read(&value.section()?)?,
            "session_expires" => self.session_expires = expires(value)?,
            "retention" => self.retention = Retention::read(&value.section()?)?,
            "service" => {
                self.services = value.each(|value| ServiceSource::read(&value.section()?))?
            }
            "builtin" => self.builtin = value.flag()?,
            "shell" => self.shell = value.flag()?,
            "forward" => self.forwards = value.each(ForwardSource::read)?,
            "middlebox" => self.middlebox = Some(Middlebox::read(value)?),
            "swarm" => self.swarm = Swarm::read(&value.section()?)?,
            "catalogue" => self.catalogue = Catalogue::read(value)?,
            "catalogues" => self.catalogues = value.each(catalogue::service_target)?,
            "publish_in" => self.publish_in = value.each(catalogue::service_target)?,
            "log" => {
                self.log = value.text("a filter such as \"info\" or \"levada_node=debug\"")?.into()
            }
            "log_format" => self.log_format = value.parsed("\"text\" or \"json\"")?,
            _ => {}
        }
        Ok(())
    }
}

const KEYS: [&str; 26] = [
    "name",
    "listen",
    "advertise",
    "udp",
    "http",
    "http_tls",
    "announce",
    "allow",
    "block",
    "group",
    "groups",
    "rule",
    "limits",
    "session_expires",
    "retention",
    "service",
    "builtin",
    "shell",
    "forward",
    "middlebox",
    "swarm",
    "catalogue",
    "catalogues",
    "publish_in",
    "log",
    "log_format",
];

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

fn udp(value: &Value<'_>) -> Result<bool, ConfigError> {
    match value.flag()? {
        true if !cfg!(feature = "udp") => Err(value.wrong("this build of levada has no UDP")),
        flag => Ok(flag),
    }
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
        return Ok(Allow { identity: Subject::read(value)?, services: None });
    }
    let section = value.section_or(
        "an identity, a name of `levada peers ls`, a group such as \"group:family\", or a table such as { identity = \"lv…\", services = [\"echo\"] }",
    )?;
    section.only(&["identity", "services"])?;
    let identity = section.required("identity", identify::ALLOWED_SUBJECT)?;
    let identity = Subject::read(&identity)?;
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

fn expires(value: &Value<'_>) -> Result<Duration, ConfigError> {
    let text = value.text("a duration such as \"90s\", \"10m\", \"1h\" or \"7d\"")?;
    parse_duration(text).map_err(|error| value.wrong(error.to_string()))
}

#[cfg(test)]
mod tests;
