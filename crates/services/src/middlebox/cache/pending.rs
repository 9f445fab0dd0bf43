//! Requests on their way whose responses may be stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::target::{Realm, Target};

/// The requests of all sessions that are on their way, so that a response that left its origin
/// before its target changed is not stored afterwards (RFC 9111 section 4.4 leaves this open).
#[derive(Clone, Default)]
pub(super) struct AllPending(Arc<Mutex<Requests>>);

#[derive(Default)]
struct Requests {
    targets: HashMap<Key, State>,
    /// Requests and changes so far; their numbers say what came first.
    events: u64,
}

type Key = (Realm, Target);

#[derive(Default)]
struct State {
    requests: usize,
    /// The number of the target's last change.
    changed: u64,
}

/// A request that was sent on.
pub(super) struct Pending {
    all: AllPending,
    key: Key,
    /// Its number among requests and changes.
    pub(super) sent: u64,
}

impl AllPending {
    /// Notes a request that is sent on now.
    pub(super) fn add(&self, realm: Realm, target: Target) -> Pending {
        let key = (realm, target);
        let requests = &mut *self.lock();
        requests.targets.entry(key.clone()).or_default().requests += 1;
        requests.events += 1;
        Pending { all: self.clone(), key, sent: requests.events }
    }

    /// Notes that a target has changed.
    pub(super) fn change(&self, realm: Realm, target: &Target) {
        let requests = &mut *self.lock();
        requests.events += 1;
        if let Some(state) = requests.targets.get_mut(&(realm, target.clone())) {
            state.changed = requests.events;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    pub(super) fn realm(&self) -> Realm {
        self.key.0
    }

    pub(super) fn target(&self) -> &Target {
        &self.key.1
    }

    /// Returns true if the target has changed since the request was sent.
    pub(super) fn is_outdated(&self) -> bool {
        let requests = self.all.lock();
        requests.targets.get(&self.key).is_some_and(|state| state.changed > self.sent)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let requests = &mut *self.all.lock();
        if let Some(state) = requests.targets.get_mut(&self.key) {
            state.requests -= 1;
            if state.requests == 0 {
                requests.targets.remove(&self.key);
            }
        }
    }
}
