//! How many exchanges the connections of each listener have had: whether leaving TCP will be worth
//! its time.
//!
//! The monitor makes the page; all processes of the user note the ends of their connections in it,
//! and both ends of a new connection read it, so that they decide the same. Wrong numbers there
//! offer connections early, late, or not.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::page::{Atomics, LENGTH, Page};
use crate::sealed::OpenError;

/// Connections are counted by the binary logarithm of their exchanges: the last bucket has all from
/// 128 on.
const BUCKETS: usize = 8;
/// When one bucket has as many, all are halved: newer connections count more.
const MAX_COUNT: u32 = 64;
/// Connections from which on the numbers are used.
const MIN_KNOWN: u32 = 4;
/// An upgrade must be followed by as many exchanges to be worth its time, with a margin: it takes
/// as long as some of them by TCP.
const WORTH: u32 = 16;
/// One in as many connections that are offered may end sooner.
const MAX_EARLY: u32 = 10;
/// The exchange in which a connection is offered while nothing is known of its listener.
const UNKNOWN: u32 = 4;
/// Listeners are looked for in as many places.
const PROBES: usize = 4;

#[repr(C)]
struct Listener {
    /// A hash of the address; 0 for a free place.
    key: AtomicU64,
    counts: [AtomicU32; BUCKETS],
}

const LISTENERS: usize = LENGTH as usize / size_of::<Listener>();

#[repr(C)]
struct Listeners([Listener; LISTENERS]);

// SAFETY: atomics only, and not longer than a page.
#[allow(unsafe_code)]
unsafe impl Atomics for Listeners {}

/// The history of a user's listeners.
pub struct History(Page<Listeners>);

impl History {
    /// Makes the page, and its file, which is handed to processes.
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2) and mmap(2).
    pub fn create() -> Result<(OwnedFd, Self), Errno> {
        Page::create("levada-history").map(|(file, page)| (file, Self(page)))
    }

    /// Maps the page of the monitor.
    ///
    /// # Errors
    /// [`OpenError::NotASegment`] if it could be shortened later, or has another length.
    pub fn open(file: impl AsFd) -> Result<Self, OpenError> {
        Page::open(file).map(Self)
    }

    /// The exchange in which a connection of this listener is to be offered.
    pub fn offer_at(&self, listener: SocketAddr) -> u32 {
        let Some(listener) = self.find(listener) else { return UNKNOWN };
        decide(&listener.counts.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Notes a connection that has ended after so many exchanges.
    pub fn note(&self, listener: SocketAddr, exchanges: u32) {
        let bucket = exchanges.max(1).ilog2().min(BUCKETS as u32 - 1) as usize;
        let listener = self.find_or_take(listener);
        if listener.counts[bucket].fetch_add(1, Ordering::Relaxed) >= MAX_COUNT - 1 {
            for count in &listener.counts {
                count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    fn places(&self, key: u64) -> impl Iterator<Item = &Listener> {
        let all = &self.0.get().0;
        (0..PROBES).map(move |probe| &all[(key as usize).wrapping_add(probe) % LISTENERS])
    }

    fn find(&self, address: SocketAddr) -> Option<&Listener> {
        let key = key(address);
        self.places(key).find(|place| place.key.load(Ordering::Acquire) == key)
    }

    /// Its place, or one that was free, or the first one, which another listener had.
    fn find_or_take(&self, address: SocketAddr) -> &Listener {
        let key = key(address);
        let take = |place: &&Listener| {
            let taken = place.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok() || taken == Err(key)
        };
        if let Some(place) = self.places(key).find(take) {
            return place;
        }
        let place = &self.0.get().0[key as usize % LISTENERS];
        place.key.store(key, Ordering::Release);
        place.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        place
    }
}

/// The same in all processes.
fn key(address: SocketAddr) -> u64 {
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    (address.ip().to_canonical(), address.port()).hash(&mut hasher);
    (hasher.finish() ^ hasher.finish() >> 32).max(1)
}

/// The first exchange after which nearly all connections, of those that have come so far, last long
/// enough.
fn decide(counts: &[u32; BUCKETS]) -> u32 {
    let known = counts.iter().fold(0_u32, |sum, count| sum.saturating_add(*count));
    if known < MIN_KNOWN {
        return UNKNOWN;
    }
    let is_worth = |from: &usize| {
        let offer_at = 1_u32 << from;
        let last = |bucket: usize| (3_u32 << bucket) / 2;
        let mut all = 0_u32;
        let mut early = 0_u32;
        for (bucket, count) in counts.iter().enumerate().skip(*from) {
            all = all.saturating_add(*count);
            if last(bucket) < offer_at + WORTH {
                early = early.saturating_add(*count);
            }
        }
        early.saturating_mul(MAX_EARLY) <= all
    };
    // No connection has had more exchanges than the last bucket begins with.
    let from = (1..BUCKETS - 1).find(is_worth).unwrap_or(BUCKETS - 1);
    1 << from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn after(lengths: &[u32]) -> u32 {
        let (file, monitor) = History::create().unwrap();
        let process = History::open(&file).unwrap();
        lengths.iter().cycle().take(40).for_each(|length| process.note(address(80), *length));
        assert_eq!(monitor.offer_at(address(81)), UNKNOWN);
        monitor.offer_at(address(80))
    }

    #[test]
    fn connections_are_offered_when_they_have_outlived_the_short_ones() {
        for (lengths, offer_at) in [
            (&[1][..], 2),
            (&[2], 4),
            (&[3], 4),
            (&[5], 8),
            (&[10], 16),
            (&[20], 2),
            (&[50], 2),
            (&[100], 2),
            (&[3, 100], 4),
            (&[10, 1000], 16),
            (&[1, 2, 4, 8, 16, 32, 64, 128], 32),
        ] {
            assert_eq!(after(lengths), offer_at, "{lengths:?}");
        }
    }

    #[test]
    fn newer_connections_count_more() {
        let (_, history) = History::create().unwrap();
        (0..1000).for_each(|_| history.note(address(80), 3));
        (0..200).for_each(|_| history.note(address(80), 200));
        (0..200).for_each(|_| history.note(address(80), 200));
        assert_eq!(history.offer_at(address(80)), 2);
    }

    #[test]
    fn many_listeners_share_the_page() {
        let (_, history) = History::create().unwrap();
        (0..10_000).for_each(|port| history.note(address(port), 3));
        assert_eq!(history.offer_at(address(9999)), UNKNOWN);
        let any = |bits: u64| u32::try_from(bits % (1 << 32)).unwrap();
        bolero::check!().with_type::<[u64; BUCKETS]>().for_each(|counts| {
            let offer_at = decide(&counts.map(any));
            assert!((2..=128).contains(&offer_at));
        });
    }
}
