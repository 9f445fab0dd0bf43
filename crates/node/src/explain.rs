//! Explains which rule or right decides about a request: of a configuration, without a node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use levada_config::{Config, ServiceSource};
use levada_core::{Identity, UnixTime};
use levada_home::Home;
use levada_home::known::Known;

use crate::check;
use crate::decide::{Permitted, Ruling, Source};
use crate::error::UpError;
use crate::overrides::Overrides;
use crate::policy::{self, Inputs, ListedRight, Origin, Policy};
use crate::services::{SHELL, defaults, is_catalogue, is_shell};
use crate::store::{ChosenRight, Examined, utc};

pub use crate::wanted::Wanted;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is permitted.
    Yes,
    /// It is refused.
    No,
    /// An entity decides.
    Ask,
}

/// The answer to a request, and what decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The answer.
    pub answer: Answer,
    /// The rule or right that decides, with its place if it is in a file.
    pub text: String,
}

/// The rights, blocks and rules of a configuration.
pub struct Configured {
    policy: Policy,
    database: Database,
    node: Identity,
    names: BTreeMap<Identity, String>,
    services: BTreeSet<String>,
    shells: BTreeSet<String>,
    unknown_groups: BTreeSet<String>,
}

impl Answer {
    /// One lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Ask => "ask",
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Explained {
    pub(crate) fn new(answer: Answer, text: impl Into<String>) -> Self {
        Self { answer, text: text.into() }
    }
}

impl Configured {
    /// Reads the rights of `config` for the node `node` of `home`. Names are resolved with the pins
    /// of `known`. Groups of the owner, blocks and rotations are read from the home's database, if
    /// no node uses it.
    ///
    /// # Errors
    /// [`UpError`] for a name that is not pinned, or a group that is not valid.
    pub fn new(
        home: &Home,
        config: &Config,
        known: &Known,
        node: Identity,
    ) -> Result<Self, UpError> {
        let names = known.names().unwrap_or_default().into_iter();
        let (services, shells) = services_of(config);
        let configured = policy::Configured::new(config, &Overrides::default(), known);
        let configured = configured.map_err(UpError::of)?;
        let uses: BTreeSet<String> =
            configured.uses().filter_map(|subject| subject.group()).map(str::to_owned).collect();
        let database = database(home);
        let inputs = match &database {
            Database::Unknown => Inputs::unchecked(configured, None),
            Database::Absent => Inputs::unchecked(configured, Some(Vec::new())),
            Database::Read(database) => Inputs::examined(configured, database),
        };
        let policy = Policy::new(inputs).map_err(UpError::of)?;
        let lists = policy.lists();
        let is_unknown = |name: &String| lists.groups.members(name).is_none();
        Ok(Self {
            unknown_groups: uses.into_iter().filter(is_unknown).collect(),
            database,
            policy,
            node,
            names: names.map(|pin| (pin.identity, pin.name)).collect(),
            services,
            shells,
        })
    }

    /// Returns true if the configuration has this service, or the node has it without one.
    pub fn has_service(&self, service: &str) -> bool {
        self.services.contains(service)
    }

    /// The groups to which the configuration refers, and whose members only the node knows.
    pub fn unknown_groups(&self) -> &BTreeSet<String> {
        &self.unknown_groups
    }

    /// Explains a request of `identity`.
    pub fn explain(&self, identity: &Identity, wanted: &Wanted<'_>, now: UnixTime) -> Explained {
        if let Some(explained) = blocked(&self.policy, identity) {
            return explained;
        }
        if let Database::Read(database) = &self.database
            && let Some(reason) = database.denial_reason(identity)
        {
            return Explained::new(Answer::No, reason.to_string());
        }
        if !self.has_service(wanted.service) {
            return Explained::new(Answer::No, "the configuration has no such service");
        }
        let name = |identity: &Identity| {
            self.names.get(identity).cloned().unwrap_or_else(|| identity.to_string())
        };
        explain(&self.decide(identity, wanted, now), wanted.expires, name)
    }

