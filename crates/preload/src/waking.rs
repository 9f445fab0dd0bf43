//! Means to wake this process, and its peers: *bells*, which are eventfds, and *marks*, which say for
//! which connection a bell was rung.
//!
//! A bell is rung by a read. Each write(2) to an eventfd can block for ever, since another process
//! that has it can fill it and let its writes block; a read with RWF_NOWAIT never does. With
//! EFD_SEMAPHORE it takes one of a count that no number of reads exhausts, and wakes what waits for
//! EPOLLOUT.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use levada_ring::wire::{BELLS, WAKING};
use levada_ring::{Marks, Waiter};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};

use crate::connection::Connection;
use crate::{arena, private, seccomp, segments};

/// The eventfds of this process.
static OWN: [AtomicI32; BELLS] = [const { AtomicI32::new(-1) }; BELLS];
/// Its marks, and their file. Null and -1 before [`prepare`].
static MARKS: AtomicPtr<Marks> = AtomicPtr::new(null_mut());
static MARKS_FILE: AtomicI32 = AtomicI32::new(-1);

/// A process that this one rings for.
struct Peer {
    /// Its number with the monitor, plus 1; 0 for a free place.
    number: AtomicU64,
    /// Threads that ring just now.
    users: AtomicU32,
    bells: [AtomicI32; BELLS],
    marks: AtomicPtr<Marks>,
}

/// All that this process can have. Connections to others stay on TCP.
static PEERS: [Peer; 1024] = [const { Peer::new() }; 1024];

/// The first count of a bell: a million rings a second exhaust it in 300,000 years, and as many
/// writes do not fill it.
const COUNT: u64 = 1 << 63;

/// The events of a bell that wake a thread.
pub const BELL_EVENTS: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::ET);

/// How often to look whether the last thread has rung, before what it uses is left open.
const SPINS: u32 = 10_000;

/// Makes what wakes this process.
///
/// # Errors
/// Those of eventfd(2) and memfd_create(2). All connections then stay on TCP.
pub fn prepare() -> Result<(), Errno> {
    for bell in &OWN {
        if bell.load(Ordering::Relaxed) < 0 {
            private::keep_in(bell, make_bell()?)?;
        }
    }
    prepare_marks()
}

fn make_bell() -> Result<OwnedFd, Errno> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    let bell = eventfd(0, flags)?;
    rustix::io::write(&bell, &COUNT.to_ne_bytes())?;
    Ok(bell)
}

/// Makes the marks alone, which an epoll needs before its connections have peers.
///
/// # Errors
/// Those of memfd_create(2).
pub fn prepare_marks() -> Result<(), Errno> {
    if MARKS.load(Ordering::Acquire).is_null() {
        let (file, marks) = Marks::create()?;
        let marks = Box::into_raw(Box::new(marks));
        let made =
            MARKS.compare_exchange(null_mut(), marks, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if made {
            private::keep_in(&MARKS_FILE, file)?;
        } else {
            // SAFETY: another thread was faster; this box was shown to no one.
            drop(unsafe { Box::from_raw(marks) });
        }
    }
    Ok(())
}

/// The homes of what the monitor hands to peers, in the order that they expect.
pub fn descriptors() -> impl Iterator<Item = &'static AtomicI32> {
    OWN.iter().chain([&MARKS_FILE])
}

/// A forked child rings its parent's bells, which are its own, too; but marks are taken by one
/// process only.
pub fn in_child() {
    // The mapping stays: a thread of the parent may have used it when it forked.
    MARKS.store(null_mut(), Ordering::Release);
    private::forget(&MARKS_FILE);
}

/// The home of an eventfd of this process that its peers ring.
pub fn own_bell(index: usize) -> Option<&'static AtomicI32> {
    OWN.get(index).filter(|bell| bell.load(Ordering::Acquire) >= 0)
}

fn own_marks() -> Option<&'static Marks> {
    // SAFETY: the pointer is null, or that of a box that is never freed.
    unsafe { MARKS.load(Ordering::Acquire).as_ref() }
}

/// Whether peers can mark connections for this process.
pub fn has_marks() -> bool {
    own_marks().is_some()
}

/// Marks a connection of this process, for its own threads.
pub fn mark(number: u32) {
    if let (Some(marks), Ok(number)) = (own_marks(), u16::try_from(number)) {
        marks.set(number);
    }
}

/// Whether a connection of this process may be marked.
pub fn is_any_marked() -> bool {
    own_marks().is_some_and(Marks::is_any)
}

/// Takes all marks, and calls `each` with the numbers of the connections.
pub fn take_marks(mut each: impl FnMut(u32)) {
    if let Some(marks) = own_marks().filter(|marks| marks.is_any()) {
        marks.take(|number| each(number.into()));
    }
}

/// Rings the bell that a call on a ring of `connection` has returned.
#[inline]
pub fn ring(connection: &Connection, waiter: Option<Waiter>) {
    if waiter.is_some() {
        ring_peer(connection, waiter);
    }
}

fn ring_peer(connection: &Connection, waiter: Option<Waiter>) {
    connection.record().counters.wakeups.fetch_add(1, Ordering::Relaxed);
    match (segments::own(arena::number(connection)).peer(), waiter) {
        (Some(0), _) => ring_here(waiter),
        (Some(peer), _) => ring_number(peer, waiter),
        (None, _) => {}
    }
}

/// Wakes the process with a number, as a call on a ring of it has returned.
pub fn ring_number(peer: u32, waiter: Option<Waiter>) {
    if let (Some(Waiter::Bell { bell, mark }), Some(peer)) = (waiter, Peer::find(peer)) {
        peer.ring(bell, mark);
    }
}

