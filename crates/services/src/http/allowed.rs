//! The middleboxes that the configuration of a service names.

use std::collections::BTreeSet;

use levada_contexts::{Path, Right};
use levada_core::Identity;
use levada_service::{AllowedMiddlebox, Refused};
use serde::Deserialize;

use super::allowance::Allowance;
use super::layout::{Layout, Strategy};

/// The longest address of a middlebox, in bytes, as in PATH.
const MAX_ADDRESS: usize = 255;

/// The beginning of a group. The node replaces one by its members, unless it has none.
const GROUP_PREFIX: &str = "group:";

/// A middlebox that clients may lead sessions through, and the most that it may be granted; for a
/// required one, also the least.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MiddleboxOptions {
    identity: Identified,
    #[serde(default)]
    allow: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    address: String,
}

/// An identity in its text form, or a group without members.
enum Identified {
    One(Identity),
    EmptyGroup(String),
}

impl<'de> Deserialize<'de> for Identified {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.starts_with(GROUP_PREFIX) {
            return Ok(Self::EmptyGroup(text));
        }
        text.parse().map(Self::One).map_err(serde::de::Error::custom)
    }
}

/// The middleboxes of a service.
pub(super) struct AllowedMiddleboxes {
    /// In the order of the configuration.
    all: Vec<(AllowedMiddlebox, Allowance)>,
    /// A required group without members: no session can lead through one of them.
    empty: Option<String>,
}

impl AllowedMiddleboxes {
    /// # Errors
    /// A line that names the key and what is wrong.
    pub(super) fn new(options: Vec<MiddleboxOptions>) -> Result<Self, String> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        let mut empty = None;
        for MiddleboxOptions { identity, allow, required, address } in options {
            let identity = match identity {
                Identified::One(identity) => identity,
                Identified::EmptyGroup(group) => {
                    empty = empty.or(required.then_some(group));
                    continue;
                }
            };
            if !seen.insert(identity) {
                return Err(format!("`middlebox`: {identity} is listed twice"));
            }
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if !address.is_empty() && (port.is_none() || address.len() > MAX_ADDRESS) {
                return Err(format!("`address` of {identity}: expected host:port"));
            }
            let allowance = Allowance::new(&allow);
            let allowance = allowance.map_err(|error| format!("`allow` of {identity}: {error}"))?;
            if required && allowance.full_strategy().is_none() {
                let error = "no strategy can grant all of it, and this middlebox is required";
                return Err(format!("`allow` of {identity}: {error}"));
            }
            all.push((AllowedMiddlebox { identity, address, required, allow }, allowance));
        }
        Ok(Self { all, empty })
    }

    /// All of them.
    pub(super) fn list(&self) -> Vec<AllowedMiddlebox> {
        self.all.iter().map(|(one, _)| one.clone()).collect()
    }

    /// Refuses every session if the members of a required group are missing, rather than to lead
    /// it past them.
    fn check_members(&self) -> Result<(), Refused> {
        let Some(group) = &self.empty else { return Ok(()) };
        Err(Refused::NotAccepted(format!(
            "this service requires a middlebox of {group}, which had no members when the node \
             started: its owner adds one, and restarts the node"
        )))
    }

    /// Whether sessions may lead through no middlebox.
    ///
    /// # Errors
    /// [`Refused`] names a required middlebox, and what to do.
    pub(super) fn check_without(&self) -> Result<(), Refused> {
        self.check_members()?;
        match self.all.iter().find(|(one, _)| one.required) {
            None => Ok(()),
            Some((one, _)) => Err(missing(&one.identity)),
        }
    }

    /// Whether a path may be used. Returns its layout.
    ///
    /// # Errors
    /// [`Refused`] names the middlebox and the context.
    pub(super) fn check(&self, path: &Path) -> Result<Layout, Refused> {
        self.check_members()?;
        let layout = Layout::of(path).ok_or_else(|| {
            Refused::NotAccepted("the contexts are not those of `http`".to_owned())
        })?;
        for (hop, middlebox) in (1u8..).zip(&path.hops) {
            let identity = middlebox.party.identity;
            let allowed = self.all.iter().find(|(one, _)| one.identity == identity);
            let Some((one, allowance)) = allowed else {
                return Err(Refused::NotAccepted(format!(
                    "sessions of this service may not lead through the middlebox {identity} ({hop})"
                )));
            };
            for (number, name) in (1u8..).zip(layout.names()) {
                let granted = path.right(number, hop);
                if granted > allowance.most(name) {
                    let right = if granted == Right::Write { "write" } else { "read" };
                    return Err(Refused::NotAccepted(format!(
                        "middlebox {} ({hop}) may not {right} `{name}` here",
                        identity.short()
                    )));
                }
            }
            let by_name = |context: &str| {
                let numbered = (1u8..).zip(layout.names());
                let mut right = numbered.filter(|(_, name)| *name == context);
                right.next().map_or(Right::None, |(number, _)| path.right(number, hop))
            };
            if one.required && !allowance.is_covered(layout.strategy, by_name) {
                return Err(Refused::NotAccepted(format!(
                    "this service requires that middlebox {} ({hop}) is granted all of `{}`; `levada http` \
                     grants that with --strategy {}",
                    identity.short(),
                    one.allow,
                    allowance.full_strategy().map_or("", Strategy::name)
                )));
            }
        }
        let absent = |(one, _): &&(AllowedMiddlebox, Allowance)| {
            one.required && !path.hops.iter().any(|hop| hop.party.identity == one.identity)
        };
        match self.all.iter().find(absent) {
            None => Ok(layout),
            Some((one, _)) => Err(missing(&one.identity)),
        }
    }
}

fn missing(identity: &Identity) -> Refused {
    Refused::NotAccepted(format!(
        "this service requires the middlebox {identity}: name it with `levada http --via`, or accept what the service \
         requires with --accept-via"
    ))
}
