//! The connections that wait for a listener, in memory that its clients write.
//!
//! A queue is a ring of slots. A client puts an entry into the slot of the next position, and the
//! process that listens takes it. An entry is one word that names its client, so that each step
//! is one compare-and-exchange of that word: a process that is killed leaves no slot half filled.
//! What remains of its step is to move a counter, which every other process does as well.
//!
//! Positions only grow. A slot holds the lap of its position, which prevents the ABA problem: a
//! process that was stopped for a whole lap cannot fill or empty a slot of a later one.

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::death;

/// Slots of a queue, and the longest backlog.
#[cfg(not(loom))]
pub const SLOTS: usize = 128;
/// Loom explores every interleaving, so that its queues are short.
#[cfg(loom)]
pub const SLOTS: usize = 2;

/// Attempts of one call. Each failed one is the success of another process, or damage by one.
const ATTEMPTS: u32 = 1000;

/// A connection that a client has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The number that the monitor has given to the client.
    pub client: u32,
    /// The segment of the pool that client and server share.
    pub segment: u8,
}

/// Why a queue has not taken an entry. The kernel makes the connection, or refuses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoom {
    /// As many connections wait as the backlog permits.
    Full,
    /// The listener takes no connections by this queue any more.
    Closed,
}

/// An entry that can be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pushed {
    slot: usize,
    word: u64,
}

/// The content of a slot, without the lap of its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Empty,
    Waiting(Entry),
    /// The client has taken its entry back.
    Undone,
}

const LAP_BITS: u32 = 22;
const KIND: u32 = 40;
const LAP: u32 = KIND + 2;
const _: () = assert!(LAP + LAP_BITS == u64::BITS && SLOTS <= 1 << u8::BITS);

/// The lap of a position, as a slot holds it.
fn lap(position: u64) -> u64 {
    (position / SLOTS as u64) % (1 << LAP_BITS)
}

fn encode(lap: u64, slot: Slot) -> u64 {
    let kind = |kind: u64| lap << LAP | kind << KIND;
    match slot {
        Slot::Empty => kind(0),
        Slot::Waiting(Entry { client, segment }) => {
            kind(1) | u64::from(client) << u8::BITS | u64::from(segment)
        }
        Slot::Undone => kind(2),
    }
}

/// The lap, and what the slot holds. Each number stands for something.
fn decode(word: u64) -> (u64, Slot) {
    let slot = match word >> KIND & 3 {
        0 => Slot::Empty,
        1 => Slot::Waiting(Entry { client: (word >> u8::BITS) as u32, segment: word as u8 }),
        _ => Slot::Undone,
    };
    (word >> LAP, slot)
}

/// A counter on a cache line of its own.
#[repr(C, align(64))]
#[derive(Default)]
struct Counter(AtomicU64);

/// The shared words of a queue.
#[repr(C)]
pub struct Words {
    /// 0 while the queue is closed, else the backlog.
    backlog: AtomicU64,
    /// A bit for each bell of the listener's process by which a thread of it waits.
    bells: AtomicU32,
    /// The number of the listener in its process, which marks are set for.
    mark: AtomicU32,
    /// The position that is taken next.
    head: Counter,
    /// The position that is filled next.
    tail: Counter,
    slots: [AtomicU64; SLOTS],
}

