//! poll(2) and select(2).
//!
//! Connections on rings are looked at in memory, all others by the kernel. To sleep, the rings'
//! peers are asked to ring a bell of this process, which the kernel watches beside the others.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use levada_ring::wire::BELLS;
use libc::{c_int, fd_set, pollfd, sigset_t, timespec};
use rustix::event::epoll::{self as kernel, CreateFlags, EventData, EventFlags};

use crate::connection::Phase;
use crate::spin::Look;
use crate::table::{self, Entry};
use crate::{
    direct, epoll, errno, memory, private, readiness, seccomp, segments, spin, tcp, tcp_only,
    waking,
};

/// How long a wait is in a process with several threads while a connection may move to a ring.
const SLICE: Duration = Duration::from_millis(100);

/// What the program waits for: until when, `None` for ever; and the signals that are blocked
/// meanwhile.
pub struct Wait<D> {
    /// When it ends; called once, and only if there are rings.
    pub deadline: D,
    /// See sigprocmask(2).
    pub mask: *const sigset_t,
}

/// poll(2), if one of the descriptors is on a ring; else `None`: the caller makes the program's own
/// call.
pub fn poll(entries: &mut [pollfd], wait: Wait<impl FnOnce() -> Option<Instant>>) -> Option<c_int> {
    let rings: Vec<(usize, Entry)> = entries
        .iter()
        .enumerate()
        .filter_map(|(at, entry)| Some((at, table::find(entry.fd)?)))
        .filter(|(_, entry)| readiness::is_by_ring(*entry))
        .collect();
    if rings.is_empty() {
        return None;
    }
    let set: Vec<pollfd> = entries.to_vec();
    Some(poll_with_rings(entries, set, &rings, ((wait.deadline)(), wait.mask)))
}

fn poll_with_rings(
    entries: &mut [pollfd],
    mut set: Vec<pollfd>,
    rings: &[(usize, Entry)],
    (deadline, mask): (Option<Instant>, *const sigset_t),
) -> c_int {
    let bell = Bell::take();
    set.extend(bell.iter().map(|_| pollfd { fd: -1, events: libc::POLLIN, revents: 0 }));
    loop {
        if let (Some(bell), Some(last)) = (&bell, set.last_mut()) {
            // The number may change.
            last.fd = bell.place.fd.load(Ordering::Acquire);
        }
        ask_kernel(&mut set, entries, rings);
        if mask.is_null() && is_all_in_memory(entries, rings) {
            set.iter_mut().for_each(|entry| entry.revents = 0);
        } else {
            let shown = in_kernel(&mut set, Some(Duration::ZERO), mask);
            if shown < 0 {
                return shown;
            }
        }
        let ready = merge(entries, &set, rings);
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return ready;
        }
        let is_ready = |(at, entry): &(usize, Entry)| wanted(entries[*at], *entry) != 0;
        let shown = spin::for_events(|look| {
            let share = || rings.iter().all(|(_, entry)| readiness::shares_processor(*entry));
            if look.until(rings.len(), share, || rings.iter().any(is_ready)) {
                return 0;
            }
            sleep(entries, &mut set, rings, (bell.as_ref(), deadline, mask, look))
        });
        if shown < 0 {
            return shown;
        }
        for (_, entry) in rings {
            readiness::is_by_ring(*entry);
        }
    }
}

