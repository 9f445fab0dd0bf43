//! Rights of identities at this node, and the effects of their changes.

use std::sync::Arc;

use levada_core::wire::Reason;
use levada_core::{Identity, Succession, UnixTime};
use thiserror::Error;

use crate::error::UpError;
use crate::node::Node;
use crate::overrides::Overrides;
use crate::policy::{Changed, Configured, Inputs, PolicyError};
use crate::store::{
    AppliedSuccession, DenialReason, PeerStatus, Store, StoreError, SuccessionError,
};
use levada_config::Config;

const BLOCKED: &str = "this identity is blocked";

impl Node {
    /// Evaluates a peer after its handshake: whether it has a right, so that the limits for
    /// unproved peers do not apply. Reads the database only if neither the lists in memory nor the
    /// configuration decide.
    ///
    /// # Errors
    /// Why its connection must be closed.
    pub(crate) async fn evaluate_peer(&self, identity: &Identity) -> Result<bool, String> {
        if let Some(text) = self.denial_reason(identity) {
            return Err(text.into());
        }
        let now = self.now();
        if *identity == self.identity() || self.rights.policy.allows_any(identity, now) {
            return Ok(true);
        }
        let status = match self.rights.store.listed_status(identity, now) {
            Some(status) => Ok(status),
            None => {
                let identity = *identity;
                self.with_store(move |store| store.peer_status(&identity, now)).await
            }
        };
        match status {
            Ok(PeerStatus::Denied(reason)) => Err(denial_text(reason).into()),
            Ok(PeerStatus::HasRight) => Ok(true),
            Ok(PeerStatus::Unproved) => Ok(false),
            Err(error) => {
                tracing::error!(%error, "could not read the rights of an identity");
                Err("the node could not check this identity: see its log".into())
            }
        }
    }

