//! The connections of one client that wait for the listeners of one server, in the first page of
//! their [`Pool`](crate::Pool).
//!
//! Each segment has a word, which says whether its connection waits, and for which listener. The
//! client makes it wait, and one compare-and-exchange takes it or undoes it: a process that is
//! killed leaves nothing half done, and holds no lock. No other process has the page, so that a
//! hostile one harms its own connections only.

use crate::Side;
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::death;

/// Segments of a pool: connections between two processes at a time. More go by the kernel.
#[cfg(not(loom))]
pub const SEGMENTS: usize = 128;
/// Loom explores every interleaving, so that its pools are small.
#[cfg(loom)]
pub const SEGMENTS: usize = 2;

/// Listeners of a process that take connections. The place of one is its name, modulo this.
#[cfg(not(loom))]
pub const LISTENERS: usize = 64;
/// As above.
#[cfg(loom)]
pub const LISTENERS: usize = 2;

/// Names of listeners: a process gives none of them twice.
pub const NAMES: u32 = 1 << NAME_BITS;

const NAME_BITS: u32 = 22;
const NAME: u32 = 2;
const GENERATION: u32 = NAME + NAME_BITS;
/// Of the two lowest bits: the connection waits, was taken, or was undone.
const WAITING: u64 = 1;
const TAKEN: u64 = 2;
const UNDONE: u64 = 3;
const KIND: u64 = 3;

/// A listener that takes connections, as its process shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// Its name, less than [`NAMES`].
    pub name: u32,
    /// The number that marks are set for.
    pub mark: u16,
    /// Connections of one client that may wait.
    pub backlog: u8,
}

/// A connection that waits, unless it is taken or undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The segment that it is in.
    pub segment: u8,
    word: u64,
}

/// The shared words of a listener.
#[repr(C)]
#[derive(Default)]
struct Listener {
    /// By the server: 0 while it is closed, else an [`Open`].
    open: AtomicU64,
    /// A bit for each bell of the server by which a thread of it waits for this listener.
    bells: AtomicU32,
}

/// The shared words of a client and a server.
#[repr(C)]
pub struct Queue {
    listeners: [Listener; LISTENERS],
    /// By the client: connections that it has made.
    made: AtomicU64,
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
            listeners: std::array::from_fn(|_| Listener::default()),
            made: AtomicU64::new(0),
            orders: std::array::from_fn(|_| AtomicU32::new(0)),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            has_forked: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

/// The name of the listener that a word is for, if its connection waits.
fn awaited(word: u64) -> Option<u32> {
    (word & KIND == WAITING).then_some((word >> NAME) as u32 % NAMES)
}

impl Queue {
    fn listener(&self, name: u32) -> &Listener {
        &self.listeners[name as usize % LISTENERS]
    }

    /// Lets the client in, by the server.
    pub fn open(&self, listener: Open) {
        let Open { name, mark, backlog } = listener;
        let word = u64::from(name) << 32 | u64::from(mark) << 16 | u64::from(backlog.max(1));
        self.listener(name).open.store(word, Ordering::SeqCst);
    }

    /// Lets the client in no more, by the server. Then it takes what waits: a client that has made
    /// a connection looks once more whether the listener is [open](Self::find), and one of the two
    /// sees what the other has written.
    pub fn close(&self, name: u32) {
        self.listener(name).open.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The listener with a name, if it is open.
    pub fn find(&self, name: u32) -> Option<Open> {
        fence(Ordering::SeqCst);
        let word = self.listener(name).open.load(Ordering::SeqCst);
        let is_open = word as u8 != 0 && (word >> 32) as u32 == name;
        is_open.then_some(Open { name, mark: (word >> 16) as u16, backlog: word as u8 })
    }

    /// The connections that wait for a listener.
    pub fn count(&self, name: u32) -> usize {
        let waits = |word: &&AtomicU64| awaited(word.load(Ordering::Relaxed)) == Some(name);
        self.words.iter().filter(waits).count()
    }

    /// Lets the connection of a segment wait, by the client. `order` is higher than that of each
    /// connection that it has made before.
    pub fn push(&self, name: u32, (segment, generation): (u8, u64), order: u32) -> Waiting {
        let place = usize::from(segment) % SEGMENTS;
        let word = generation << GENERATION | u64::from(name % NAMES) << NAME | WAITING;
        self.orders[place].store(order, Ordering::Relaxed);
        death::point();
        // The server sees the rings as they were reset.
        self.words[place].store(word, Ordering::Release);
        death::point();
        self.made.fetch_add(1, Ordering::Release);
        Waiting { segment, word }
    }

    /// The connection that has waited longest for a listener, of those in segments that
    /// `is_usable` accepts.
    pub fn first(&self, name: u32, is_usable: impl Fn(u8) -> bool) -> Option<Waiting> {
        let order = |segment: u8| self.orders[usize::from(segment)].load(Ordering::Relaxed);
        let all = self.words.iter().zip(0_u8..).filter_map(|(word, segment)| {
            let word = word.load(Ordering::Acquire);
            let is_for_it = awaited(word) == Some(name) && is_usable(segment);
            is_for_it.then_some((order(segment), Waiting { segment, word }))
        });
        let earlier = |one: &u32, other: &u32| one.wrapping_sub(*other).cast_signed() < 0;
        let first = all.reduce(|one, other| if earlier(&other.0, &one.0) { other } else { one });
        first.map(|(_, waiting)| waiting)
    }

    /// Takes a connection, by the server. Returns false if it was taken or undone before.
    pub fn take(&self, waiting: Waiting) -> bool {
        self.settle(waiting, TAKEN)
    }

    /// Undoes a connection, by its client. Returns false if it was taken before.
    pub fn undo(&self, waiting: Waiting) -> bool {
        self.settle(waiting, UNDONE)
    }

    fn settle(&self, waiting: Waiting, kind: u64) -> bool {
        let word = &self.words[usize::from(waiting.segment) % SEGMENTS];
        let settled = waiting.word & !KIND | kind;
        death::point();
        word.compare_exchange(waiting.word, settled, Ordering::AcqRel, Ordering::Relaxed).is_ok()
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

    /// Announces that a thread of the server is about to sleep until a bell. The caller looks for
    /// connections after it.
    pub fn announce(&self, name: u32, bell: u8) {
        self.listener(name).bells.fetch_or(1 << (bell % 32), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Takes the bells that are to be rung for a new connection, a bit for each. A client that is
    /// killed before it has rung them delays its own connections only.
    pub fn take_bells(&self, name: u32) -> u32 {
        fence(Ordering::SeqCst);
        let bells = &self.listener(name).bells;
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
