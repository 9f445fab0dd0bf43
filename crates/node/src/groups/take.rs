//! Takes over sets of groups that another node has signed.

use std::time::Duration;

use levada_core::{GroupSet, Identity, UnixTime};

use super::change::GroupsError;
use crate::node::Node;
use crate::policy::{Inputs, RefusedSet, SharedSet};
use crate::store::{GroupSetRefusal, NewGroupSet, Store};

/// The tolerance for a set that was signed by a clock ahead of this one.
pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);

impl Node {
    /// Takes over a signed set of groups. Returns the set if it is new; `None` if it is in effect
    /// already. To be called in the blocking pool.
    ///
    /// # Errors
    /// [`GroupsError`] is the reason of the refusal, which is in the audit log and in `status`;
    /// the set that was taken before stays in effect.
    pub(crate) fn take_groups(
        &self,
        store: &Store,
        text: &str,
    ) -> Result<Option<GroupSet>, GroupsError> {
        let now = self.now();
        let taken = self.try_take_groups(store, text, now);
        match &taken {
            Ok(Some(_)) => self.rights.groups.state().refused = None,
            Err(error) if is_refusal(error) => {
                let hash = GroupSet::hash(text);
                self.record_refusal(store, RefusedSet { time: now, hash, text: error.to_string() });
            }
            _ => {}
        }
        taken
    }

    fn try_take_groups(
        &self,
        store: &Store,
        text: &str,
        now: UnixTime,
    ) -> Result<Option<GroupSet>, GroupsError> {
        let hash = GroupSet::hash(text);
        let is_in_effect = |set: &SharedSet| set.hash == hash;
        if self.rights.policy.hold().shared.as_ref().is_some_and(is_in_effect) {
            return Ok(None);
        }
        let (content, signer) = GroupSet::verify(text)?;
        let new = NewGroupSet {
            signer,
            name: &content.set,
            version: content.version,
            expires: content.expires,
            hash,
            text,
        };
        let take = |inputs: &mut Inputs| {
            self.check_source(inputs, &signer, &content, now)?;
            let is_new = store.check_group_set(&new, now)?;
            if is_new {
                inputs.shared = Some(SharedSet { content: content.clone(), hash });
            }
            Ok::<_, GroupsError>(is_new)
        };
        let commit = |is_new: &bool| match is_new {
            true => Ok::<_, GroupsError>(store.take_group_set(&new, now)?),
            false => Ok(()),
        };
        let (is_new, changed) = self.rights.policy.change(take, commit)?;
        if !is_new {
            return Ok(None);
        }
        self.enforce(store, &changed);
        tracing::info!(set = content.set, version = content.version, "took over groups");
        Ok(Some(content))
    }

    /// Checks that the set is by the identity that the configuration names, of the name there, and
    /// not signed in the future.
    fn check_source(
        &self,
        inputs: &Inputs,
        signer: &Identity,
        content: &GroupSet,
        now: UnixTime,
    ) -> Result<(), GroupsError> {
        let Some(from) = inputs.configured.from else {
            let text = "this node takes over no groups: name the identity that signs them in \
                        config.toml, `[groups]` with `from = \"NAME\"`, and reload the node";
            return Err(GroupsError::Request(text.to_owned()));
        };
        let set = &inputs.configured.set;
        let wrong = |text: String| Err(GroupSetRefusal::Source(text).into());
        if *signer != from {
            return wrong(format!("{signer} has signed it, and `from` in [groups] is {from}"));
        }
        if let Some(reason) = self.denial_reason(signer) {
            return wrong(format!("{signer} has signed it: {reason}"));
        }
        if content.set != *set {
            return wrong(format!("it is the set `{}`, and this node uses `{set}`", content.set));
        }
        if content.time > now.after(CLOCK_TOLERANCE) {
            return wrong("it was signed in the future: compare the clocks".to_owned());
        }
        Ok(())
    }

    /// Records a refusal. The same set again has no further entry in the audit log, because the
    /// other node may be asked for it each minute.
    fn record_refusal(&self, store: &Store, refused: RefusedSet) {
        let before = self.rights.groups.state().refused.replace(refused.clone());
        let RefusedSet { time, hash, text } = refused;
        if before.is_some_and(|before| before.hash == hash && before.text == text) {
            return;
        }
        tracing::warn!(%text, "refused groups");
        let from = self.rights.policy.hold().configured.from;
        if let Err(error) = store.record_refused_set(from.as_ref(), &text, time) {
            tracing::error!(%error, "could not record that groups were refused");
        }
    }
}

/// Returns true if the set is the reason of the error.
fn is_refusal(error: &GroupsError) -> bool {
    match error {
        GroupsError::Set(_) | GroupsError::Policy(_) => true,
        GroupsError::Refused(refusal) => !matches!(refusal, GroupSetRefusal::Store(_)),
        GroupsError::Request(_) | GroupsError::Absent(_) | GroupsError::Store(_) => false,
    }
}