/// Sleeps until a peer rings or the kernel has something, and takes no note of what. Less than 0 if
/// the kernel's call failed.
fn sleep(
    entries: &[pollfd],
    set: &mut [pollfd],
    rings: &[(usize, Entry)],
    (bell, deadline, mask, look): (Option<&Bell>, Option<Instant>, *const sigset_t, &Look<'_>),
) -> c_int {
    let number = bell.map_or(0, |bell| bell.number);
    for (at, entry) in rings {
        segments::own(entry.number).begin_wait(readiness::directions(entries[*at].events));
        readiness::arm(*entry, entries[*at].events, number);
    }
    let armed = rings.iter().all(|(at, entry)| wanted(entries[*at], *entry) == 0);
    // The looks at the rings may have found the end of one: from now on, the kernel has to be
    // asked.
    ask_kernel(set, entries, rings);
    let shown = if armed {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Without a bell, or while a connection may still move to a ring, the wait is cut into
        // slices.
        let slice = match bell.is_none() || private::have_moved() {
            true => Some(SLICE),
            false => memory::longest_sleep(),
        };
        let slice = [left, slice, direct::longest_sleep()].into_iter().flatten().min();
        in_kernel(set, slice, mask)
    } else {
        0
    };
    let saved = errno::last();
    memory::sweep();
    direct::sweep();
    let disarm = |(at, entry): &(usize, Entry)| {
        let events = entries[*at].events;
        segments::own(entry.number).end_wait(readiness::directions(events));
        readiness::disarm(*entry, events, number)
    };
    let woken_at = rings.iter().filter_map(disarm).max();
    rings.iter().for_each(|(_, entry)| epoll::look_again(entry.number));
    if armed {
        look.slept(woken_at);
    }
    if let Some(bell) = bell {
        bell.clear();
    }
    errno::set(saved);
    shown
}

/// Returns true if the kernel has nothing to add: all are connections that it does not know, or
/// listeners for which such a connection waits.
fn is_all_in_memory(entries: &[pollfd], rings: &[(usize, Entry)]) -> bool {
    let is_in_memory = |(at, entry): &(usize, Entry)| {
        let waits = || wanted(entries[*at], *entry) & libc::POLLIN != 0;
        direct::is_direct(*entry) || entry.connection.phase() == Phase::Listening && waits()
    };
    rings.len() == entries.len() && rings.iter().all(is_in_memory)
}

/// Sets what the kernel is asked of connections on rings.
fn ask_kernel(set: &mut [pollfd], entries: &[pollfd], rings: &[(usize, Entry)]) {
    for (at, entry) in rings {
        set[*at].events = readiness::for_kernel(entry.connection, entries[*at].events);
        if direct::is_direct(*entry) {
            // The socket is not connected, which the kernel would report.
            set[*at].fd = -1;
            set[*at].revents = 0;
        }
    }
}

fn in_kernel(set: &mut [pollfd], time: Option<Duration>, mask: *const sigset_t) -> c_int {
    let time = time.map(timespec_of);
    let pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the set is a slice, and the mask the program's.
    unsafe { crate::real::ppoll(set.as_mut_ptr(), set.len() as libc::nfds_t, pointer, mask) }
}

/// A time for the kernel.
pub fn timespec_of(time: Duration) -> timespec {
    timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// What the program wants of a connection and the rings have. An end of the peer's stream counts as
/// readable.
fn wanted(entry: pollfd, connection: Entry) -> i16 {
    readiness::by_ring(connection) & (entry.events | libc::POLLHUP | libc::POLLERR)
}

/// Fills in what is ready, and counts it.
fn merge(entries: &mut [pollfd], set: &[pollfd], rings: &[(usize, Entry)]) -> c_int {
    for (entry, shown) in entries.iter_mut().zip(set) {
        entry.revents = shown.revents;
    }
    for (at, entry) in rings {
        let mut shown = set[*at].revents;
        readiness::note_kernel(*entry, shown);
        shown |= readiness::by_ring(*entry);
        // The look has found the end of a ring, perhaps: TCP has the answer now.
        let missed =
            readiness::for_kernel(entry.connection, entries[*at].events) & !set[*at].events;
        if missed != 0 {
            shown |= tcp::ready(entry.fd, missed);
        }
        let asked = entries[*at].events | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
        entries[*at].revents = shown & asked;
    }
    entries.iter().filter(|entry| entry.revents != 0).count() as c_int
}

/// A bell for one wait: a nested epoll that shows each ring of it once, so that no other thread
/// takes it away.
struct Bell {
    place: &'static Slot,
    number: u8,
}

/// Where a bell is, made when it is first needed.
struct Slot {
    fd: AtomicI32,
    is_taken: AtomicBool,
}

/// Further waits at the same time have none.
static SLOTS: [Slot; 1024] =
    [const { Slot { fd: AtomicI32::new(-1), is_taken: AtomicBool::new(false) } }; 1024];

impl Bell {
    /// `None` if there are no descriptors left.
    fn take() -> Option<Self> {
        let is_free = |place: &&Slot| !place.is_taken.swap(true, Ordering::AcqRel);
        let (at, place) = SLOTS.iter().enumerate().find(|(_, place)| is_free(place))?;
        // Waits share the eventfds: a wake-up that was for another one is looked into, and slept on
        // again.
        let bell = Self { place, number: (at % BELLS) as u8 };
        if place.fd.load(Ordering::Acquire) < 0 {
            bell.make()?;
        }
        Some(bell)
    }

    fn make(&self) -> Option<()> {
        let made = kernel::create(CreateFlags::CLOEXEC).ok()?;
        let data = EventData::new_u64(0);
        let add = |bell: BorrowedFd<'_>| kernel::add(&made, bell, data, waking::BELL_EVENTS);
        private::with(waking::own_bell(self.number.into())?, add)?.ok()?;
        private::keep_in(&self.place.fd, made).ok()
    }

    fn clear(&self) {
        private::with(&self.place.fd, |bell| {
            let mut event =
                [kernel::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
            let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = kernel::wait(bell, &mut event[..], Some(&zero));
        });
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if tcp_only::is_on() {
            private::forget(&self.place.fd);
        }
        self.place.is_taken.store(false, Ordering::Release);
    }
}

/// Closes the bells that no wait has.
pub fn release() {
    for place in &SLOTS {
        if !place.is_taken.swap(true, Ordering::AcqRel) {
            private::forget(&place.fd);
            place.is_taken.store(false, Ordering::Release);
        }
    }
}

/// A forked child has no part in the waits of its parent, whose bells it would take away.
pub fn in_child() {
    for place in &SLOTS {
        private::forget(&place.fd);
        place.is_taken.store(false, Ordering::Relaxed);
    }
}

/// The events that the three sets of select(2) stand for.
const OF_SETS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];

/// The descriptors in the sets of select(2), with their events.
///
/// # Safety
/// The sets are null or have at least `count` bits.
unsafe fn in_sets(count: c_int, sets: [*mut fd_set; 3]) -> impl Iterator<Item = pollfd> {
    (0..count.min(libc::FD_SETSIZE as c_int)).filter_map(move |fd| {
        // SAFETY: as the caller promises.
        let is_in = |set: *mut fd_set| !set.is_null() && unsafe { libc::FD_ISSET(fd, set) };
        let asked = sets.iter().zip(OF_SETS).filter(|(set, _)| is_in(**set));
        let events = asked.fold(0, |events, (_, event)| events | event);
        (events != 0).then_some(pollfd { fd, events, revents: 0 })
    })
}

/// Whether one of the descriptors in the sets of select(2) is on a ring.
///
/// # Safety
/// The sets are null or have at least `count` bits.
pub unsafe fn has_rings(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    // SAFETY: as the caller promises.
    let mut found = unsafe { in_sets(count, sets) }.filter_map(|entry| table::find(entry.fd));
    found.any(readiness::is_by_ring)
}

/// select(2), if one of the descriptors is on a ring; else `None`.
///
/// # Safety
/// The sets are null or have at least `count` bits.
pub unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    wait: Wait<impl FnOnce() -> Option<Instant>>,
) -> Option<c_int> {
    // SAFETY: as the caller promises.
    let mut entries: Vec<_> = unsafe { in_sets(count, sets) }.collect();
    let ready = poll(&mut entries, wait)?;
    if ready < 0 {
        return Some(ready);
    }
    if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        errno::set(libc::EBADF);
        return Some(-1);
    }
    // What the kernel's select(2) counts for each set.
    let shown = [
        libc::POLLIN | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT | libc::POLLERR,
        libc::POLLPRI,
    ];
    let mut bits = 0;
    for entry in &entries {
        for ((set, event), shown) in sets.iter().zip(OF_SETS).zip(shown) {
            if entry.events & event != 0 && entry.revents & shown == 0 {
                // SAFETY: the set is not null: it has asked for the event.
                unsafe { libc::FD_CLR(entry.fd, *set) };
            } else if entry.events & event != 0 {
                bits += 1;
            }
        }
    }
    Some(bits)
}

