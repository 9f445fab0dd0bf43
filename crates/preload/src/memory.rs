//! The memory of rings: what this process takes of the user's account, and what it gives back.
//!
//! A ring that has grown to 1 MiB shrinks to 64 KiB when nothing was sent for some seconds. The end
//! that sends does it, in a thread that comes back from a sleep, or asks the kernel for events.
//! While there are grown rings, no sleep is longer than [`INTERVAL`].

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use levada_ring::{Account, HALF, LARGE};

use crate::connection::{Connection, Outbound, Path};
use crate::latest::Latest;
use crate::table::{self, Entry};
use crate::{shown, spin};

/// Between two looks at all rings. One that has sent nothing in between is quiet.
const INTERVAL: Duration = Duration::from_secs(4);

/// Connections of this process whose outbound ring has grown, as the last look has found and since.
static GROWN: AtomicUsize = AtomicUsize::new(0);
/// When all were last looked at, in [`ticks`](spin::ticks).
static SWEPT: AtomicU32 = AtomicU32::new(0);
/// The user's account, once the monitor has sent it.
static ACCOUNT: Latest<Account> = Latest::new();

/// The monitor has sent the account.
pub fn learn(file: &OwnedFd) {
    if let Ok(account) = Account::open(file) {
        ACCOUNT.set(account);
    }
}

fn take(bytes: u64, count: impl Fn(&levada_ring::records::Totals) -> &AtomicU64) -> bool {
    let taken = ACCOUNT.get().is_none_or(|account| account.take(bytes));
    if let Some(totals) = shown::totals().filter(|_| taken) {
        count(totals).fetch_add(1, Ordering::Relaxed);
    }
    taken
}

fn give_back(bytes: u64, count: impl Fn(&levada_ring::records::Totals) -> &AtomicU64) {
    if let Some(account) = ACCOUNT.get() {
        account.give_back(bytes);
    }
    if let Some(totals) = shown::totals() {
        count(totals).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes the memory of a segment's half. `false` if the user has no more.
pub fn take_segment() -> bool {
    take(HALF, |totals| &totals.rings)
}

/// Takes the memory of a segment in a pool, both halves. `false` if the user has no more.
pub fn take_pooled() -> bool {
    let is_taken = take_segment();
    let both = is_taken && take_segment();
    if is_taken && !both {
        give_back(HALF, |totals| &totals.rings);
    }
    both
}

/// A pool with so many segments was unmapped.
pub fn give_pooled_back(count: u32) {
    (0..2 * count).for_each(|_| give_back(HALF, |totals| &totals.rings));
}

/// The segment of a connection was unmapped.
pub fn give_segment_back(connection: &Connection) {
    give_growth_back(connection);
    give_back(HALF, |totals| &totals.rings);
}

/// Lets a full ring of 64 KiB become one of 1 MiB, if there is memory. Whether it did.
pub fn grow(connection: &Connection, outbound: &mut Outbound<'_>) -> bool {
    let producer = outbound.producer();
    if producer.is_large() || !take(LARGE, |totals| &totals.grown) {
        return false;
    }
    let grown = producer.memory().allocate_large().is_ok() && producer.resize(true);
    connection.has_grown.store(1, Ordering::Relaxed);
    if grown {
        GROWN.fetch_add(1, Ordering::Relaxed);
    } else {
        give_growth_back(connection);
    }
    grown
}

/// A ring is used no more: what it has grown by is given back.
pub fn give_growth_back(connection: &Connection) {
    if connection.has_grown.swap(0, Ordering::Relaxed) == 1 {
        give_back(LARGE, |totals| &totals.grown);
    }
}

/// The longest sleep. `None` if no ring has grown.
pub fn longest_sleep() -> Option<Duration> {
    (GROWN.load(Ordering::Relaxed) > 0).then_some(INTERVAL)
}

/// Shrinks the rings that are quiet, if it is time to look at them. Those of a forked process,
/// which has the same records, are not mapped here: it does the same.
pub fn sweep() {
    if GROWN.load(Ordering::Relaxed) == 0 {
        return;
    }
    let now = spin::ticks();
    let last = SWEPT.load(Ordering::Relaxed);
    let is_time = u128::from(now.wrapping_sub(last)) >= INTERVAL.as_millis();
    let claim = || SWEPT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    if is_time && claim().is_ok() {
        let has_grown = |entry: &Entry| entry.connection.has_grown.load(Ordering::Relaxed) != 0;
        table::entries().filter(has_grown).for_each(|entry| shrink(entry.connection));
        GROWN.store(table::entries().filter(has_grown).count(), Ordering::Relaxed);
    }
}

fn shrink(connection: &Connection) {
    let sent = connection.record().counters.ring_out.load(Ordering::Relaxed);
    if connection.sent_before.swap(sent, Ordering::Relaxed) != sent {
        return;
    }
    let Some(mut outbound) = connection.lock_outbound() else { return };
    if outbound.path() != Path::Ring {
        return;
    }
    let producer = outbound.producer();
    // The reader has read all of it: nothing is left in the part that is given back.
    if producer.is_empty() == Ok(true)
        && producer.resize(false)
        && producer.memory().free_large().is_ok()
    {
        give_growth_back(connection);
    }
}
