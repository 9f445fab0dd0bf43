//! The slots of peers: one for each identity in each share, however many sessions it has there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::Identity;

use super::share_key::ShareKey;

/// Sessions of one identity in one share: two of a share with UDP, and two that have lost their
/// connection without the node's notice.
const MAX_SESSIONS: usize = 4;

/// A share, and a peer of it.
type Key = (ShareKey, Identity);

/// The slots of all shares together.
pub(super) struct PeerSlots {
    limit: usize,
    /// The number of sessions in each slot that is taken.
    taken: Mutex<HashMap<Key, usize>>,
}

impl PeerSlots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: Mutex::default() })
    }

    /// Returns true if no further slot can be taken.
    pub(super) fn are_taken(&self) -> bool {
        self.lock().len() >= self.limit
    }

    /// Counts a session in the slot of `peer` until the result is dropped. `None` if all slots are
    /// taken, or the slot has as many sessions as one may have.
    pub(super) fn enter(self: &Arc<Self>, share: ShareKey, peer: Identity) -> Option<PeerSlot> {
        let mut taken = self.lock();
        let key = (share, peer);
        let is_full = taken.len() >= self.limit;
        let sessions = match taken.get_mut(&key) {
            Some(sessions) => sessions,
            None if is_full => return None,
            None => taken.entry(key).or_default(),
        };
        if *sessions >= MAX_SESSIONS {
            return None;
        }
        *sessions += 1;
        Some(PeerSlot { slots: self.clone(), key })
    }

    /// The number of slots that are taken.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in a slot.
pub(super) struct PeerSlot {
    slots: Arc<PeerSlots>,
    key: Key,
}

impl Drop for PeerSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        if let Some(sessions) = taken.get_mut(&self.key) {
            *sessions -= 1;
            if *sessions == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_has_one_place_in_a_share_whatever_it_opens() {
        let slots = PeerSlots::new(3);
        let [greedy, other, late] = [1, 2, 3].map(|byte| Identity::from_bytes([byte; 32]));
        let held: Vec<_> =
            (0..10).filter_map(|_| slots.enter(ShareKey::Number(7), greedy)).collect();
        assert_eq!((held.len(), slots.lock().len()), (MAX_SESSIONS, 1));
        let second = slots.enter(ShareKey::Root([8; 32]), greedy);
        let third = slots.enter(ShareKey::Number(7), other);
        assert!(second.is_some() && third.is_some() && slots.are_taken());
        assert!(slots.enter(ShareKey::Number(7), late).is_none());
        // A further session of a peer that is there.
        assert!(slots.enter(ShareKey::Number(7), other).is_some());
        drop(held);
        assert!(!slots.are_taken() && slots.enter(ShareKey::Number(7), late).is_some());
    }
}