/// poll(2) under a filter: `real` makes the program's own call, without a wait if it is given
/// `true`. Bytes of rings that were left are in memory.
///
/// # Safety
/// As poll(2) demands.
pub unsafe fn sealed(
    fds: *mut pollfd,
    count: libc::nfds_t,
    real: impl FnOnce(bool) -> c_int,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0).min(table::DESCRIPTORS);
    if fds.is_null() || count == 0 {
        return real(false);
    }
    // SAFETY: as the caller promises. The program's call changes them before they are read again.
    let is_unread = |at: usize| unsafe {
        let pollfd { fd, events, .. } = *fds.add(at);
        events & libc::POLLIN != 0 && table::find(fd).is_some_and(seccomp::has_unread)
    };
    let unread: Vec<usize> = (0..count).filter(|at| is_unread(*at)).collect();
    let mut ready = real(!unread.is_empty());
    if ready >= 0 {
        for at in unread {
            // SAFETY: as above.
            let entry = unsafe { &mut *fds.add(at) };
            ready += c_int::from(entry.revents == 0);
            entry.revents |= libc::POLLIN;
        }
    }
    ready
}

/// As [`sealed`], for the sets of select(2).
///
/// # Safety
/// The set is null or has at least `count` bits.
pub unsafe fn sealed_select(
    count: c_int,
    read: *mut fd_set,
    real: impl FnOnce(bool) -> c_int,
) -> c_int {
    let is_unread = |fd: &c_int| {
        // SAFETY: as the caller promises.
        !read.is_null()
            && unsafe { libc::FD_ISSET(*fd, read) }
            && table::find(*fd).is_some_and(seccomp::has_unread)
    };
    let unread: Vec<c_int> = (0..count.min(libc::FD_SETSIZE as c_int)).filter(is_unread).collect();
    let mut ready = real(!unread.is_empty());
    if ready >= 0 {
        for fd in unread {
            // SAFETY: as the caller promises.
            unsafe {
                ready += c_int::from(!libc::FD_ISSET(fd, read));
                libc::FD_SET(fd, read);
            }
        }
    }
    ready
}
