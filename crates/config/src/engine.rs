//! The `[catalogue.engine]` of the configuration: a catalogue that several nodes share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_catalogue::store::StoreError;
use levada_catalogue::store::cluster::{Credentials, Options};
use levada_core::Clock;
use zeroize::Zeroizing;

use super::ConfigError;
use super::reader::{Section, Value};

/// The bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// Why `[catalogue.engine]` without `store` is refused.
pub(super) const WITHOUT_STORE: &str = "it needs `store`, the servers";

/// Where the catalogue's changes are kept, and how the node proves there who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The servers of NATS.
    pub servers: Vec<String>,
    /// The name of the catalogue.
    pub name: String,
    /// A file of credentials, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// A file with the seed of an NKEY.
    pub seed: Option<PathBuf>,
    /// A user, and a file with the password.
    pub user: Option<String>,
    /// The file with the password of `user`.
    pub password: Option<PathBuf>,
    /// The certificates that those of the servers come from.
    pub authorities: Option<PathBuf>,
    /// How many servers have each record.
    pub replicas: usize,
    /// How many bytes of packages are kept on the disk of the node.
    pub cache: u64,
}

impl Engine {
    /// The engine with these servers, without options.
    pub(super) fn at(servers: Vec<String>) -> Self {
        let Options { name, replicas, cache, .. } = Options::default();
        Self {
            servers,
            name,
            credentials: None,
            seed: None,
            user: None,
            password: None,
            authorities: None,
            replicas,
            cache,
        }
    }

    /// The options in a table.
    fn with(mut self, section: &Section<'_>) -> Result<Self, ConfigError> {
        section.only(&[
            "name",
            "credentials",
            "seed",
            "user",
            "password",
            "authorities",
            "replicas",
            "cache",
        ])?;
        for value in section.values() {
            match value.name() {
                "name" => self.name = name(&value)?,
                "credentials" => self.credentials = Some(file(&value)?),
                "seed" => self.seed = Some(file(&value)?),
                "user" => self.user = Some(value.text("the name of a user")?.to_owned()),
                "password" => self.password = Some(file(&value)?),
                "authorities" => self.authorities = Some(file(&value)?),
                "replicas" => self.replicas = value.number(1..=5)?,
                _ => self.cache = value.number(1..=1 << 30)? as u64 * MIB,
            }
        }
        let login = (section.value("user"), section.value("password"));
        if let (Some(alone), None) | (None, Some(alone)) = login {
            return Err(alone.wrong("`user` and `password` belong together"));
        }
        Ok(self)
    }

    /// How the store is opened. Reads the secrets.
    ///
    /// # Errors
    /// [`StoreError::File`] if a file cannot be read.
    pub fn options(&self, clock: Arc<dyn Clock>) -> Result<Options, StoreError> {
        let credentials = match (&self.credentials, &self.seed, &self.user, &self.password) {
            (Some(file), ..) => Credentials::File(file.clone()),
            (None, Some(seed), ..) => Credentials::Seed(secret(seed)?),
            (None, None, Some(user), Some(file)) => {
                Credentials::Password(user.clone(), secret(file)?)
            }
            _ => Credentials::None,
        };
        Ok(Options {
            servers: self.servers.clone(),
            name: self.name.clone(),
            credentials,
            authorities: self.authorities.clone(),
            replicas: self.replicas,
            cache: self.cache,
            clock,
            ..Options::default()
        })
    }
}

/// The first line of a file.
fn secret(path: &Path) -> Result<Zeroizing<String>, StoreError> {
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    let text = Zeroizing::new(fs::read_to_string(path).map_err(failed)?);
    Ok(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned()))
}

/// Reads `store`, and the options in `engine` of the same section.
pub(super) fn read(section: &Section<'_>, store: &Value<'_>) -> Result<Engine, ConfigError> {
    let engine = Engine::at(servers(store)?);
    match section.value("engine") {
        Some(options) => engine.with(&options.section()?),
        None => Ok(engine),
    }
}

/// The servers, one or a list.
fn servers(value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
    let servers = if value.is_text() { vec![server(value)?] } else { value.each(server)? };
    if servers.is_empty() { Err(value.wrong("it is empty")) } else { Ok(servers) }
}

fn server(value: &Value<'_>) -> Result<String, ConfigError> {
    const ALLOWED: &str = "a server such as \"nats://10.0.0.1:4222\" or \"tls://nats.example\"";
    let text = value.text(ALLOWED)?;
    let is_server = ["nats://", "tls://"].iter().any(|scheme| {
        text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && !rest.contains('@'))
    });
    if is_server { Ok(text.to_owned()) } else { Err(value.not(ALLOWED)) }
}

fn name(value: &Value<'_>) -> Result<String, ConfigError> {
    const ALLOWED: &str = "up to 32 of a-z, 0-9 and -";
    let text = value.text(ALLOWED)?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = (1..=32).contains(&text.len()) && text.bytes().all(fits);
    if is_name { Ok(text.to_owned()) } else { Err(value.not(ALLOWED)) }
}

fn file(value: &Value<'_>) -> Result<PathBuf, ConfigError> {
    value.absolute("the absolute path of a file")
}
