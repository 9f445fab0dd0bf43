//! Whether a package is what its digest says: found out once per start, before a browser or proxy is told to keep it for
//! ever.
//!
//! A short package is read and compared before its first answer, which takes no longer than to send it. A long one is
//! answered at once, with `no-store`, and compared by a thread of the class `SCHED_IDLE` (sched(7)), that
//! steps aside for who reads. A package that no client asks for is never read: a start costs nothing, however many packages there are.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use levada_core::{Digest, Hasher, sha256};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use super::content::{Content, Held};
use crate::model::digest_text;

/// What is longer is compared in the background, in bytes: less takes about a millisecond.
const SHORT: u64 = 1024 * 1024;
/// How many packages wait for the thread, each an open file; further ones are taken up when they are asked for again.
const WAITING: usize = 64;
/// How much is read at a time, in bytes.
const PART: usize = 128 * 1024;

/// What is known of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not yet: it may be damaged.
    Unknown,
    /// It is what its digest says.
    Sound,
    /// It is not.
    Damaged,
}

#[derive(Clone, Copy)]
enum State {
    Waiting,
    Sound,
    /// The state of the store when it was read: stored once more, it may be whole again.
    Damaged(u64),
}

/// A package that waits for the thread.
struct Task {
    digest: Digest,
    file: Arc<Held>,
    stamp: u64,
}

/// Whether a package is compared in the background.
pub(super) fn is_long(content: &Content) -> bool {
    content.length() > SHORT
}

/// What is known of all packages.
pub(super) struct Verifier {
    states: Arc<Mutex<HashMap<Digest, State>>>,
    tasks: Option<SyncSender<Task>>,
}

impl Verifier {
    /// Starts its thread, which ends when this is dropped.
    pub fn start() -> Self {
        let states: Arc<Mutex<HashMap<Digest, State>>> = Arc::default();
        let (tasks, waiting) = sync_channel(WAITING);
        let shared = Arc::clone(&states);
        let thread = thread::Builder::new().name("verify".into());
        let tasks = thread.spawn(move || verify_all(&waiting, &shared)).is_ok().then_some(tasks);
        Self { states, tasks }
    }

    /// What is known of the package that `content` is said to be, with the store in the state `stamp`. May read a short
    /// one, which blocks; a long one is read later.
    pub fn check(&self, digest: &Digest, content: &Content, stamp: u64) -> Verdict {
        match self.known(digest, stamp) {
            Verdict::Unknown => {}
            verdict => return verdict,
        }
        let file = match content {
            Content::Bytes(bytes) => {
                return self.note(digest, sha256(&[bytes]) == *digest, stamp);
            }
            Content::File(file, _) | Content::Made(file, _) if !is_long(content) => {
                return self.note(digest, is_sound(file, digest), stamp);
            }
            Content::File(file, _) | Content::Made(file, _) => Arc::clone(file),
        };
        let mut states = lock(&self.states);
        if let Some(tasks) = self.tasks.as_ref().filter(|_| !states.contains_key(digest))
            && tasks.try_send(Task { digest: *digest, file, stamp }).is_ok()
        {
            states.insert(*digest, State::Waiting);
        }
        Verdict::Unknown
    }

    /// What is known without reading anything.
    pub fn known(&self, digest: &Digest, stamp: u64) -> Verdict {
        let mut states = lock(&self.states);
        match states.get(digest) {
            Some(State::Sound) => Verdict::Sound,
            Some(State::Damaged(at)) if *at == stamp => Verdict::Damaged,
            Some(State::Damaged(_)) => {
                states.remove(digest);
                Verdict::Unknown
            }
            Some(State::Waiting) | None => Verdict::Unknown,
        }
    }

    /// Notes what was found out elsewhere.
    pub fn note(&self, digest: &Digest, is_sound: bool, stamp: u64) -> Verdict {
        note(&self.states, digest, is_sound, stamp)
    }
}

fn note(
    states: &Mutex<HashMap<Digest, State>>,
    digest: &Digest,
    is_sound: bool,
    stamp: u64,
) -> Verdict {
    if is_sound {
        lock(states).insert(*digest, State::Sound);
        return Verdict::Sound;
    }
    let before = lock(states).insert(*digest, State::Damaged(stamp));
    // Once, however often it is asked for.
    if !matches!(before, Some(State::Damaged(at)) if at == stamp) {
        let digest = digest_text(digest);
        tracing::error!(%digest, "a package is damaged: publish a version with it once more to heal it");
    }
    Verdict::Damaged
}

fn verify_all(waiting: &Receiver<Task>, states: &Mutex<HashMap<Digest, State>>) {
    // Everybody may do that. Where it fails the thread is like any other.
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    while let Ok(Task { digest, file, stamp }) = waiting.recv() {
        note(states, &digest, is_sound(&file, &digest), stamp);
    }
}

/// Reads all of a file. What the disk does not give back is damaged for every client.
fn is_sound(held: &Held, digest: &Digest) -> bool {
    let (mut hasher, mut at) = (Hasher::default(), 0);
    let mut part = vec![0; PART];
    loop {
        match held.file().read_at(&mut part, at) {
            Ok(0) => return hasher.finish() == *digest,
            Ok(count) => {
                hasher.update(&part[..count]);
                at += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