    /// Why `identity` is denied every operation; `None` if it is not.
    pub(crate) fn denial_reason(&self, identity: &Identity) -> Option<&'static str> {
        if self.rights.policy.blocks(identity) {
            return Some(BLOCKED);
        }
        self.rights.store.denial_reason([identity]).map(denial_text)
    }

    /// Returns true if a right of `identity` to `service` has expired: its own, one by a group, or
    /// one by a rule.
    pub(crate) fn right_has_expired(
        &self,
        identity: &Identity,
        service: &str,
        now: UnixTime,
    ) -> bool {
        self.rights.store.right_has_expired(identity, service, now)
            || self.rights.policy.right_has_expired(identity, service, now)
    }

    /// Reads the lists and the retention of the configuration again, and puts them into effect.
    ///
    /// # Errors
    /// [`UpError`] for a name that is not pinned here, or a group that is not valid; nothing has
    /// changed.
    pub(crate) async fn reload_policy(
        self: &Arc<Self>,
        config: &Config,
        overrides: &Overrides,
    ) -> Result<(), UpError> {
        let node = self.clone();
        let config = config.clone();
        let overrides = overrides.clone();
        let reload = move |store: &Store| {
            let configured = Configured::new(&config, &overrides, node.client.known());
            let configured = configured.map_err(UpError::of)?;
            let blocked = node.replace_inputs(store, |_| configured).map_err(UpError::of)?;
            if let Err(error) = store.set_retention(&config.retention) {
                tracing::error!(%error, "could not change the retention; it stays as it was");
            }
            Ok::<_, UpError>(blocked)
        };
        let blocked = self.with_store(reload).await?;
        self.rights.retention.notify_one();
        self.rights.groups.refresh.notify_one();
        tracing::info!(blocked, "policy read again");
        self.log_notes_about_rules();
        Ok(())
    }

    /// Logs the rules that name no service of this node.
    pub(crate) fn log_notes_about_rules(&self) {
        let names: Vec<&str> = self.services.keys().map(String::as_str).collect();
        for note in self.rights.policy.lists().notes(&self.identity(), &names) {
            tracing::warn!("{note}");
        }
    }

    /// Reads the groups of the store again, for the configuration that `configured` returns, and
    /// puts the lists into effect. Returns the number of blocked identities. To be called in the
    /// blocking pool.
    ///
    /// # Errors
    /// [`ReloadError`]; nothing has changed.
    pub(crate) fn replace_inputs(
        &self,
        store: &Store,
        configured: impl FnOnce(&Configured) -> Configured,
    ) -> Result<usize, ReloadError> {
        let load = |inputs: &mut Inputs| {
            let configured = configured(&inputs.configured);
            *inputs = Inputs::load(configured, store, self.client.known())?;
            Ok::<_, ReloadError>(())
        };
        self.change_lists(store, load, |()| Ok(()))?;
        Ok(self.rights.policy.lists().block.len())
    }

    /// Changes the inputs of the lists as [`Policy::change`](crate::policy::Policy::change), and
    /// puts the new lists into effect. To be called in the blocking pool.
    ///
    /// # Errors
    /// As that call; nothing has changed.
    pub(crate) fn change_lists<T, E: From<PolicyError>>(
        &self,
        store: &Store,
        change: impl FnOnce(&mut Inputs) -> Result<T, E>,
        commit: impl FnOnce(&T) -> Result<(), E>,
    ) -> Result<T, E> {
        let (done, changed) = self.rights.policy.change(change, commit)?;
        self.enforce(store, &changed);
        Ok(done)
    }

    /// Applies a verified succession in the store. From then on, blocks and the rules that deny or
    /// ask concern the new key, too, so that no request of it precedes them. To be called in the
    /// blocking pool.
    ///
    /// # Errors
    /// [`FollowError`]; nothing has changed.
    pub(crate) fn apply_succession(
        &self,
        store: &Store,
        succession: &Succession,
    ) -> Result<AppliedSuccession, FollowError> {
        let pair = (succession.old(), succession.new_identity());
        let now = self.now();
        let is_known = self.rights.policy.hold().rotations.contains(&pair);
        if is_known {
            return Ok(store.apply_succession(succession, now)?);
        }
        let mut applied = AppliedSuccession::default();
        let follow = |inputs: &mut Inputs| {
            inputs.rotations.push(pair);
            Ok::<_, FollowError>(())
        };
        let commit = |(): &()| {
            applied = store.apply_succession(succession, now)?;
            Ok(())
        };
        self.change_lists(store, follow, commit)?;
        Ok(applied)
    }

    /// Puts a change of the lists into effect at open connections: invalidates TLS tickets,
    /// disconnects blocked identities, and closes the idle connections of those that have lost
    /// their last right, because they no longer count as proved. To be called in the blocking pool.
    pub(crate) fn enforce(&self, store: &Store, changed: &Changed) {
        self.forget_sessions();
        for identity in changed.after.block.keys() {
            self.disconnect(identity, BLOCKED);
        }
        let now = self.now();
        let has_lost = |identity: &Identity| {
            changed.before.has_any(identity) && !changed.after.allows_any(identity, now)
        };
        for identity in self.peers.connections.peers().iter().filter(|peer| has_lost(peer)) {
            // If that cannot be read, the connection is closed: the peer may connect again.
            let status = store.peer_status(identity, now).unwrap_or(PeerStatus::Unproved);
            if status == PeerStatus::Unproved && *identity != self.identity() {
                let text = "the right of this identity has ended; connect again";
                self.peers.connections.close_idle(identity, Reason::Denied, text);
            }
        }
    }

    /// Pins a guest under the name in its invitation. A failure is logged, and does not affect the
    /// guest's rights. To be called in the blocking pool.
    pub(crate) fn pin_guest(&self, name: &str, identity: &Identity, now: UnixTime) {
        let known = self.client.known();
        let pinned = match known.by_identity(identity) {
            Ok(Some(pin)) if pin.name == name => return,
            Ok(Some(pin)) => {
                tracing::warn!(name = pin.name, peer = %identity, invited_as = name, "this guest is pinned under another name already");
                return;
            }
            Ok(None) => known.pin(name, identity, &[], now),
            Err(error) => Err(error.into()),
        };
        self.peers.names.read(known);
        if let Err(error) = pinned {
            tracing::warn!(name, peer = %identity, %error, "could not pin a guest under the name in its invitation");
        }
    }

    /// Moves the pin of a rotated key to its successor. Keys without a pin are not stored, because
    /// any peer can present one. To be called in the blocking pool.
    pub(crate) fn move_pin(&self, succession: &Succession) {
        let known = self.client.known();
        let followed = match known.by_identity(&succession.old()) {
            Ok(None) => return,
            Ok(Some(_)) => known.follow(succession).map(drop),
            Err(error) => Err(error.into()),
        };
        self.peers.names.read(known);
        if let Err(error) = followed {
            tracing::warn!(peer = %succession.old(), %error, "could not move the pin of a rotated key to its new key");
        }
    }

    /// Closes the idle connections of an identity that has no right any longer: the limits for
    /// unproved peers apply to its next ones.
    pub(crate) async fn close_unproved(&self, identity: &Identity) {
        if let Ok(false) = self.evaluate_peer(identity).await {
            let text = "the rights of this identity have changed; connect again";
            self.peers.connections.close_idle(identity, Reason::Busy, text);
        }
    }

    /// Closes the connections of `identity`, and ends its runs. In this order, because a client
    /// that receives the reset of its stream first does not report `text`.
    pub(crate) fn disconnect(&self, identity: &Identity, text: &str) {
        self.peers.connections.close(Some(identity), Reason::Denied, text);
        self.peers.sessions.end_identity(identity, Reason::Denied);
    }
}

/// The reason why lists were not replaced.
#[derive(Debug, Error)]
pub(crate) enum ReloadError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a succession was not applied.
#[derive(Debug, Error)]
pub(crate) enum FollowError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Succession(#[from] SuccessionError),
}

fn denial_text(reason: DenialReason) -> &'static str {
    match reason {
        DenialReason::Blocked(_) => BLOCKED,
        DenialReason::Rotated(_) => "this key was rotated away",
    }
}
