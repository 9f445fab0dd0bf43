//! Who may request what: the node itself, the configuration, and what invitations opened.

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use levada_core::Identity;
use levada_core::wire::Reason;

use crate::config::Config;
use crate::store::Barred;

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
    pub(crate) fn new(config: &Config, overrides: &Overrides) -> Self {
        Self(ArcSwap::from_pointee(Lists::new(config, overrides)))
    }

    fn allows_any(&self, identity: &Identity) -> bool {
        self.0.load().allow.iter().any(|(allowed, _)| allowed == identity)
    }

    fn allows(&self, identity: &Identity, service: &str) -> bool {
        self.0.load().allow.iter().any(|(allowed, services)| {
            allowed == identity && services.as_ref().is_none_or(|set| set.contains(service))
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
    fn new(config: &Config, overrides: &Overrides) -> Self {
        let mut allow: Vec<_> = overrides.allow.iter().map(|identity| (*identity, None)).collect();
        allow.extend(config.allow.iter().map(|entry| {
            let services = entry.services.as_ref();
            (entry.identity, services.map(|list| list.iter().cloned().collect()))
        }));
        Self { allow, block: config.block.iter().copied().collect() }
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

    /// Whether `identity` may request anything at all: then it need not prove a right.
    pub(crate) async fn has_right(&self, identity: &Identity) -> bool {
        if *identity == self.identity() || self.policy.allows_any(identity) {
            return true;
        }
        let identity = *identity;
        let allowed = self.with_store(move |store| store.allowed_any(&identity)).await;
        allowed.unwrap_or_else(|error| {
            tracing::error!(%error, "could not read the allow-list");
            false
        })
    }

    /// Whether `identity` may request `service`.
    pub(crate) async fn may_request(&self, identity: &Identity, service: &str) -> bool {
        if *identity == self.identity() || self.policy.allows(identity, service) {
            return true;
        }
        let (identity, service) = (*identity, service.to_owned());
        let allowed = self.with_store(move |store| store.allowed(&identity, &service)).await;
        allowed.unwrap_or_else(|error| {
            tracing::error!(%error, "could not read the allow-list");
            false
        })
    }

    /// Reads the lists of the configuration again: tickets of before are void, and whoever is blocked
    /// now is disconnected.
    pub(crate) fn reload_policy(&self, config: &Config, overrides: &Overrides) {
        let lists = Lists::new(config, overrides);
        let blocked = lists.block.clone();
        self.policy.0.store(lists.into());
        self.tls.forget_sessions();
        for identity in &blocked {
            self.disconnect(identity, "this identity is blocked");
        }
        tracing::info!(blocked = blocked.len(), "policy read again");
    }

    /// Ends the sessions and connections of `identity`.
    pub(crate) fn disconnect(&self, identity: &Identity, text: &str) {
        self.live.end_identity(identity, Reason::Denied);
        self.connections.close(Some(identity), Reason::Denied, text);
    }
}
