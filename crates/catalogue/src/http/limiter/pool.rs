//! The permits of one kind, and which connection is evicted when none is left.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

/// The state that a connection shares with the limiter.
pub(in crate::http) struct Activity {
    /// Since when the connection is idle, in milliseconds since the server started, plus one; 0
    /// while it is busy.
    pub(super) idle_since: AtomicU64,
    task: Mutex<Task>,
}

/// The task of a connection.
enum Task {
    /// None is spawned yet.
    None,
    Spawned(AbortHandle),
    /// The connection is evicted: its task is aborted.
    Evicted,
}

impl Activity {
    /// The state of a connection that is idle since `idle_since`.
    pub(super) fn new(idle_since: u64) -> Arc<Self> {
        Arc::new(Self { idle_since: AtomicU64::new(idle_since), task: Mutex::new(Task::None) })
    }

    /// The connection has a task: it is aborted if the connection is evicted, or was. So a
    /// connection that is served need not look whether it is evicted.
    pub fn spawned(&self, task: AbortHandle) {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Task::Evicted => task.abort(),
            _ => *known = Task::Spawned(task),
        }
    }

    fn evict(&self) {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Task::Spawned(task) = std::mem::replace(&mut *known, Task::Evicted) {
            task.abort();
        }
    }
}

/// The connections with one kind of permit.
pub(super) struct Pool {
    limit: usize,
    per_source: usize,
    pub held: HashMap<u64, Held>,
    /// The number of connections of each source.
    pub sources: HashMap<IpAddr, usize>,
}

/// A connection in a pool.
pub(super) struct Held {
    source: IpAddr,
    activity: Arc<Activity>,
}

impl Pool {
    /// A pool of `limit` permits, of which one source may have `per_source`.
    pub fn new(limit: usize, per_source: usize) -> Self {
        Self { limit, per_source, held: HashMap::new(), sources: HashMap::new() }
    }

    fn count(&self, source: IpAddr) -> usize {
        self.sources.get(&source).copied().unwrap_or(0)
    }

    /// Whether a permit is left for `source`.
    pub fn has_room(&self, source: IpAddr) -> bool {
        self.held.len() < self.limit && self.count(source) < self.per_source
    }

    /// Adds the connection `id`.
    pub fn put(&mut self, id: u64, source: IpAddr, activity: &Arc<Activity>) {
        self.held.insert(id, Held { source, activity: Arc::clone(activity) });
        *self.sources.entry(source).or_default() += 1;
    }

    /// Removes the connection `id`, if it was not evicted.
    pub fn remove(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        if let Some(count) = self.sources.get_mut(&held.source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&held.source);
            }
        }
        Some(held)
    }

    /// Evicts a connection in favour of one of `source`. True if that made room.
    pub fn evict_for(&mut self, source: IpAddr) -> bool {
        let candidate = if self.count(source) >= self.per_source {
            self.oldest_idle(|other| other == source)
        } else if self.held.len() >= self.limit {
            self.eviction_candidate(source)
        } else {
            None
        };
        let Some(held) = candidate.and_then(|id| self.remove(id)) else { return false };
        held.activity.evict();
        true
    }

    /// The connection to evict when the total limit is reached: an idle one of the source with the
    /// most connections, or else of any source. If none is idle, the oldest of a source that has
    /// more than twice as many as `newcomer` would have.
    fn eviction_candidate(&self, newcomer: IpAddr) -> Option<u64> {
        let (most, count) = self.sources.iter().max_by_key(|(_, count)| **count)?;
        let idle = self.oldest_idle(|source| source == *most);
        idle.or_else(|| self.oldest_idle(|_| true)).or_else(|| {
            let own = self.count(newcomer) + 1;
            let of_most = self.held.iter().filter(|(_, held)| held.source == *most);
            of_most.map(|(id, _)| *id).min().filter(|_| *count > 2 * own)
        })
    }

    fn oldest_idle(&self, of: impl Fn(IpAddr) -> bool) -> Option<u64> {
        let idle = self.held.iter().filter(|(_, held)| of(held.source)).filter_map(|(id, held)| {
            let since = held.activity.idle_since.load(Ordering::Relaxed);
            (since > 0).then_some((Reverse(since), Reverse(*id)))
        });
        idle.max().map(|(_, Reverse(id))| id)
    }
}
