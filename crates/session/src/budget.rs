//! A bound on the memory of all connections whose peers have not proved a right, shared fairly among their sources.
//!
//! A connection whose source has used up its share is not read from until memory was given back: the bytes wait in the
//! kernel, and then at the peer, and cost no processor time. One that waits for too long is closed. If all of them
//! together still exceed the bound, the connection that holds most, of the source that holds most, is closed at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::shared::Shared;

/// What a connection takes beside what is counted, in bytes: state of TLS, tasks, tables.
const CONNECTION: usize = 8 << 10;
/// What every connection may hold, in bytes, whatever its source holds: enough for a usual operation.
const LITTLE: usize = 64 << 10;
/// At most this part of the bound is shared among sources; the rest is for what every connection may hold.
const SHARED: usize = 2;
/// The share of a source is as if there were at least so many.
const SOURCES: usize = 4;

/// Memory, in bytes, for connections whose peers have not proved a right.
pub struct Budget {
    limit: usize,
    patience: Duration,
    code: u64,
    closed: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    used: usize,
    /// The most that was used since it was last asked for.
    peak: usize,
    next: u64,
    sources: HashMap<IpAddr, Source>,
}

#[derive(Default)]
struct Source {
    used: usize,
    connections: HashMap<u64, Held>,
}

struct Held {
    bytes: usize,
    connection: Weak<Shared>,
}

/// What one connection holds of a [`Budget`]; dropping it gives that back.
pub(crate) struct Account {
    budget: Arc<Budget>,
    source: IpAddr,
    number: u64,
}

impl Budget {
    /// At most `limit` bytes. A connection that exceeds it, or has waited for memory for `patience` in all, is closed with
    /// `code`.
    pub fn new(limit: usize, patience: Duration, code: u64) -> Arc<Self> {
        Arc::new(Self { limit, patience, code, closed: AtomicU64::new(0), table: Mutex::default() })
    }

    /// The bytes that are held now, counted as what is allocated.
    pub fn used(&self) -> usize {
        self.lock().used
    }

    /// The most bytes that were held at a time since the last call.
    pub fn take_peak(&self) -> usize {
        let mut table = self.lock();
        let used = table.used;
        std::mem::replace(&mut table.peak, used)
    }

    /// How many connections were closed for it.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Enters a connection that holds nothing yet.
    pub(crate) fn enter(self: &Arc<Self>, source: IpAddr, connection: &Arc<Shared>) -> Account {
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        let held = Held { bytes: 0, connection: Arc::downgrade(connection) };
        table.sources.entry(source).or_default().connections.insert(number, held);
        Account { budget: self.clone(), source, number }
    }

    fn close(&self, connection: &Shared) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        let text = "too much unread data of peers that have not proved a right";
        connection.lock().abandon(self.code, text);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// The connection holds `bytes` now, beside its own state; whether it may read on. The caller must not hold the lock
    /// of any connection.
    pub(crate) fn hold(&self, bytes: usize) -> bool {
        let bytes = bytes + CONNECTION;
        let mut table = self.budget.lock();
        table.set(self.source, self.number, bytes);
        let evicted = table.evict(self.budget.limit);
        let share = self.budget.limit / SHARED / table.sources.len().max(SOURCES);
        let used = table.sources.get(&self.source).map_or(0, |source| source.used);
        drop(table);
        evicted.iter().for_each(|connection| self.budget.close(connection));
        bytes <= LITTLE || used <= share
    }

    /// The connection has waited for memory for so long in all; it is closed if that is too long.
    pub(crate) fn waited(&self, time: Duration, connection: &Shared) {
        if time >= self.budget.patience {
            self.budget.close(connection);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.lock().remove(self.source, self.number);
    }
}

impl Table {
    /// Sets what a connection holds; one that was removed holds nothing any more.
    fn set(&mut self, source: IpAddr, number: u64, bytes: usize) {
        let Some(source) = self.sources.get_mut(&source) else { return };
        let Some(held) = source.connections.get_mut(&number) else { return };
        self.used = self.used - held.bytes + bytes;
        source.used = source.used - held.bytes + bytes;
        held.bytes = bytes;
        self.peak = self.peak.max(self.used);
    }

