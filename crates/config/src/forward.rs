//! The forwards of the configuration.

use levada_services::forward::Address;

use super::reader::{Section, Value};
use super::{ConfigError, catalogue};
use levada_services::forward::client::{Plan, Words, listen_address};

const KEYS: [&str; 6] = ["service", "target", "listen", "udp", "reverse", "socks"];

/// A `[[forward]]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSource {
    /// The node, as in the configuration.
    pub node: String,
    /// The name of its service.
    pub service: String,
    /// The listeners and targets.
    pub plan: Plan,
    target: Vec<String>,
}

impl ForwardSource {
    /// NODE/SERVICE.
    pub fn at(&self) -> String {
        format!("{}/{}", self.node, self.service)
    }

    /// The targets of connections, as in the configuration.
    pub fn target(&self) -> String {
        self.target.join(", ")
    }

    pub(super) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let section = value.section()?;
        section.only(&KEYS)?;
        let at = section.required("service", "NODE/SERVICE, such as \"box/forward\"")?;
        let target = catalogue::service_target(&at)?;
        let (node, service) = target.rsplit_once('/').ok_or_else(|| at.not("NODE/SERVICE"))?;
        let targets = section.value("target").map(|value| texts(&value)).transpose()?;
        let targets = targets.unwrap_or_default();
        let words = Words {
            listen: section
                .value("listen")
                .map(|value| listen(&value))
                .transpose()?
                .unwrap_or_default(),
            udp: is_set(&section, "udp")?,
            reverse: is_set(&section, "reverse")?,
            socks: is_set(&section, "socks")?,
            target: targets.clone(),
        };
        if [words.udp, words.reverse, words.socks].iter().filter(|one| **one).count() > 1 {
            return Err(value.wrong("it is one of `udp`, `reverse` and `socks`"));
        }
        let plan = Plan::new(words).map_err(|error| value.wrong(error.text))?;
        Ok(Self { node: node.to_owned(), service: service.to_owned(), plan, target: targets })
    }
}

fn is_set(section: &Section<'_>, name: &str) -> Result<bool, ConfigError> {
    section.value(name).map_or(Ok(false), |value| value.flag())
}

fn texts(value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
    let text =
        |value: &Value<'_>| Ok(value.text("an address such as \"db.example:5432\"")?.to_owned());
    if value.is_text() { Ok(vec![text(value)?]) } else { value.each(text) }
}

fn listen(value: &Value<'_>) -> Result<Vec<Address>, ConfigError> {
    let address = |value: &Value<'_>| {
        let text = value.text("[ADDRESS:]PORT or unix:/PATH")?;
        listen_address(text).map_err(|error| value.wrong(error))
    };
    if value.is_text() { Ok(vec![address(value)?]) } else { value.each(address) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;
    use levada_services::forward::client::Mode;

    #[test]
    fn a_forward_has_the_options_of_the_command_line() {
        let parse = |text: &str| Config::parse(Path::new("config.toml"), text);
        let text = "[[forward]]\nservice = 'box/forward'\ntarget = 'db:1'\nlisten = '5432'\n\
                    [[forward]]\nservice = 'box/forward'\nsocks = true\nlisten = ['1080', 'unix:/a']\n";
        let forwards = parse(text).unwrap().forwards;
        assert_eq!(
            (forwards[0].at().as_str(), forwards[0].target().as_str()),
            ("box/forward", "db:1")
        );
        assert!(
            matches!(forwards[0].plan.mode, Mode::To(_)) && forwards[1].plan.mode == Mode::Socks
        );
        assert_eq!(forwards[1].plan.listen.len(), 2);
        for (wrong, place) in [
            ("target = 'db:1'", "config.toml:1: key `forward[0].service`: it is missing"),
            ("service = 'box'\ntarget = 'db:1'", "config.toml:2: key `forward[0].service`"),
            ("service = 'box/f'", "config.toml:1: key `forward[0]`: say where connections go"),
            ("service = 'box/f'\ntarget = 'db'", "config.toml:1: key `forward[0]`"),
            (
                "service = 'box/f'\ntarget = 'db:1'\nlisten = 'x'",
                "config.toml:4: key `forward[0].listen`",
            ),
            (
                "service = 'box/f'\ntarget = 'db:1'\nudp = true\nreverse = true",
                "config.toml:1: key `forward[0]`",
            ),
            ("service = 'box/f'\nport = 1", "config.toml:3: key `forward[0].port`"),
        ] {
            let error = parse(&format!("[[forward]]\n{wrong}\n")).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        }
    }
}
