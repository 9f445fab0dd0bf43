//! A rule as it is written in a file.

use std::sync::Arc;

use levada_home::known::Known;
use levada_services::brokering::ServicePattern;

use super::requesters::RequestersSource;
use super::rule::{Action, Rule};
use super::terms::Terms;
use crate::reader::{Section, Value};
use crate::{ConfigError, IdentityRef, Subject};

/// Stands for every node.
const ANY: &str = "*";
/// The keys that a rule which denies does not have.
const OF_TERMS: [&str; 4] = ["args", "parameters", "expires", "uses"];

/// A rule with the names of its file, and its position there.
#[derive(Clone, Debug)]
pub struct RuleSource {
    place: Arc<str>,
    requesters: RequestersSource,
    services: Vec<ServiceRef>,
    action: ActionSource,
}

#[derive(Clone, Debug)]
enum ActionSource {
    Allow(Terms),
    Deny,
    Ask(IdentityRef, Terms),
}

/// SERVICE or NODE/SERVICE.
#[derive(Clone, Debug)]
struct ServiceRef {
    /// `None` for every node.
    node: Option<IdentityRef>,
    service: ServicePattern,
}

impl RuleSource {
    /// Reads a rule of a node's configuration, with services of the node only.
    pub(crate) fn read(value: &Value<'_>) -> Result<Self, ConfigError> {
        let section = value.section()?;
        section.only(&[
            "requesters",
            "services",
            "allow",
            "ask",
            "args",
            "parameters",
            "expires",
            "uses",
        ])?;
        let ask = section.value("ask").map(|ask| {
            if let Some(allow) = section.value("allow") {
                return Err(allow.wrong("a rule with `ask` has no `allow`: the entity decides"));
            }
            Ok(ActionSource::Ask(IdentityRef::read(&ask)?, Terms::read_asking(&section)?))
        });
        let action = ask.transpose()?;
        let service = |value: &Value<'_>| ServiceRef::read(value, false);
        Self::with(&section, action, RequestersSource::read, service)
    }

    /// Reads a rule of a policy of `levada approve`, with services of any node.
    pub(super) fn read_of_policy(value: &Value<'_>) -> Result<Self, ConfigError> {
        let section = value.section()?;
        section.only(&[
            "requesters",
            "services",
            "allow",
            "args",
            "parameters",
            "expires",
            "uses",
        ])?;
        let service = |value: &Value<'_>| ServiceRef::read(value, true);
        Self::with(&section, None, RequestersSource::read_of_policy, service)
    }

    fn with(
        section: &Section<'_>,
        action: Option<ActionSource>,
        requesters: impl Fn(&Value<'_>) -> Result<RequestersSource, ConfigError>,
        service: impl Fn(&Value<'_>) -> Result<ServiceRef, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let action = action.map_or_else(|| read_action(section), Ok)?;
        let whom = section.required("requesters", "a list of identities, or [\"*\"]")?;
        let value = section.required("services", "a list of services, or [\"*\"]")?;
        let services = value.each(service)?;
        if services.is_empty() {
            return Err(value.wrong("it needs at least one entry; `*` stands for any characters"));
        }
        Ok(Self {
            place: format!("{}:{}", section.file().display(), section.line()).into(),
            requesters: requesters(&whom)?,
            services,
            action,
        })
    }

    /// The identities that it names: its requesters, and the entity that it asks.
    pub fn identities(&self) -> impl Iterator<Item = &IdentityRef> {
        let requesters = self.requesters.named().filter_map(|subject| match subject {
            Subject::Identity(identity) => Some(identity),
            Subject::Group(_) => None,
        });
        requesters.chain(match &self.action {
            ActionSource::Ask(entity, _) => Some(entity),
            _ => None,
        })
    }

    /// Resolves names to the keys that are pinned now. Groups have no members yet.
    pub(super) fn resolve(&self, known: &Known) -> Result<Rule, ConfigError> {
        let services = self.services.iter().map(|service| service.resolve(known));
        Ok(Rule {
            place: self.place.clone(),
            requesters: self.requesters.resolve(known)?,
            services: services.collect::<Result<_, _>>()?,
            action: match &self.action {
                ActionSource::Allow(terms) => Action::Allow(terms.clone()),
                ActionSource::Deny => Action::Deny,
                ActionSource::Ask(entity, terms) => {
                    Action::Ask(entity.identity(known)?, terms.clone())
                }
            },
        })
    }
}

fn read_action(section: &Section<'_>) -> Result<ActionSource, ConfigError> {
    let allows = section.value("allow").map_or(Ok(true), |value| value.flag())?;
    if allows {
        return Terms::read_allowing(section).map(ActionSource::Allow);
    }
    match OF_TERMS.iter().find_map(|key| section.value(key)) {
        Some(value) => {
            let text = "a rule that does not allow has only `requesters` and `services`";
            Err(value.wrong(text))
        }
        None => Ok(ActionSource::Deny),
    }
}

impl ServiceRef {
    fn read(value: &Value<'_>, with_node: bool) -> Result<Self, ConfigError> {
        let text = value.text("a service, such as \"exec\"")?;
        let (node, service) = match text.rsplit_once('/') {
            Some((ANY, service)) => (None, service),
            Some((node, service)) => (Some(IdentityRef::read_text(value, node)?), service),
            None if with_node => {
                let text = format!("`{text}` is not NODE/SERVICE, such as well/exec or */echo");
                return Err(value.wrong(text));
            }
            None => (None, text),
        };
        let service = ServicePattern::new(None, service)
            .map_err(|error| value.wrong(format!("`{text}`: {error}")))?;
        Ok(Self { node, service })
    }

    fn resolve(&self, known: &Known) -> Result<ServicePattern, ConfigError> {
        let node = self.node.as_ref().map(|node| node.identity(known)).transpose()?;
        Ok(self.service.clone().at(node))
    }
}