/// Wakes a thread of this process that a ring was to wake.
pub fn ring_here(waiter: Option<Waiter>) {
    if let Some(Waiter::Bell { bell, mark }) = waiter {
        self::mark(mark.into());
        ring_own(bell);
    }
}

/// Rings a bell of this process, for its own threads.
pub fn ring_own(bell: u8) {
    write_bell(OWN.get(usize::from(bell)));
}

/// Wakes all threads that sleep until a bell of this process rings.
pub fn ring_all_own() {
    OWN.iter().for_each(|bell| write_bell(Some(bell)));
}

/// Closes what wakes this process and its peers, once no connection has a ring.
pub fn release() {
    for peer in &PEERS {
        if peer.number.swap(0, Ordering::SeqCst) != 0 {
            peer.free_resources();
        }
    }
    OWN.iter().chain([&MARKS_FILE]).for_each(private::forget);
}

fn write_bell(bell: Option<&AtomicI32>) {
    bell.and_then(|bell| private::with(bell, notify));
}

/// Rings a bell. A bell that its own process has emptied, or that is none, wakes no thread.
fn notify(bell: BorrowedFd<'_>) {
    let mut count = [0; 8];
    let buffers = &mut [std::io::IoSliceMut::new(&mut count)];
    let is_rung = !seccomp::is_sealed()
        && match rustix::io::preadv2(bell, buffers, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(_) | Err(Errno::AGAIN) => true,
            // A filter that the process was started with refuses the call.
            Err(_) => false,
        };
    if !is_rung {
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}

/// Notes what wakes a peer. `false` if there is no room, or it is not what it should be: the peer
/// could not be woken.
pub fn learn(number: u32, descriptors: impl Iterator<Item = OwnedFd>) -> bool {
    let mut descriptors: Vec<OwnedFd> = descriptors.collect();
    let marks = descriptors.pop().and_then(|file| Marks::open(file).ok());
    let (Some(marks), WAKING) = (marks, descriptors.len() + 1) else { return false };
    if is_known(number) {
        return true;
    }
    let Some(peer) = Peer::free() else { return false };
    for (bell, place) in descriptors.into_iter().zip(&peer.bells) {
        if private::keep_in(place, bell).is_err() {
            // More than the library's share.
            peer.bells.iter().for_each(private::forget);
            return false;
        }
    }
    peer.marks.store(Box::into_raw(Box::new(marks)), Ordering::Release);
    peer.number.store(u64::from(number) + 1, Ordering::SeqCst);
    true
}

/// Whether a peer can be woken.
pub fn is_known(number: u32) -> bool {
    Peer::find(number).is_some()
}

/// A peer has ended.
pub fn forget(number: u32) {
    if let Some(peer) = Peer::find(number) {
        peer.number.store(0, Ordering::SeqCst);
        peer.free_resources();
    }
}

impl Peer {
    const fn new() -> Self {
        Self {
            number: AtomicU64::new(0),
            users: AtomicU32::new(0),
            bells: [const { AtomicI32::new(-1) }; BELLS],
            marks: AtomicPtr::new(null_mut()),
        }
    }

    fn find(number: u32) -> Option<&'static Self> {
        let number = u64::from(number) + 1;
        PEERS.iter().find(|peer| peer.number.load(Ordering::Acquire) == number)
    }

    fn free() -> Option<&'static Self> {
        PEERS.iter().find(|peer| peer.number.load(Ordering::Relaxed) == 0)
    }

    /// Marks the connection, then rings.
    fn ring(&self, bell: u8, mark: u16) {
        self.users.fetch_add(1, Ordering::SeqCst);
        if self.number.load(Ordering::SeqCst) != 0 {
            // SAFETY: the pointer is null or of a box, which is freed only while there is no user
            // and the number is 0.
            if let Some(marks) = unsafe { self.marks.load(Ordering::Acquire).as_ref() } {
                marks.set(mark);
            }
            write_bell(self.bells.get(usize::from(bell)));
        }
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    /// Closes what wakes the peer, once no thread rings any more. It stays open if one does not
    /// come to an end: it was interrupted by the handler that this is called from, or was in
    /// another process when that forked.
    fn free_resources(&self) {
        let marks = self.marks.swap(null_mut(), Ordering::AcqRel);
        for _ in 0..SPINS {
            if self.users.load(Ordering::SeqCst) == 0 {
                self.bells.iter().for_each(private::forget);
                if !marks.is_null() {
                    // SAFETY: it came from a box, and no thread has it any more: each checks the
                    // number, which is 0, after it has become a user.
                    drop(unsafe { Box::from_raw(marks) });
                }
                return;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::epoll;
    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    fn is_woken(epoll: &OwnedFd) -> bool {
        let mut event = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(epoll, &mut event[..], Some(&zero)) == Ok(1)
    }

    /// A child of a fork has the bells of its parent, too: it can fill them, and let writes block.
    #[test]
    fn a_bell_wakes_in_every_state() {
        let bell = make_bell().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(0), BELL_EVENTS).unwrap();
        // It is ready when it is added.
        is_woken(&epoll);
        let rings = || {
            assert!(!is_woken(&epoll));
            notify(bell.as_fd());
            assert!(is_woken(&epoll));
        };
        rings();
        rings();
        // Filled.
        let rest = u64::MAX - 1 - (COUNT - 2);
        rustix::io::write(&bell, &rest.to_ne_bytes()).unwrap();
        is_woken(&epoll);
        rings();
        rustix::io::write(&bell, &1_u64.to_ne_bytes()).unwrap();
        is_woken(&epoll);
        fcntl_setfl(&bell, OFlags::RDWR).unwrap();
        rings();
        rings();
    }
}