    /// Decides as [`Node`](crate::node::Node) does, without rights of the store.
    fn decide(&self, identity: &Identity, wanted: &Wanted<'_>, now: UnixTime) -> Ruling {
        if *identity == self.node {
            return Ruling::Permitted(Permitted::of_node());
        }
        let by_name = self.shells.contains(wanted.service);
        let asked = wanted.asked_by(identity, &self.node, by_name);
        if let Some(decision) = self.policy.rule(&asked, now) {
            return Ruling::by_rule(decision);
        }
        let right = self.policy.right(identity, (wanted.service, by_name), now);
        right.map_or(Ruling::NoRight, |right| Ruling::Permitted(Permitted::by_list(right)))
    }
}

/// The database of the home.
enum Database {
    /// A running node uses it, or it cannot be read.
    Unknown,
    /// There is none yet.
    Absent,
    Read(Box<Examined>),
}

fn database(home: &Home) -> Database {
    let Ok(_held) = check::lock(home) else { return Database::Unknown };
    match check::database(home) {
        Err(_) => Database::Unknown,
        Ok(None) => Database::Absent,
        Ok(Some(database)) => Database::Read(Box::new(database)),
    }
}

/// The names of the services of a configuration, and of those that are shells.
fn services_of(config: &Config) -> (BTreeSet<String>, BTreeSet<String>) {
    let name = |source: &ServiceSource| source.name.clone();
    let mut services: BTreeSet<String> = config.services.iter().map(name).collect();
    let shells = config.services.iter().filter(|source| is_shell(source));
    let mut shells: BTreeSet<String> = shells.map(name).collect();
    let has_catalogue = config.services.iter().any(is_catalogue);
    for kind in defaults(config, false, has_catalogue) {
        if services.insert(kind.to_owned()) && kind == SHELL {
            shells.insert(kind.to_owned());
        }
    }
    (services, shells)
}

/// The answer to every request of `identity` if the configuration blocks it.
pub(crate) fn blocked(policy: &Policy, identity: &Identity) -> Option<Explained> {
    let place = policy.place_of_block(identity)?;
    Some(Explained::new(Answer::No, format!("{place}: `block` refuses everything")))
}

/// Explains the decision about a request with this expiry. `name` shows an identity.
pub(crate) fn explain(
    ruling: &Ruling,
    expires: Option<UnixTime>,
    name: impl Fn(&Identity) -> String,
) -> Explained {
    match ruling {
        Ruling::Denied(place) => Explained::new(Answer::No, format!("{place}: the rule denies it")),
        Ruling::NoRight => Explained::new(Answer::No, "no rule matches, and no right permits it"),
        Ruling::AskForAnother(entity) => {
            let text = format!("{} must approve it: its holder must request it", name(entity));
            Explained::new(Answer::No, text)
        }
        Ruling::Ask(entity, permitted) => {
            let place = match &permitted.source {
                Source::Rule(place) => format!("{place}: "),
                _ => String::new(),
            };
            Explained::new(Answer::Ask, format!("{place}the rule asks {}", name(entity)))
        }
        Ruling::Permitted(permitted) => {
            let text = match &permitted.source {
                Source::Own => "it is the identity of the node itself".to_owned(),
                Source::Rule(place) => format!("{place}: the rule allows it"),
                Source::Listed(right) => listed(right),
                Source::Store(right) => stored(right),
            };
            let is_earlier = expires.is_some_and(|expires| permitted.until < expires);
            let end = match is_earlier {
                true => {
                    format!("; the session expires with the right, at {}", utc(permitted.until))
                }
                false => String::new(),
            };
            Explained::new(Answer::Yes, text + &end)
        }
    }
}

/// The text about a right of the store.
fn stored(right: &ChosenRight) -> String {
    let uses = right.uses.map(|uses| format!(", with {uses} uses left")).unwrap_or_default();
    format!("a right of origin `{}` gives it{uses}", right.source.as_str())
}

/// The text about a right of the configuration, the command line or a group.
fn listed(right: &ListedRight) -> String {
    let to = match &right.group {
        Some(group) => format!(" to group:{group}"),
        None => String::new(),
    };
    match &right.origin {
        Origin::CommandLine => "command line: `--allow` gives the right".to_owned(),
        Origin::Configuration(place) => format!("{place}: `allow` gives the right{to}"),
        Origin::Owner => format!("the owner has given the right{to} by `levada access`"),
    }
}
