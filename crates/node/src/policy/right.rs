//! A right of the configuration, the command line or of a group.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_config::GROUP_PREFIX;
use levada_core::{Identity, UnixTime};

/// The origin of a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    CommandLine,
    /// A place in the configuration.
    Configuration(Arc<str>),
    /// The owner has given it to a group by `access allow`.
    Owner,
}

/// A right of an identity that is not in the table of single rights in the store.
#[derive(Clone, Debug)]
pub(crate) struct ListedRight {
    pub(crate) identity: Identity,
    /// The services; `None` for every service.
    pub(crate) services: Option<Arc<BTreeSet<String>>>,
    pub(crate) origin: Origin,
    /// The group that gives it.
    pub(crate) group: Option<Arc<str>>,
    /// The time from which it permits nothing, and to which its sessions last at most.
    pub(crate) expires: UnixTime,
    /// The time from which it permits nothing because the group of another node has expired.
    pub(crate) member_until: UnixTime,
}

impl ListedRight {
    pub(crate) fn is_valid(&self, now: UnixTime) -> bool {
        now < self.expires.min(self.member_until)
    }

    /// Returns true if it is for `service`. With `by_name`, a right to every service is not.
    pub(super) fn covers(&self, service: &str, by_name: bool) -> bool {
        self.services.as_ref().map_or(!by_name, |set| set.contains(service))
    }

    /// Returns true if it may be for `service`, or for any if `None`.
    pub(crate) fn may_cover(&self, service: Option<&str>) -> bool {
        service.is_none_or(|service| self.covers(service, false))
    }

    /// The origin for lists: `configuration`, `command line`, or the group.
    pub(crate) fn source(&self) -> String {
        match (&self.group, &self.origin) {
            (Some(group), _) => format!("{GROUP_PREFIX}{group}"),
            (None, Origin::CommandLine) => "command line".to_owned(),
            (None, Origin::Configuration(_)) => "configuration".to_owned(),
            (None, Origin::Owner) => "owner".to_owned(),
        }
    }

    /// The place at which it is given.
    pub(crate) fn place(&self) -> String {
        match &self.origin {
            Origin::CommandLine => "--allow".to_owned(),
            Origin::Configuration(place) => place.to_string(),
            Origin::Owner => "levada access".to_owned(),
        }
    }
}
