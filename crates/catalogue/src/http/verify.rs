//! Compares a package with its digest once per start, before a response lets browsers and proxies
//! cache it for ever.
//!
//! A short package is verified before its first response, which takes no longer than to send it. A
//! long one is sent at once with `no-store` and verified by a thread of the scheduling class
//! `SCHED_IDLE` (sched(7)), so that the verification does not delay requests. A package that is
//! never requested is never read, so the start takes no longer with many packages.

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

use super::body::BodyFile;
use super::content::Content;
use crate::model::digest_text;

/// Longer packages are verified in the background; in bytes. A shorter one takes about a
/// millisecond.
const MAX_INLINE: u64 = 1024 * 1024;
/// The length of the queue of the thread; each entry is an open file. A package that finds it full
/// is queued at its next request.
const QUEUE: usize = 64;
/// The size of the read buffer, in bytes.
const BUFFER: usize = 128 * 1024;

/// Whether the content of a package has its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not verified yet.
    Unknown,
    /// The content has the digest.
    Sound,
    /// The content has another digest, or cannot be read.
    Damaged,
}

#[derive(Clone, Copy)]
enum State {
    Queued,
    Sound,
    /// With the generation of the store when it was read: a new upload may have repaired it since.
    Damaged(u64),
}

/// A package in the queue of the thread.
struct Task {
    digest: Digest,
    file: Arc<BodyFile>,
    generation: u64,
}

/// Whether a package is verified in the background.
pub(super) fn is_long(content: &Content) -> bool {
    content.length() > MAX_INLINE
}

/// The verification state of all packages.
pub(super) struct Verifier {
    states: Arc<Mutex<HashMap<Digest, State>>>,
    tasks: Option<SyncSender<Task>>,
}

impl Verifier {
    /// Starts the thread, which ends when the verifier is dropped.
    pub fn start() -> Self {
        let states: Arc<Mutex<HashMap<Digest, State>>> = Arc::default();
        let (tasks, queue) = sync_channel(QUEUE);
        let shared = Arc::clone(&states);
        let thread = thread::Builder::new().name("verify".into());
        let tasks = thread.spawn(move || verify_all(&queue, &shared)).is_ok().then_some(tasks);
        Self { states, tasks }
    }

    /// Verifies `content` against `digest`, at the `generation` of the store. Reads a short
    /// package, which blocks; a long one is queued for the thread.
    pub fn check(&self, digest: &Digest, content: &Content, generation: u64) -> Verdict {
        match self.known(digest, generation) {
            Verdict::Unknown => {}
            verdict => return verdict,
        }
        let file = match content {
            Content::Bytes(bytes) => {
                return self.record(digest, sha256(&[bytes]) == *digest, generation);
            }
            Content::File(file, _) | Content::Temporary(file, _) if !is_long(content) => {
                return self.record(digest, is_sound(file, digest), generation);
            }
            Content::File(file, _) | Content::Temporary(file, _) => Arc::clone(file),
        };
        let mut states = lock(&self.states);
        if let Some(tasks) = self.tasks.as_ref().filter(|_| !states.contains_key(digest))
            && tasks.try_send(Task { digest: *digest, file, generation }).is_ok()
        {
            states.insert(*digest, State::Queued);
        }
        Verdict::Unknown
    }

    /// The state of a package, without reading it.
    pub fn known(&self, digest: &Digest, generation: u64) -> Verdict {
        let mut states = lock(&self.states);
        match states.get(digest) {
            Some(State::Sound) => Verdict::Sound,
            Some(State::Damaged(at)) if *at == generation => Verdict::Damaged,
            Some(State::Damaged(_)) => {
                states.remove(digest);
                Verdict::Unknown
            }
            Some(State::Queued) | None => Verdict::Unknown,
        }
    }

    /// Records the result of a verification.
    pub fn record(&self, digest: &Digest, is_sound: bool, generation: u64) -> Verdict {
        record(&self.states, digest, is_sound, generation)
    }
}

fn record(
    states: &Mutex<HashMap<Digest, State>>,
    digest: &Digest,
    is_sound: bool,
    generation: u64,
) -> Verdict {
    if is_sound {
        lock(states).insert(*digest, State::Sound);
        return Verdict::Sound;
    }
    let before = lock(states).insert(*digest, State::Damaged(generation));
    // Logged once, not for every request.
    if !matches!(before, Some(State::Damaged(at)) if at == generation) {
        let digest = digest_text(digest);
        tracing::error!(%digest, "a package is damaged: publish a version with it again to repair it");
    }
    Verdict::Damaged
}

fn verify_all(queue: &Receiver<Task>, states: &Mutex<HashMap<Digest, State>>) {
    // Needs no privilege. If it fails, the thread has the default class.
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    while let Ok(Task { digest, file, generation }) = queue.recv() {
        record(states, &digest, is_sound(&file, &digest), generation);
    }
}

/// Whether the content of a file has the digest. A file that cannot be read is damaged.
fn is_sound(file: &BodyFile, digest: &Digest) -> bool {
    let mut hasher = Hasher::default();
    let mut offset = 0;
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.file().read_at(&mut buffer, offset) {
            Ok(0) => return hasher.finish() == *digest,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                offset += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
