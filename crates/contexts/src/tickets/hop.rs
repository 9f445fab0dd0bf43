//! What a middlebox keeps.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use levada_core::Identity;

use super::lock;
use crate::path::ResumeId;
use crate::schedule::Resume;

/// How many secrets a middlebox keeps for the sessions of one server.
const PER_SERVER: usize = 1024;
/// How many servers a middlebox keeps secrets for.
const MIDDLEBOX_SERVERS: usize = 256;

/// The secrets that a middlebox keeps for later sessions, in memory.
pub struct HopTickets {
    kept: Mutex<HashMap<Identity, VecDeque<Kept>>>,
    lifetime: Duration,
}

struct Kept {
    resume: Resume,
    until: Instant,
}

impl HopTickets {
    /// The longest time that secrets are kept.
    pub const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

    /// Keeps secrets for `lifetime`, at most [`Self::MAX_LIFETIME`]; zero keeps none, so that a
    /// thief of this memory can read no later session.
    pub fn new(lifetime: Duration) -> Self {
        Self { kept: Mutex::default(), lifetime: lifetime.min(Self::MAX_LIFETIME) }
    }

    pub(crate) fn insert(&self, server: Identity, resume: Resume, now: Instant) {
        if self.lifetime.is_zero() {
            return;
        }
        let mut kept = lock(&self.kept);
        forget_expired(&mut kept, now);
        if !kept.contains_key(&server) && kept.len() >= MIDDLEBOX_SERVERS {
            return;
        }
        let of_server = kept.entry(server).or_default();
        if of_server.len() >= PER_SERVER {
            of_server.pop_front();
        }
        of_server.push_back(Kept { resume, until: now + self.lifetime });
    }

    /// Takes the secrets under an id; they are erased, so each is used once.
    pub(crate) fn take(&self, server: &Identity, id: &ResumeId, now: Instant) -> Option<Resume> {
        let mut kept = lock(&self.kept);
        forget_expired(&mut kept, now);
        let of_server = kept.get_mut(server)?;
        let at = of_server.iter().position(|kept| kept.resume.id == *id)?;
        Some(of_server.remove(at)?.resume)
    }

    /// Erases what is too old. Called from time to time, because nothing else may happen for long.
    pub fn forget_expired(&self, now: Instant) {
        forget_expired(&mut lock(&self.kept), now);
    }
}

/// Secrets are stored in the order of their time.
fn forget_expired(kept: &mut HashMap<Identity, VecDeque<Kept>>, now: Instant) {
    kept.retain(|_, of_server| {
        while of_server.front().is_some_and(|first| first.until <= now) {
            of_server.pop_front();
        }
        !of_server.is_empty()
    });
}
