//! What this process alone knows of its connections: where their segments are mapped, and by which
//! name they were offered. All of it is private memory, so that no other process can change an
//! address.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use levada_ring::records::RECORDS;
use levada_ring::{Leaked, Side};

use crate::direct::Pair;
use crate::{arena, process, seccomp};

/// The private part of a connection. A cache line of its own: threads that spin change `users`.
#[repr(align(64))]
pub struct Own {
    /// The address of the segment; null without one.
    segment: AtomicPtr<u8>,
    /// Which end of the segment this is: 0 for [`Side::Connector`].
    side: AtomicU32,
    /// The number of the process at the other end; 0 if that is this one.
    peer: AtomicU32,
    /// The process whose [marks](crate::waking) the peer sets.
    marks_of: AtomicU32,
    /// 1 since a fork: other processes can free the locks of this connection at any time.
    is_shared: AtomicU32,
    /// Threads that sleep in the ring; of a shared connection, also those in a call.
    users: AtomicU32,
    /// 1 if this process has closed the connection, and the last user is to let go of it.
    is_closed: AtomicU32,
    /// The address to unmap when the last user has gone.
    closed_segment: AtomicPtr<u8>,
    /// The name of the present offer; 0 if the monitor has answered.
    offer: AtomicU64,
    /// The pool that the segment is in; null if it is in none. It is never freed.
    pair: AtomicPtr<Pair>,
    /// The number of the segment in the pool, and its generation.
    place: AtomicU32,
    generation: AtomicU64,
    /// 1 if no other process has this end of the connection.
    is_last: AtomicU32,
    /// Threads that wait for each direction in poll(2) or select(2).
    waits: [AtomicU32; 2],
}

static ALL: [Own; RECORDS] = [const { Own::new() }; RECORDS];

/// The private part of the connection with this number, modulo [`RECORDS`].
#[inline]
pub fn own(number: u32) -> &'static Own {
    &ALL[number as usize % RECORDS]
}

/// A thread that uses the segment of a connection: it stays mapped until this is dropped.
pub struct User {
    number: u32,
    is_counted: bool,
}

impl Own {
    const fn new() -> Self {
        Self {
            segment: AtomicPtr::new(null_mut()),
            side: AtomicU32::new(0),
            peer: AtomicU32::new(0),
            marks_of: AtomicU32::new(0),
            is_shared: AtomicU32::new(0),
            users: AtomicU32::new(0),
            is_closed: AtomicU32::new(0),
            closed_segment: AtomicPtr::new(null_mut()),
            offer: AtomicU64::new(0),
            pair: AtomicPtr::new(null_mut()),
            place: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            is_last: AtomicU32::new(0),
            waits: [const { AtomicU32::new(0) }; 2],
        }
    }

    /// A new connection has this number.
    pub fn begin(&self) {
        // Not `users`: a thread that still has the number of the connection before may be one.
        for word in [&self.side, &self.peer, &self.marks_of, &self.is_shared] {
            word.store(0, Ordering::Relaxed);
        }
        self.offer.store(0, Ordering::Relaxed);
        self.is_last.store(0, Ordering::Relaxed);
        self.pair.store(null_mut(), Ordering::Relaxed);
    }

