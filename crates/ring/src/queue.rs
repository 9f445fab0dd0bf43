//! The connections of one client that wait for a listener, in the first page of their
//! [`Pool`](crate::Pool).
//!
//! Several processes may have the listener, after a fork: each has a *slot* of the page. Each
//! segment has a word, which says whether its connection waits, or which slot has taken it. The
//! client makes it wait, and one compare-and-exchange takes it or undoes it: a process that is
//! killed leaves nothing half done, and holds no lock. No other process has the page, so that a
//! hostile one harms its own connections only.

use crate::Side;
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::death;

/// Segments of a pool: connections of a client to a listener at a time. More go by the kernel.
#[cfg(not(loom))]
pub const SEGMENTS: usize = 128;
/// Loom explores every interleaving, so that its pools are small.
#[cfg(loom)]
pub const SEGMENTS: usize = 2;

/// Processes that may have a listener, one after the other or at a time. No slot is used twice.
#[cfg(not(loom))]
pub const SLOTS: usize = 128;
/// As above.
#[cfg(loom)]
pub const SLOTS: usize = 2;

/// The lowest bit of a generation in a word.
const GENERATION: u32 = 16;
/// The lowest bit of a slot.
const SLOT: u32 = 8;
/// Of the two lowest bits: the connection waits, was taken, or was undone.
const WAITING: u64 = 1;
const TAKEN: u64 = 2;
const UNDONE: u64 = 3;
const KIND: u64 = 3;
/// In the word of a slot: its process takes connections.
const TAKES: u64 = 1 << 32;

/// The way in which a process takes connections of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// The number that marks are set for.
    pub mark: u16,
    /// Connections of one client that may wait. With 0, no further ones are let in.
    pub backlog: u8,
}

/// A connection that waits, unless it is taken or undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The segment that it is in.
    pub segment: u8,
    word: u64,
}

/// The shared words of a process that has the listener.
#[repr(C)]
#[derive(Default)]
struct Slot {
    /// By the process: 0 if it takes no connections, else an [`Open`].
    open: AtomicU64,
    /// A bit for each bell by which a thread of the process waits for connections.
    bells: AtomicU32,
    /// By the client: 1 once it can wake the process, and sees its end.
    is_known: AtomicU32,
}

