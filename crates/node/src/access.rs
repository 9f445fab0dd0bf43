//! What an identity may do at this node, and what follows when that changes.

use levada_core::wire::Reason;
use levada_core::{Identity, Succession, UnixTime};

use crate::config::{Config, ConfigError};
use crate::node::Node;
use crate::overrides::Overrides;
use crate::services::SHELL;
use crate::store::Barred;

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
        let blocked = self.policy.reload(config, overrides, &self.known, &self.store)?;
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
