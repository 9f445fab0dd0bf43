//! A bound on the memory of all connections whose peers have not proved a right, shared fairly
//! among their sources.
//!
//! The driver does not read from a connection whose source has used up its share, until memory is
//! freed: the bytes wait in the kernel, and then at the peer, and cost no processor time. A
//! connection that waits too long is closed. If all connections together exceed the bound, the
//! largest connection of the largest source is closed at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The fixed memory of a connection, in bytes, in addition to what it reports: state of TLS, tasks,
/// tables.
const CONNECTION_OVERHEAD: usize = 8 << 10;
/// What every connection may hold, in bytes, whatever its source holds: enough for a usual
/// operation.
const MIN_PER_CONNECTION: usize = 64 << 10;
/// The bound divided by this is shared among sources; the rest serves [`MIN_PER_CONNECTION`].
const SHARED_DIVISOR: usize = 2;
/// The share of a source is computed for at least this many sources.
const MIN_SOURCES: usize = 4;

/// Memory, in bytes, for connections whose peers have not proved a right.
pub struct Budget {
    limit: usize,
    wait_timeout: Duration,
    code: u64,
    closed: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    used: usize,
    /// The most that was used since the last [`Budget::take_peak`].
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
    connection: Weak<dyn Accounted>,
}

/// A connection whose memory may count against a [`Budget`].
pub trait Accounted: Send + Sync {
    /// Closes the connection with `code` where its protocol has one, and frees all unread data.
    fn abandon(&self, code: u64, reason: &str);
}

/// The account of one connection in a [`Budget`]; dropping it releases its bytes.
pub struct Account {
    budget: Arc<Budget>,
    source: IpAddr,
    number: u64,
}

impl Budget {
    /// A budget of `limit` bytes. A connection that is evicted, or has waited for memory for
    /// `wait_timeout` in total, is closed with `code`.
    pub fn new(limit: usize, wait_timeout: Duration, code: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            wait_timeout,
            code,
            closed: AtomicU64::new(0),
            table: Mutex::default(),
        })
    }

    /// The bytes in use now: allocated, not only filled.
    pub fn used(&self) -> usize {
        self.lock().used
    }

    /// The most bytes in use at a time since the last call.
    pub fn take_peak(&self) -> usize {
        let mut table = self.lock();
        let used = table.used;
        std::mem::replace(&mut table.peak, used)
    }

    /// How many connections were closed because of the budget.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Opens the account of a connection, with no bytes yet.
    pub fn register<C: Accounted + 'static>(
        self: &Arc<Self>,
        source: IpAddr,
        connection: &Arc<C>,
    ) -> Account {
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        let connection: Weak<C> = Arc::downgrade(connection);
        let held = Held { bytes: 0, connection };
        table.sources.entry(source).or_default().connections.insert(number, held);
        Account { budget: self.clone(), source, number }
    }

    fn close(&self, connection: &dyn Accounted) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        let text = "too much unread data of peers that have not proved a right";
        connection.abandon(self.code, text);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Sets what the connection holds to `bytes`, without its fixed memory; returns whether it may
    /// read more. The caller must not hold the lock of any connection.
    pub fn update(&self, bytes: usize) -> bool {
        let bytes = bytes + CONNECTION_OVERHEAD;
        let mut table = self.budget.lock();
        table.set(self.source, self.number, bytes);
        let evicted = table.evict(self.budget.limit);
        let share = self.budget.limit / SHARED_DIVISOR / table.sources.len().max(MIN_SOURCES);
        let used = table.sources.get(&self.source).map_or(0, |source| source.used);
        drop(table);
        evicted.iter().for_each(|connection| self.budget.close(connection.as_ref()));
        bytes <= MIN_PER_CONNECTION || used <= share
    }

    /// Closes the connection if `time`, its total wait for memory, reaches the limit.
    pub fn close_if_waited(&self, time: Duration, connection: &dyn Accounted) {
        if time >= self.budget.wait_timeout {
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
    /// Sets what a connection holds; does nothing if it was removed.
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

    /// Removes connections until the rest holds at most `limit`.
    fn evict(&mut self, limit: usize) -> Vec<Arc<dyn Accounted>> {
        let mut evicted = Vec::new();
        while self.used > limit
            && let Some(held) = self.evict_one()
        {
            evicted.extend(held.connection.upgrade());
        }
        evicted
    }

    /// Removes the largest connection of the largest source.
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
    use crate::shared::Shared;

    const LIMIT: usize = 4 << 20;
    const SHARE: usize = LIMIT / SHARED_DIVISOR / MIN_SOURCES;

    fn connection() -> Arc<Shared> {
        let config = ClientConfig::new(&SecretKey::generate(&SystemRandom).unwrap()).unwrap();
        let channel = Connection::client(&config, None, Options::default(), Instant::now());
        Shared::new(channel.unwrap())
    }

    fn source(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn only_a_source_beyond_its_share_must_wait() {
        let budget = Budget::new(LIMIT, Duration::MAX, 7);
        let connections = [connection(), connection(), connection()];
        let over_share = [0, 1].map(|n| budget.register(source(1), &connections[n]));
        let within_share = budget.register(source(2), &connections[2]);
        assert!(over_share[0].update(SHARE / 2));
        assert!(!over_share[1].update(SHARE));
        assert!(!over_share[0].update(SHARE / 2));
        // A connection may hold its minimum even if its source exceeds the share.
        assert!(over_share[0].update(MIN_PER_CONNECTION - CONNECTION_OVERHEAD));
        assert!(within_share.update(SHARE - CONNECTION_OVERHEAD));
        assert_eq!(budget.used(), 2 * SHARE + MIN_PER_CONNECTION + CONNECTION_OVERHEAD);
        drop((over_share, within_share));
        assert_eq!((budget.used(), budget.closed()), (0, 0));
        assert!(budget.take_peak() >= 2 * SHARE);
        assert_eq!(budget.take_peak(), 0);
        assert!(budget.lock().sources.is_empty());
    }

    #[test]
    fn beyond_the_limit_the_largest_connection_of_the_largest_source_is_closed() {
        let budget = Budget::new(LIMIT, Duration::MAX, 7);
        let connections: Vec<_> = (0..5).map(|_| connection()).collect();
        let held = [(1, LIMIT / 8), (2, LIMIT / 4), (1, LIMIT / 3), (1, LIMIT / 6)];
        let accounts: Vec<_> = held
            .iter()
            .zip(&connections)
            .map(|((number, bytes), connection)| {
                let account = budget.register(source(*number), connection);
                account.update(*bytes);
                account
            })
            .collect();
        let newest = budget.register(source(3), &connections[4]);
        newest.update(LIMIT / 5);
        let ended: Vec<_> = connections.iter().map(|one| one.lock().ended.is_some()).collect();
        assert_eq!(ended, [false, false, true, false, false]);
        assert!(budget.used() <= LIMIT);
        // A closed connection is not counted again.
        accounts[2].update(LIMIT);
        assert!(budget.used() <= LIMIT);
        assert_eq!(budget.closed(), 1);
    }
}
