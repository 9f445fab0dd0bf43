//! The configuration of the catalogue.

use std::path::PathBuf;

use levada_catalogue::http::Hosts;
use levada_catalogue::index::{Defaults, Open, Pattern};

use super::ConfigError;
use super::engine::{self, Engine};
use super::reader::Value;

/// The catalogue of the node, and which of its objects are public.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Whether the node has a catalogue; with `None`, if it exists already or a service needs it.
    pub wanted: Option<bool>,
    /// Its folder; `None` for the default in the home's state folder.
    pub folder: Option<PathBuf>,
    /// Where its changes are kept, if several nodes share it.
    pub engine: Option<Engine>,
    /// Whether the node publishes its services in it.
    pub services: bool,
    /// The objects that the HTTP port shows.
    pub open: Open,
    /// The host names that the HTTP port serves.
    pub hosts: Hosts,
    /// For each type, the names for `default` under `/.well-known/`: the first that exists is used.
    pub defaults: Defaults,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self {
            wanted: None,
            folder: None,
            engine: None,
            services: true,
            open: Open::default(),
            hosts: Hosts::default(),
            defaults: Defaults::default(),
        }
    }
}

impl Catalogue {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        if let Some(wanted) = value.as_bool() {
            return Ok(Self { wanted: Some(wanted), ..Self::default() });
        }
        let section =
            value.section_or("true, false, or a table such as { folder = \"/srv/catalogue\" }")?;
        section.only(&[
            "folder",
            "store",
            "engine",
            "services",
            "open",
            "hosts",
            "forwarded_host",
            #[cfg(feature = "rethink")]
            "default",
        ])?;
        let mut catalogue = Self { wanted: Some(true), ..Self::default() };
        let mut forwarded = false;
        for value in section.values() {
            match value.name() {
                "folder" => catalogue.folder = Some(folder(&value)?),
                "store" => catalogue.engine = Some(engine::read(&section, &value)?),
                // Read with `store`.
                "engine" if section.value("store").is_some() => {}
                "engine" => return Err(value.wrong(engine::WITHOUT_STORE)),
                "services" => catalogue.services = value.flag()?,
                "open" => catalogue.open = Open::only(value.each(pattern)?),
                "hosts" => catalogue.hosts = hosts(&value)?,
                "forwarded_host" => forwarded = value.flag()?,
                #[cfg(feature = "rethink")]
                "default" => catalogue.defaults = super::defaults::read(&value.section()?)?,
                _ => {}
            }
        }
        catalogue.hosts = catalogue.hosts.forwarded(forwarded);
        Ok(catalogue)
    }
}

fn pattern(value: &Value<'_>) -> Result<Pattern, ConfigError> {
    value.parsed("a pattern such as \"hyperty/*\" or \"*/acme.*\"")
}

fn hosts(value: &Value<'_>) -> Result<Hosts, ConfigError> {
    let list = value.each(host)?;
    if list.is_empty() {
        return Err(value.wrong("it is empty; leave it out to answer for every host"));
    }
    Hosts::only(&list).map_err(|error| value.wrong(error.to_string()))
}

fn host(value: &Value<'_>) -> Result<String, ConfigError> {
    Ok(value.text("a host such as \"catalogue.example\"")?.to_owned())
}

fn folder(value: &Value<'_>) -> Result<PathBuf, ConfigError> {
    value.absolute("the absolute path of a folder")
}

