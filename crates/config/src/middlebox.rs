//! The middlebox of the configuration.

use std::net::SocketAddr;
use std::time::Duration;

use levada_services::middlebox::{AddField, Plugins, Regex, next_party, parse_cache_size};

use super::reader::{Section, Value};
use super::{ConfigError, Subject};
use levada_core::parse_duration;

const KEYS: [&str; 9] =
    ["listen", "next", "server", "block", "add_response", "compress", "cache", "lenient", "resume"];

/// The `[middlebox]` of the configuration: the node carries sessions of others.
#[derive(Clone, Debug)]
pub struct Middlebox {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The addresses that sessions may be led to, `host:port` each.
    pub next: Vec<String>,
    /// The nodes that sessions may end at; none: any behind `next`.
    pub servers: Vec<Subject>,
    /// What it does with what it may see.
    pub plugins: Plugins,
    /// How long it keeps keys of a session for later ones.
    pub resume: Duration,
}

impl Middlebox {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let section = value.section_or(
            "a table such as { listen = \"0.0.0.0:5384\", next = [\"box.example:5382\"] }",
        )?;
        section.only(&KEYS)?;
        let next = section.required("next", NEXT)?;
        Ok(Self {
            listen: section.required("listen", LISTEN)?.parsed(LISTEN)?,
            next: one_or_more(&next, address)?,
            servers: optional(&section, "server", Subject::read)?,
            plugins: Plugins {
                block: optional(&section, "block", pattern)?,
                add_response: optional(&section, "add_response", field)?,
                compress: section.value("compress").map_or(Ok(false), |value| value.flag())?,
                cache: section.value("cache").map(|value| size(&value)).transpose()?,
                lenient: section.value("lenient").map_or(Ok(false), |value| value.flag())?,
            },
            resume: section.value("resume").map_or(Ok(RESUME), |value| resume(&value))?,
        })
    }
}

const LISTEN: &str = "an address and port such as \"0.0.0.0:5384\"";
const NEXT: &str = "an address such as \"box.example:5382\", or a list of them";
/// How long keys are kept unless `resume` says otherwise.
const RESUME: Duration = Duration::from_secs(24 * 3600);

/// One value, or a list of at least one.
fn one_or_more<T>(
    value: &Value<'_>,
    read: impl Fn(&Value<'_>) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    if value.is_text() {
        return Ok(vec![read(value)?]);
    }
    let all = value.each(read)?;
    if all.is_empty() { Err(value.wrong("it is empty")) } else { Ok(all) }
}

fn optional<T>(
    section: &Section<'_>,
    name: &str,
    read: impl Fn(&Value<'_>) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    section.value(name).map_or(Ok(Vec::new()), |value| one_or_more(&value, read))
}

fn address(value: &Value<'_>) -> Result<String, ConfigError> {
    next_party(value.text(NEXT)?).map_err(|error| value.wrong(error))
}

fn pattern(value: &Value<'_>) -> Result<Regex, ConfigError> {
    let text = value.text("a regular expression such as '^GET /private'")?;
    Regex::new(text).map_err(|error| value.wrong(error.to_string()))
}

fn field(value: &Value<'_>) -> Result<String, ConfigError> {
    const ALLOWED: &str = "a field such as \"X-Checked: yes\"";
    let text = value.text(ALLOWED)?;
    AddField::new(text).map(|_| text.to_owned()).ok_or_else(|| value.not(ALLOWED))
}

fn size(value: &Value<'_>) -> Result<usize, ConfigError> {
    let text = value.text("a size such as \"256M\"")?;
    parse_cache_size(text).map_err(|error| value.wrong(error))
}

/// A duration; false keeps nothing.
fn resume(value: &Value<'_>) -> Result<Duration, ConfigError> {
    const ALLOWED: &str = "a duration such as \"24h\", or false to keep no keys";
    if value.as_bool() == Some(false) {
        return Ok(Duration::ZERO);
    }
    parse_duration(value.text(ALLOWED)?).map_err(|_| value.not(ALLOWED))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use crate::Config;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("config.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_middlebox_has_the_options_of_the_command_line() {
        assert!(parse("").unwrap().middlebox.is_none());
        let text = "[middlebox]\nlisten = '127.0.0.1:1'\nnext = 'a:1'\n";
        let short = parse(text).unwrap().middlebox.unwrap();
        assert_eq!((short.next, short.resume), (vec!["a:1".to_owned()], super::RESUME));
        assert_eq!((short.plugins.compress, short.plugins.cache), (false, None));
        let text = "[middlebox]\nlisten = '[::]:5384'\nnext = ['a:1', 'b:2']\nserver = ['bob']\n\
                    block = '^GET /x'\nadd_response = ['A: b', 'C: d']\nresume = false\n\
                    compress = true\ncache = '256M'\nlenient = true\n";
        let full = parse(text).unwrap().middlebox.unwrap();
        assert_eq!((full.next.len(), full.servers.len()), (2, 1));
        assert!(full.plugins.block[0].is_match("GET /xy") && !full.plugins.block[0].is_match("x"));
        assert_eq!(full.plugins.add_response, ["A: b", "C: d"]);
        assert_eq!((full.plugins.compress, full.plugins.cache), (true, Some(256_000_000)));
        assert!(full.plugins.needs().is_empty() && short.plugins.needs().is_empty());
        assert_eq!(full.resume, Duration::ZERO);
    }

    #[test]
    fn errors_name_the_key() {
        let good = "listen = '127.0.0.1:1'\nnext = 'a:1'\n";
        for (text, place) in [
            ("next = 'a:1'\n", "config.toml:1: key `middlebox.listen`: it is missing"),
            ("listen = '127.0.0.1:1'\n", "config.toml:1: key `middlebox.next`: it is missing"),
            ("listen = 'a'\nnext = 'a:1'\n", "config.toml:2: key `middlebox.listen`"),
            ("listen = '127.0.0.1:1'\nnext = []\n", "config.toml:3: key `middlebox.next`"),
            ("listen = '127.0.0.1:1'\nnext = ['a']\n", "config.toml:3: key `middlebox.next[0]`"),
            (&format!("{good}server = ['a b']\n"), "config.toml:4: key `middlebox.server[0]`"),
            (&format!("{good}block = ['(']\n"), "config.toml:4: key `middlebox.block[0]`"),
            (&format!("{good}add_response = 'x'\n"), "config.toml:4: key `middlebox.add_response`"),
            (&format!("{good}compress = 1\n"), "config.toml:4: key `middlebox.compress`"),
            (&format!("{good}cache = '256'\n"), "config.toml:4: key `middlebox.cache`"),
            (&format!("{good}lenient = 1\n"), "config.toml:4: key `middlebox.lenient`"),
            (&format!("{good}resume = 0\n"), "config.toml:4: key `middlebox.resume`"),
            (&format!("{good}port = 1\n"), "config.toml:4: key `middlebox.port`"),
        ] {
            let error = parse(&format!("[middlebox]\n{text}")).unwrap_err();
            assert!(error.starts_with(place), "{error}");
        }
        let error = parse("middlebox = true\n").unwrap_err();
        assert!(error.starts_with("config.toml:1: key `middlebox`"), "{error}");
    }
}