impl Default for Words {
    fn default() -> Self {
        Self {
            backlog: AtomicU64::new(0),
            bells: AtomicU32::new(0),
            mark: AtomicU32::new(0),
            head: Counter::default(),
            tail: Counter::default(),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Words {
    /// Lets clients in. `backlog` is that of listen(2), `mark` the number of the listener.
    pub fn open(&self, backlog: u32, mark: u16) {
        self.mark.store(mark.into(), Ordering::Relaxed);
        // The kernel has one connection more wait than it was told.
        let backlog = u64::from(backlog).saturating_add(1).min(SLOTS as u64);
        self.backlog.store(backlog, Ordering::SeqCst);
    }

    /// Lets no client in any more. Entries that wait can still be taken.
    pub fn close(&self) {
        self.backlog.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Returns true while clients are let in. A client that has put an entry in asks once more: it
    /// sees that the queue was closed, or the listener sees its entry.
    pub fn is_open(&self) -> bool {
        fence(Ordering::SeqCst);
        self.backlog.load(Ordering::SeqCst) != 0
    }

    /// Puts an entry behind all others.
    ///
    /// # Errors
    /// [`NoRoom`], and no entry is made.
    pub fn push(&self, entry: Entry) -> Result<Pushed, NoRoom> {
        for _ in 0..ATTEMPTS {
            let backlog = self.backlog.load(Ordering::SeqCst).min(SLOTS as u64);
            if backlog == 0 {
                return Err(NoRoom::Closed);
            }
            let head = self.head.0.load(Ordering::Acquire);
            let tail = self.tail.0.load(Ordering::Acquire);
            if tail.wrapping_sub(head).cast_signed() >= backlog.cast_signed() {
                return Err(NoRoom::Full);
            }
            let slot = tail as usize % SLOTS;
            let empty = encode(lap(tail), Slot::Empty);
            let word = encode(lap(tail), Slot::Waiting(entry));
            death::point();
            if exchange(&self.slots[slot], empty, word) {
                death::point();
                exchange(&self.tail.0, tail, tail.wrapping_add(1));
                return Ok(Pushed { slot, word });
            }
            // Another process has filled this position, and has perhaps been killed since.
            if self.is_past(tail) {
                exchange(&self.tail.0, tail, tail.wrapping_add(1));
            }
        }
        Err(NoRoom::Full)
    }

    /// Takes an entry back. Returns false if it was taken before.
    pub fn undo(&self, pushed: Pushed) -> bool {
        let Pushed { slot, word } = pushed;
        death::point();
        exchange(&self.slots[slot], word, encode(word >> LAP, Slot::Undone))
    }

    /// Takes the entry that has waited longest.
    pub fn take(&self) -> Option<Entry> {
        self.first(true)
    }

    /// Returns true if an entry waits.
    pub fn has_entry(&self) -> bool {
        self.first(false).is_some()
    }

    /// The entries that were ever put in.
    pub fn pushed(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// The first entry, which is taken or left. Entries that were taken back are passed over.
    fn first(&self, takes: bool) -> Option<Entry> {
        for _ in 0..ATTEMPTS {
            let head = self.head.0.load(Ordering::Acquire);
            let slot = &self.slots[head as usize % SLOTS];
            let word = slot.load(Ordering::Acquire);
            let (found, content) = decode(word);
            if found != lap(head) {
                // A thread has emptied it, and has not moved the head yet. Anything else is damage.
                let next = lap(head.wrapping_add(SLOTS as u64));
                if found != next || !exchange(&self.head.0, head, head.wrapping_add(1)) {
                    std::hint::spin_loop();
                }
                continue;
            }
            let entry = match content {
                Slot::Empty => return None,
                Slot::Waiting(entry) if !takes => return Some(entry),
                Slot::Waiting(entry) => Some(entry),
                Slot::Undone => None,
            };
            // The client may have been killed before it moved the tail.
            exchange(&self.tail.0, head, head.wrapping_add(1));
            let empty = encode(lap(head.wrapping_add(SLOTS as u64)), Slot::Empty);
            death::point();
            if exchange(slot, word, empty) {
                death::point();
                exchange(&self.head.0, head, head.wrapping_add(1));
                if entry.is_some() {
                    return entry;
                }
            }
        }
        None
    }

    /// Returns true if the slot of this position was filled.
    fn is_past(&self, position: u64) -> bool {
        let word = self.slots[position as usize % SLOTS].load(Ordering::Acquire);
        word != encode(lap(position), Slot::Empty)
    }

    /// Announces that a thread of the listener is about to sleep until a bell. The caller looks for
    /// entries after it.
    pub fn announce(&self, bell: u8) {
        self.bells.fetch_or(1 << (bell % 32), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Takes the bells of the listener that are to be rung for a new entry, a bit for each, and the
    /// number of the listener.
    pub fn take_bells(&self) -> (u32, u16) {
        fence(Ordering::SeqCst);
        let bells = match self.bells.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.bells.swap(0, Ordering::SeqCst),
        };
        (bells, self.mark.load(Ordering::Relaxed) as u16)
    }
}

fn exchange(word: &AtomicU64, from: u64, to: u64) -> bool {
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