/// Reads NODE/SERVICE.
pub(super) fn service_target(value: &Value<'_>) -> Result<String, ConfigError> {
    const ALLOWED: &str =
        "NODE/SERVICE, such as \"hub/catalogue\", or several, separated by commas";
    let text = value.text(ALLOWED)?;
    let is_target = |text: &str| {
        text.rsplit_once('/').is_some_and(|(node, service)| !node.is_empty() && !service.is_empty())
    };
    if text.split(',').all(is_target) { Ok(text.to_owned()) } else { Err(value.not(ALLOWED)) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use levada_catalogue::model::Kind;
    use levada_catalogue::rethink::PathType;

    use super::*;
    use crate::Config;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("config.toml"), text)
    }

    #[test]
    fn a_catalogue_is_a_flag_a_table_or_absent() {
        let wanted = |text: &str| parse(text).unwrap().catalogue.wanted;
        assert_eq!(wanted(""), None);
        assert_eq!(wanted("catalogue = false"), Some(false));
        assert_eq!(wanted("catalogue = true"), Some(true));
        let text = "publish_in = ['hub/catalogue']\n[catalogue]\nfolder = '/srv/c'\nservices = false\n\
                    open = ['hyperty/*']\nhosts = ['catalogue.example']\nforwarded_host = true\n\
                    [catalogue.default]\nruntime = ['Browser', 'Node']\nsourcepackage = ['Core']\n";
        let config = parse(text).unwrap();
        let catalogue = config.catalogue;
        assert_eq!(catalogue.folder, Some(PathBuf::from("/srv/c")));
        assert!(!catalogue.services && Catalogue::default().services);
        assert!(catalogue.open.shows(&"hyperty/a".parse().unwrap()));
        assert!(!catalogue.open.shows(&"runtime/a".parse().unwrap()));
        let names = vec!["Browser".to_owned(), "Node".to_owned()];
        let packages = (PathType::Packages, vec!["Core".to_owned()]);
        assert_eq!(catalogue.defaults, [(PathType::Objects(Kind::Runtime), names), packages]);
        assert_eq!(config.publish_in, ["hub/catalogue"]);
        assert!(config.catalogues.is_empty());
    }

    #[test]
    fn several_nodes_share_a_catalogue_by_an_engine() {
        let engine = |text: &str| parse(text).unwrap().catalogue.engine;
        assert_eq!(engine("[catalogue]\nservices = true\n"), None);
        let server = "nats://10.0.0.1:4222".to_owned();
        let plain = Engine::at(vec![server.clone()]);
        assert_eq!(engine("[catalogue]\nstore = 'nats://10.0.0.1:4222'\n"), Some(plain.clone()));
        let text = "[catalogue]\nstore = ['nats://10.0.0.1:4222', 'tls://b']\n[catalogue.engine]\n\
                    name = 'one'\nseed = '/etc/seed'\nauthorities = '/etc/ca.pem'\nreplicas = 1\ncache = 5\n";
        let whole = Engine {
            servers: vec![server, "tls://b".to_owned()],
            name: "one".to_owned(),
            seed: Some("/etc/seed".into()),
            authorities: Some("/etc/ca.pem".into()),
            replicas: 1,
            cache: 5 << 20,
            ..plain
        };
        assert_eq!(engine(text), Some(whole));
    }

    #[test]
    fn errors_have_positions() {
        for (text, place) in [
            ("catalogue = 1\n", "config.toml:1: key `catalogue`"),
            ("[catalogue]\nfolder = 'srv'\n", "config.toml:2: key `catalogue.folder`"),
            ("[catalogue]\ncolour = 1\n", "config.toml:2: key `catalogue.colour`"),
            ("[catalogue]\nopen = ['x']\n", "config.toml:2: key `catalogue.open[0]`"),
            ("[catalogue]\nhosts = ['a b']\n", "config.toml:2: key `catalogue.hosts`"),
            ("[catalogue]\nstore = 'http://a'\n", "config.toml:2: key `catalogue.store`"),
            ("[catalogue]\nstore = ['nats://u:p@a']\n", "config.toml:2: key `catalogue.store[0]`"),
            ("[catalogue.engine]\nname = 'a'\n", "config.toml:1: key `catalogue.engine`"),
            (
                "[catalogue]\nstore = 'nats://a'\n[catalogue.engine]\nuser = 'a'\n",
                "config.toml:4: key `catalogue.engine.user`",
            ),
            ("catalogues = ['hub']\n", "config.toml:1: key `catalogues[0]`"),
            ("publish_in = ['a/catalogue,b']\n", "config.toml:1: key `publish_in[0]`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        }
    }
}