/// The shared words of a client and the processes that have a listener.
#[repr(C)]
pub struct Queue {
    slots: [Slot; SLOTS],
    /// By the client: connections that it has made.
    made: AtomicU64,
    /// By the client: all segments that it has ever used are below this number.
    used: AtomicU32,
    /// By the client: which connection of two was made first.
    orders: [AtomicU32; SEGMENTS],
    /// The word of each segment.
    words: [AtomicU64; SEGMENTS],
    /// By each side: 1 once a fork has shared connections of it.
    has_forked: [AtomicU32; 2],
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot::default()),
            made: AtomicU64::new(0),
            used: AtomicU32::new(0),
            orders: std::array::from_fn(|_| AtomicU32::new(0)),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            has_forked: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl Queue {
    fn slot(&self, slot: u8) -> &Slot {
        &self.slots[usize::from(slot) % SLOTS]
    }

    /// Shows how the process of a slot takes connections.
    pub fn open(&self, slot: u8, Open { mark, backlog }: Open) {
        let word = TAKES | u64::from(mark) << 16 | u64::from(backlog);
        self.slot(slot).open.store(word, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The process of a slot no longer takes connections. After this, it looks for what waits: a
    /// client that has made a connection looks once more whether a slot is [open](Self::find), and
    /// one of the two sees what the other has written.
    pub fn close(&self, slot: u8) {
        self.slot(slot).open.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Returns how the process of a slot takes connections, if it does.
    pub fn find(&self, slot: u8) -> Option<Open> {
        fence(Ordering::SeqCst);
        let word = self.slot(slot).open.load(Ordering::SeqCst);
        (word & TAKES != 0).then_some(Open { mark: (word >> 16) as u16, backlog: word as u8 })
    }

    /// Notes that the client knows the process of a slot, which takes its connections from then on.
    pub fn know(&self, slot: u8) {
        self.slot(slot).is_known.store(1, Ordering::Release);
    }

    /// Returns true if the client knows the process of a slot.
    pub fn is_known(&self, slot: u8) -> bool {
        self.slot(slot).is_known.load(Ordering::Acquire) != 0
    }

    /// Returns true if no slot is open.
    pub fn is_closed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.slots.iter().all(|slot| slot.open.load(Ordering::SeqCst) & TAKES == 0)
    }

    /// The connections that wait.
    pub fn count(&self) -> usize {
        let waits = |word: &&AtomicU64| word.load(Ordering::Relaxed) & KIND == WAITING;
        self.used().iter().filter(waits).count()
    }

    /// The words of the segments that were ever used: most clients use few.
    fn used(&self) -> &[AtomicU64] {
        let used = self.used.load(Ordering::Relaxed) as usize;
        &self.words[..used.min(SEGMENTS)]
    }

    /// Lets the connection of a segment wait, by the client. `order` is higher than that of each
    /// connection that it has made before.
    pub fn push(&self, (segment, generation): (u8, u64), order: u32) -> Waiting {
        let place = usize::from(segment) % SEGMENTS;
        let word = generation << GENERATION | WAITING;
        self.orders[place].store(order, Ordering::Relaxed);
        self.used.fetch_max(place as u32 + 1, Ordering::Relaxed);
        death::point();
        // The server sees the rings as they were reset.
        self.words[place].store(word, Ordering::Release);
        death::point();
        self.made.fetch_add(1, Ordering::Release);
        Waiting { segment, word }
    }

    /// The connection that has waited longest, of those in segments that `is_usable` accepts.
    pub fn first(&self, is_usable: impl Fn(u8) -> bool) -> Option<Waiting> {
        let mut first: Option<Waiting> = None;
        let mut earliest = 0;
        // A loop over numbers: an iterator of pairs takes 20 times as long.
        for (word, segment) in self.used().iter().zip(0_u8..) {
            let word = word.load(Ordering::Acquire);
            if word & KIND != WAITING || !is_usable(segment) {
                continue;
            }
            let order = self.orders[usize::from(segment)].load(Ordering::Relaxed);
            if first.is_none() || order.wrapping_sub(earliest).cast_signed() < 0 {
                earliest = order;
                first = Some(Waiting { segment, word });
            }
        }
        first
    }

    /// Takes a connection, by the process of a slot. Returns false if it was taken or undone before.
    pub fn take(&self, waiting: Waiting, slot: u8) -> bool {
        self.settle(waiting, TAKEN | u64::from(slot) << SLOT)
    }

    /// Undoes a connection, by its client. Returns false if it was taken before.
    pub fn undo(&self, waiting: Waiting) -> bool {
        self.settle(waiting, UNDONE)
    }

    fn settle(&self, waiting: Waiting, settled: u64) -> bool {
        let word = &self.words[usize::from(waiting.segment) % SEGMENTS];
        let settled = waiting.word >> GENERATION << GENERATION | settled;
        death::point();
        word.compare_exchange(waiting.word, settled, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The slot whose process has taken a connection. `None` if it waits, or was undone.
    pub fn taker(&self, (segment, generation): (u8, u64)) -> Option<u8> {
        let word = self.words[usize::from(segment) % SEGMENTS].load(Ordering::Acquire);
        let is_it = word >> GENERATION == generation << GENERATION >> GENERATION;
        (word & KIND == TAKEN && is_it).then_some((word >> SLOT) as u8)
    }

    /// Undoes a connection by its place, by its client. Returns false if it does not wait.
    pub fn undo_waiting(&self, (segment, generation): (u8, u64)) -> bool {
        self.undo(Waiting { segment, word: generation << GENERATION | WAITING })
    }

    /// Notes that a fork has given connections of a side to several processes.
    pub fn note_fork(&self, side: Side) {
        self.has_forked[side.outbound()].store(1, Ordering::SeqCst);
    }

    /// Returns true if a fork has given connections of a side to several processes.
    pub fn has_forked(&self, side: Side) -> bool {
        self.has_forked[side.outbound()].load(Ordering::SeqCst) != 0
    }

    /// The connections that were ever made.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// Announces that a thread of a slot's process is about to sleep until a bell. The caller looks
    /// for connections after it.
    pub fn announce(&self, slot: u8, bell: u8) {
        self.slot(slot).bells.fetch_or(1 << (bell % 32), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Takes the bells of a slot's process that are to be rung for a new connection, a bit for each.
    /// A client that is killed before it has rung them delays its own connections only.
    pub fn take_bells(&self, slot: u8) -> u32 {
        fence(Ordering::SeqCst);
        let bells = &self.slot(slot).bells;
        death::point();
        let taken = match bells.load(Ordering::Relaxed) {
            0 => 0,
            _ => bells.swap(0, Ordering::SeqCst),
        };
        death::point();
        taken
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