    /// Notes that the segment is in a pool: its number there, and its generation.
    pub fn set_pair(&self, pair: &'static Pair, (number, generation): (u8, u64)) {
        self.place.store(number.into(), Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.pair.store(std::ptr::from_ref(pair).cast_mut(), Ordering::Release);
    }

    /// The pool that the segment is in, the number of the segment, and its generation.
    pub fn pair(&self) -> Option<(&'static Pair, u8, u64)> {
        // SAFETY: the pointer is null, or that of a pair, which is never freed.
        let pair = unsafe { self.pair.load(Ordering::Acquire).as_ref() }?;
        let number = self.place.load(Ordering::Relaxed) as u8;
        Some((pair, number, self.generation.load(Ordering::Relaxed)))
    }

    /// No other process has this end of the connection.
    pub fn set_last(&self) {
        self.is_last.store(1, Ordering::Relaxed);
    }

    /// Notes a segment, which is used from now on.
    pub fn attach(&self, segment: Leaked, side: Side, peer: u32) {
        self.peer.store(peer, Ordering::Relaxed);
        self.marks_of.store(process::own(), Ordering::Relaxed);
        self.side.store((side == Side::Acceptor).into(), Ordering::Relaxed);
        self.segment.store(segment.into_address().as_ptr(), Ordering::Release);
    }

    /// The segment, and which end of it this is. The caller is a [`User`], or holds a lock of a
    /// connection that is not shared.
    #[inline]
    pub fn segment(&self) -> Option<(Leaked, Side)> {
        let address = NonNull::new(self.segment.load(Ordering::Acquire))?;
        let side = match self.side.load(Ordering::Relaxed) {
            0 => Side::Connector,
            _ => Side::Acceptor,
        };
        // SAFETY: the address was stored by `attach`. It is unmapped only by the last user, and
        // after a call of `close`, which finds no other thread in a call of this connection.
        Some((unsafe { Leaked::from_address(address) }, side))
    }

    /// The number of the process at the other end; 0 if that is this one. `None` if there is none
    /// yet.
    pub fn peer(&self) -> Option<u32> {
        match self.pair() {
            Some((pair, number, generation)) => pair.peer_of((number, generation)),
            None => Some(self.peer.load(Ordering::Relaxed)),
        }
    }

    /// Returns true if the peer sets marks of this process.
    pub fn has_marks_here(&self) -> bool {
        self.marks_of.load(Ordering::Relaxed) == process::own()
    }

    /// The name of the offer that the monitor has not answered; 0 without one.
    pub fn offer_name(&self) -> u64 {
        self.offer.load(Ordering::Relaxed)
    }

    /// Notes the name of an offer, or with 0 that none holds.
    pub fn set_offer(&self, name: u64) {
        self.offer.store(name, Ordering::Relaxed);
    }

    /// A fork follows. From now on, threads in calls are counted: their locks no longer say who is
    /// in a call. `is_locked` returns true if another thread holds a lock of the connection.
    pub fn share(&self, is_locked: impl FnOnce() -> bool) {
        if self.is_shared.swap(1, Ordering::SeqCst) == 0 {
            fence(Ordering::SeqCst);
            if is_locked() {
                // That thread is not counted: the segment stays mapped.
                self.users.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// A thread begins to wait for these directions.
    pub fn begin_wait(&self, directions: [bool; 2]) {
        for (waits, is_waited_for) in self.waits.iter().zip(directions) {
            waits.fetch_add(is_waited_for.into(), Ordering::SeqCst);
        }
    }

    /// Takes [`begin_wait`](Self::begin_wait) back.
    pub fn end_wait(&self, directions: [bool; 2]) {
        for (waits, is_waited_for) in self.waits.iter().zip(directions) {
            waits.fetch_sub(is_waited_for.into(), Ordering::SeqCst);
        }
    }

    /// Returns true if a thread waits for one of these directions.
    pub fn has_waits(&self, directions: [bool; 2]) -> bool {
        let all = self.waits.iter().zip(directions);
        all.into_iter().any(|(waits, is_asked)| is_asked && waits.load(Ordering::SeqCst) > 0)
    }

    /// The one thread of a forked child sleeps nowhere; its parent's threads are not in it.
    pub fn in_child(&self) {
        self.users.store(0, Ordering::Relaxed);
        // Its parent has made the offer, and gets the answer.
        self.offer.store(0, Ordering::Relaxed);
        self.waits.iter().for_each(|waits| waits.store(0, Ordering::Relaxed));
    }
}

impl User {
    /// A thread that holds a lock of the connection.
    #[inline]
    pub fn in_call(number: u32) -> Self {
        // `share` sets the flag, and then looks at the lock, which the caller has taken before.
        let is_counted = own(number).is_shared.load(Ordering::SeqCst) != 0;
        if is_counted {
            own(number).users.fetch_add(1, Ordering::SeqCst);
        }
        Self { number, is_counted }
    }

    /// A thread that is about to sleep.
    pub fn asleep(number: u32) -> Self {
        own(number).users.fetch_add(1, Ordering::SeqCst);
        Self { number, is_counted: true }
    }
}

impl Drop for User {
    #[inline]
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let own = own(self.number);
        let was_last = own.users.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && own.is_closed.load(Ordering::SeqCst) != 0 {
            free_if_closed(self.number);
        }
    }
}

/// This process has closed its last descriptor of the connection. The segment is unmapped, and the
/// number given back, when no thread uses them. Locks of the connection are held, so that no thread
/// is in a call of one that is not shared.
pub fn close(number: u32) {
    let own = own(number);
    let segment = own.segment.swap(null_mut(), Ordering::SeqCst);
    own.closed_segment.store(segment, Ordering::Relaxed);
    own.is_closed.store(1, Ordering::SeqCst);
    if own.users.load(Ordering::SeqCst) == 0 {
        free_if_closed(number);
    }
}

#[cold]
fn free_if_closed(number: u32) {
    let own = own(number);
    if own.is_closed.swap(0, Ordering::SeqCst) == 0 {
        return;
    }
    let segment = own.closed_segment.swap(null_mut(), Ordering::SeqCst);
    match own.pair() {
        Some((pair, place, generation)) => {
            pair.end(place, generation, own.is_last.load(Ordering::Relaxed) != 0);
        }
        None => unmap_later(segment),
    }
    arena::release(number);
}

/// Segments that no connection uses any more. To unmap one takes as long as half an exchange by
/// TCP, for which the next connection would wait: it is done when another connection gets one, or
/// when these are as many.
static UNUSED: [AtomicPtr<u8>; 8] = [const { AtomicPtr::new(null_mut()) }; 8];

fn unmap_later(segment: *mut u8) {
    let put = |place: &AtomicPtr<u8>| {
        place.compare_exchange(null_mut(), segment, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let is_kept = segment.is_null() || UNUSED.iter().any(put);
    if !is_kept && !seccomp::is_sealed() {
        unmap(segment);
    }
}

/// Unmaps the segments that no connection uses any more.
pub fn unmap_unused() {
    UNUSED.iter().for_each(|place| unmap(place.swap(null_mut(), Ordering::AcqRel)));
}

fn unmap(segment: *mut u8) {
    if let Some(address) = NonNull::new(segment) {
        // SAFETY: it was the address of a segment, which no thread finds any more, and none uses.
        unsafe { Leaked::from_address(address).unmap() };
    }
}