    fn remove(&mut self, source: IpAddr, number: u64) -> Option<Held> {
        let of_source = self.sources.get_mut(&source)?;
        let held = of_source.connections.remove(&number)?;
        of_source.used -= held.bytes;
        self.used -= held.bytes;
        if of_source.connections.is_empty() {
            self.sources.remove(&source);
        }
        Some(held)
    }

    /// Removes connections until all together hold at most `limit`.
    fn evict(&mut self, limit: usize) -> Vec<Arc<Shared>> {
        let mut evicted = Vec::new();
        while self.used > limit
            && let Some(held) = self.evict_one()
        {
            evicted.extend(held.connection.upgrade());
        }
        evicted
    }

    /// Removes the connection that holds most, of the source that holds most.
    fn evict_one(&mut self) -> Option<Held> {
        let (&source, busiest) = self.sources.iter().max_by_key(|(_, source)| source.used)?;
        let (&number, _) = busiest.connections.iter().max_by_key(|(_, held)| held.bytes)?;
        self.remove(source, number)
    }
}

#[cfg(test)]
mod tests {
    use levada_channel::{ClientConfig, Connection, Options};
    use levada_core::{SecretKey, SystemRandom};
    use std::time::Instant;

    use super::*;

    const LIMIT: usize = 4 << 20;
    const SHARE: usize = LIMIT / SHARED / SOURCES;

    fn connection() -> Arc<Shared> {
        let config = ClientConfig::new(&SecretKey::generate(&SystemRandom).unwrap()).unwrap();
        let channel = Connection::client(&config, None, Options::default(), Instant::now());
        Shared::new(channel.unwrap())
    }

    fn source(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn a_source_waits_beyond_its_share_and_no_other_does() {
        let budget = Budget::new(LIMIT, Duration::MAX, 7);
        let connections = [connection(), connection(), connection()];
        let greedy = [0, 1].map(|n| budget.enter(source(1), &connections[n]));
        let honest = budget.enter(source(2), &connections[2]);
        assert!(greedy[0].hold(SHARE / 2));
        assert!(!greedy[1].hold(SHARE));
        assert!(!greedy[0].hold(SHARE / 2));
        // What every connection may hold, it may hold even so.
        assert!(greedy[0].hold(LITTLE - CONNECTION));
        assert!(honest.hold(SHARE - CONNECTION));
        assert_eq!(budget.used(), 2 * SHARE + LITTLE + CONNECTION);
        drop((greedy, honest));
        assert_eq!((budget.used(), budget.closed()), (0, 0));
        assert!(budget.take_peak() >= 2 * SHARE);
        assert_eq!(budget.take_peak(), 0);
        assert!(budget.lock().sources.is_empty());
    }

    #[test]
    fn beyond_the_limit_the_one_that_holds_most_of_the_source_that_holds_most_is_closed() {
        let budget = Budget::new(LIMIT, Duration::MAX, 7);
        let connections: Vec<_> = (0..5).map(|_| connection()).collect();
        let held = [(1, LIMIT / 8), (2, LIMIT / 4), (1, LIMIT / 3), (1, LIMIT / 6)];
        let accounts: Vec<_> = held
            .iter()
            .zip(&connections)
            .map(|((number, bytes), connection)| {
                let account = budget.enter(source(*number), connection);
                account.hold(*bytes);
                account
            })
            .collect();
        let newest = budget.enter(source(3), &connections[4]);
        newest.hold(LIMIT / 5);
        let ended: Vec<_> = connections.iter().map(|one| one.lock().ended.is_some()).collect();
        assert_eq!(ended, [false, false, true, false, false]);
        assert!(budget.used() <= LIMIT);
        // What was closed is not counted again.
        accounts[2].hold(LIMIT);
        assert!(budget.used() <= LIMIT);
        assert_eq!(budget.closed(), 1);
    }
}
