//! Who may request what: the node itself, the configuration, and what invitations opened.

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use levada_core::wire::Reason;
use levada_core::{Identity, Succession, UnixTime};

use crate::config::{Config, ConfigError};
use crate::offer::SHELL;
use crate::store::{Barred, Store};
use levada_client::known::Known;

use super::{Node, Overrides};

/// The part of the policy that the configuration and the command line give; it can be read again
/// while the node runs.
pub struct Policy(ArcSwap<Lists>);

#[derive(Default)]
struct Lists {
    /// Identities with the services they may request; `None` stands for every service.
    allow: Vec<(Identity, Option<BTreeSet<String>>)>,
    block: BTreeSet<Identity>,
}

impl Policy {
    /// # Errors
    /// [`ConfigError`] names a name in the configuration that is not pinned here.
    pub(crate) fn new(
        config: &Config,
        overrides: &Overrides,
        known: &Known,
        store: &Store,
    ) -> Result<Self, ConfigError> {
        Ok(Self(ArcSwap::from_pointee(Lists::new(config, overrides, known, store)?)))
    }

    fn allows_any(&self, identity: &Identity) -> bool {
        self.0.load().allow.iter().any(|(allowed, _)| allowed == identity)
    }

    /// With `by_name`, an entry for every service does not count.
    fn allows(&self, identity: &Identity, service: &str, by_name: bool) -> bool {
        self.0.load().allow.iter().any(|(allowed, services)| {
            let listed = services.as_ref().map_or(!by_name, |set| set.contains(service));
            allowed == identity && listed
        })
    }

    /// Whether the configuration says anything about `identity`.
    pub(crate) fn names(&self, identity: &Identity) -> bool {
        let lists = self.0.load();
        lists.block.contains(identity) || lists.allow.iter().any(|(allowed, _)| allowed == identity)
    }

    pub(crate) fn blocks(&self, identity: &Identity) -> bool {
        self.0.load().block.contains(identity)
    }
}

impl Lists {
    /// Names stand for the keys that are pinned under them now. A block holds for the keys that have taken the place of
    /// a blocked one, too: the owner may have read the old one in the log.
    fn new(
        config: &Config,
        overrides: &Overrides,
        known: &Known,
        store: &Store,
    ) -> Result<Self, ConfigError> {
        let mut allow: Vec<_> = overrides.allow.iter().map(|identity| (*identity, None)).collect();
        for entry in &config.allow {
            let services = entry.services.as_ref().map(|list| list.iter().cloned().collect());
            allow.push((entry.identity.identity(known)?, services));
        }
        let block = config.block.iter().map(|who| who.identity(known));
        let mut block: BTreeSet<Identity> = block.collect::<Result<_, _>>()?;
        let rotated = store.policy().map(|policy| policy.dead).unwrap_or_else(|error| {
            tracing::error!(%error, "could not read which keys were rotated");
            Vec::new()
        });
        while let Some((_, new)) =
            rotated.iter().find(|(old, new)| block.contains(old) && !block.contains(new))
        {
            block.insert(*new);
        }
        Ok(Self { allow, block })
    }
}

impl Node {
    /// Why `identity` may not even use a finished handshake; `None` if it may.
    pub(crate) async fn shut_out(&self, identity: &Identity) -> Option<String> {
        if self.policy.blocks(identity) {
            return Some("this identity is blocked".into());
        }
        let identity = *identity;
        match self.with_store(move |store| store.barred(&[identity])).await {
            Ok(None) => None,
            Ok(Some(Barred::Blocked(_))) => Some("this identity is blocked".into()),
            Ok(Some(Barred::Dead(_))) => Some("this key was rotated away".into()),
            Err(error) => {
                tracing::error!(%error, "could not look an identity up");
                Some("the node cannot check who you are".into())
            }
        }
    }

    /// Whether `identity` may request anything at all, holds a session, or has started one: then it need not prove a right.
    pub(crate) async fn has_right(&self, identity: &Identity) -> bool {
        if *identity == self.identity() || self.policy.allows_any(identity) {
            return true;
        }
        let identity = *identity;
        let allowed = self.with_store(move |store| store.has_right(&identity)).await;
        allowed.unwrap_or_else(|error| {
            tracing::error!(%error, "could not read the allow-list");
            false
        })
    }

    /// Whether `identity` may request `service`.
    pub(crate) async fn may_request(&self, identity: &Identity, service: &str) -> bool {
        let by_name = self.must_be_named(service);
        if *identity == self.identity() || self.policy.allows(identity, service, by_name) {
            return true;
        }
        let (identity, service) = (*identity, service.to_owned());
        let allowed = self.with_store(move |store| match by_name {
            true => store.allowed_by_name(&identity, &service),
            false => store.allowed(&identity, &service),
        });
        let allowed = allowed.await;
        allowed.unwrap_or_else(|error| {
            tracing::error!(%error, "could not read the allow-list");
            false
        })
    }

    /// Whether a right to every service does not include this one: a shell is all that the node's user has, so an
    /// invitation that was meant for `echo` must not give it away.
    pub(crate) fn must_be_named(&self, service: &str) -> bool {
        self.services.get(service).is_some_and(|offered| offered.description.kind == SHELL)
    }

    /// Reads the lists of the configuration again: tickets of before are void, and identities that are
    /// blocked now are disconnected.
    ///
    /// # Errors
    /// [`ConfigError`] names a name that is not pinned here; nothing has changed then.
    pub(crate) fn reload_policy(
        &self,
        config: &Config,
        overrides: &Overrides,
    ) -> Result<(), ConfigError> {
        let lists = Lists::new(config, overrides, &self.known, &self.store)?;
        let blocked = lists.block.clone();
        self.policy.0.store(lists.into());
        self.tls.forget_sessions();
        for identity in &blocked {
            self.disconnect(identity, "this identity is blocked");
        }
        tracing::info!(blocked = blocked.len(), "policy read again");
        Ok(())
    }

    /// Pins a guest under the name that its invitation gave it. What stands against that is in the log: the guest
    /// is let in all the same.
    pub(crate) fn name_guest(&self, name: &str, identity: &Identity, now: UnixTime) {
        let named = match self.known.by_identity(identity) {
            Ok(Some(pin)) => {
                tracing::info!(peer = %identity, name = pin.name, "this guest has a name here already");
                return;
            }
            Ok(None) => self.known.pin(name, identity, &[], now),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = named {
            tracing::warn!(peer = %identity, name, %error, "a guest was not pinned under its name");
        }
    }

    /// Lets the names of a key that was rotated stand for its successor. Keys without a name are not noted: any peer
    /// may tell of one.
    pub(crate) fn rename_key(&self, succession: &Succession) {
        let pinned = self.known.by_identity(&succession.old());
        let followed = match pinned {
            Ok(None) => return,
            Ok(Some(_)) => self.known.follow(succession).map(drop),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = followed {
            tracing::warn!(peer = %succession.old(), %error, "a name does not follow its rotated key");
        }
    }

    /// Ends the sessions and connections of `identity`.
    pub(crate) fn disconnect(&self, identity: &Identity, text: &str) {
        self.live.end_identity(identity, Reason::Denied);
        self.connections.close(Some(identity), Reason::Denied, text);
    }
}
