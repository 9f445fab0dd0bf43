//! What is registered in which epoll.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use levada_ring::records::{RECORDS, Reason};
use levada_ring::wire::BELLS;
use libc::{c_int, epoll_event};

use crate::connection::{Path, Phase};
use crate::lock::Guarded;
use crate::table::{self, DESCRIPTORS, Entry};
use crate::{demote, monitor, readiness};

/// Events that a ring has no answer to.
const UNSUPPORTED: u32 = libc::EPOLLEXCLUSIVE as u32;
const IN_OR_OUT: u32 = (libc::EPOLLIN | libc::EPOLLOUT) as u32;
/// Edge-triggered.
pub const EDGE: u32 = libc::EPOLLET as u32;
/// The bits of events, without those of how they are reported.
pub const EVENTS: u32 = 0xffff;
/// The upper half of what the kernel returns with an event of a member; the lower half is its descriptor, or [`BELL`]. No address of
/// a program has these bits.
pub const TAG: u64 = 0x7f9b_5e1d << 32;
/// In place of a descriptor, for the bell.
pub const BELL: u32 = u32::MAX;

/// A connection in an epoll.
pub struct Member {
    /// The connection, by the descriptor that was registered.
    pub entry: Entry,
    /// What the program waits for.
    pub events: u32,
    /// What the program gets back with it.
    pub data: u64,
    /// Where the stream was when an edge was last reported; `None` to report in any case.
    pub edge: Option<u64>,
    /// The call that has reported it last.
    pub round: u32,
    /// Ends of the stream that were reported.
    pub ends: u32,
    /// With EPOLLONESHOT: it was reported, and is not until it is registered again.
    pub disabled: bool,
    /// Whether rings have a say.
    pub by_ring: bool,
    /// What the kernel is asked for instead of what the program has registered.
    pub asked: Option<u32>,
}

/// An epoll with connections.
#[derive(Default)]
pub struct Epoll {
    /// Those that it has, on rings or not.
    pub members: Vec<Member>,
    /// The bell that is registered in it.
    pub bell: Option<u8>,
    /// Where the next look begins: behind the last member that was reported, so that each gets its turn.
    pub next: usize,
    /// The call that collects events, or has collected them last.
    pub round: u32,
    /// Threads that sleep on it.
    pub sleepers: u32,
    /// It is in another epoll, or has a second descriptor: its connections stay on TCP.
    nested: bool,
    /// The kernel is to be asked first at the next wait: it had something at the last one, or a connection was registered or shut since.
    pub ask_kernel: bool,
}

type Shared = Guarded<Epoll>;

/// Epolls by descriptor; null where there never was one. They are kept when the descriptor is closed, empty.
static EPOLLS: [AtomicPtr<Shared>; DESCRIPTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS];
/// No epoll from here on is known.
static END: AtomicU32 = AtomicU32::new(0);
/// For each connection, the epoll that it is in, plus 1.
static IN: [AtomicI32; RECORDS] = [const { AtomicI32::new(0) }; RECORDS];

/// An epoll that connections were registered in.
pub fn find(epoll: c_int) -> Option<&'static Shared> {
    let cell = EPOLLS.get(usize::try_from(epoll).ok()?)?;
    // SAFETY: the pointer is null or of a box that is never freed.
    unsafe { cell.load(Ordering::Acquire).as_ref() }
}

/// Whether connections were ever registered in an epoll with this descriptor.
pub fn is_known(epoll: c_int) -> bool {
    find(epoll).is_some()
}

fn find_or_make(epoll: c_int) -> Option<&'static Shared> {
    if let Some(known) = find(epoll) {
        return Some(known);
    }
    let cell = EPOLLS.get(usize::try_from(epoll).ok()?)?;
    let new = Box::into_raw(Box::new(Guarded::new(Epoll::default())));
    let null = std::ptr::null_mut();
    if cell.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was faster; this box was shown to no one.
        drop(unsafe { Box::from_raw(new) });
    }
    END.fetch_max(epoll.unsigned_abs() + 1, Ordering::Relaxed);
    find(epoll)
}

/// The program has made an epoll. Threads may wait on it before it has connections.
pub fn created(epoll: c_int) {
    if crate::settings::socket().is_some() {
        find_or_make(epoll);
    }
}

fn all() -> impl Iterator<Item = &'static Shared> {
    (0..END.load(Ordering::Relaxed)).filter_map(|fd| c_int::try_from(fd).ok().and_then(find))
}

/// See [`Guarded`].
pub fn before_fork() {
    all().for_each(Guarded::before_fork);
}

/// See [`Guarded`].
pub fn after_fork() {
    all().for_each(Guarded::after_fork);
}

impl Epoll {
    /// Takes note of connections that have moved to a ring, or back. `None` if no ring has a say; else whether the kernel is to be asked
    /// first, because one of the connections has a direction on TCP.
    pub fn refresh(&mut self, epoll: c_int) -> Option<bool> {
        let (mut any, mut kernel_first) = (false, false);
        for member in &mut self.members {
            let by_ring = member.refresh(epoll);
            // A connection that stays on TCP may have something at any time; one that is new rarely has.
            let half = match by_ring {
                true => member.asked.is_none_or(|asked| asked & IN_OR_OUT != 0),
                false => member.entry.connection.phase() == Phase::Settled,
            };
            kernel_first |= half;
            any |= by_ring;
        }
        let found = any.then_some(kernel_first || std::mem::take(&mut self.ask_kernel));
        if found.is_some() {
            self.register_bell(epoll);
        }
        found
    }

    fn register_bell(&mut self, epoll: c_int) {
        if self.bell.is_none() {
            self.bell = register_bell(epoll);
        }
    }
}

fn register_bell(epoll: c_int) -> Option<u8> {
    let number = (epoll.unsigned_abs() as usize % BELLS) as u8;
    let bell = monitor::own_bell(number.into())?;
    let events = libc::EPOLLIN as u32 | EDGE;
    let mut event = epoll_event { events, u64: TAG | u64::from(BELL) };
    // SAFETY: the event is a local.
    let code = unsafe {
        crate::real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, bell.as_raw_fd(), &raw mut event)
    };
    (code == 0 || crate::errno::last() == libc::EEXIST).then_some(number)
}

impl Member {
    fn of(entry: Entry) -> Self {
        Self {
            entry,
            events: 0,
            data: 0,
            edge: None,
            round: 0,
            ends: 0,
            disabled: false,
            by_ring: false,
            asked: None,
        }
    }

    /// Registers in the kernel what it is to be asked for now. Whether rings have a say.
    fn refresh(&mut self, epoll: c_int) -> bool {
        let by_ring = readiness::is_by_ring(self.entry);
        if by_ring && !self.by_ring {
            // The kernel has reported what came by TCP; what is in the ring was not.
            self.edge = Some(0);
        }
        self.by_ring = by_ring;
        let asked = self.to_ask();
        if asked != self.asked {
            self.asked = asked;
            self.register(epoll);
        }
        by_ring
    }

    /// Whether the kernel is to be asked for something else than it is.
    pub fn is_stale(&self) -> bool {
        self.by_ring && self.to_ask() != self.asked
    }

    /// What the kernel is to be asked for: nothing that a ring answers. With edges, a new registration would report again what is
    /// still in TCP, or an end: they stay as they are until the inbound direction, too, is on the ring, and after its end.
    fn to_ask(&self) -> Option<u32> {
        if self.disabled {
            // A new registration of what was reported once would report it again.
            let level = self.asked.is_some_and(|asked| asked & IN_OR_OUT != 0);
            return if level { Some(EDGE) } else { self.asked };
        }
        let connection = self.entry.connection;
        let [inbound, outbound] = [connection.inbound_path(), connection.outbound_path()];
        let edges = self.events & EDGE != 0;
        let over = self.ends & libc::EPOLLRDHUP as u32 != 0
            && (outbound == Path::Ring || connection.write_shut.load(Ordering::Relaxed) != 0);
        if edges && over {
            return self.asked;
        }
        let on_ring = inbound == Path::Ring || outbound == Path::Ring && !edges;
        (self.by_ring && on_ring).then(|| {
            let bits = readiness::for_kernel(connection, (self.events & EVENTS) as i16);
            let asked = u32::from(bits.cast_unsigned());
            // That the peer's end is closed is said once; other events as the program wants them.
            if edges || asked & IN_OR_OUT == 0 { asked | EDGE } else { asked }
        })
    }

    fn register(&self, epoll: c_int) -> c_int {
        self.control(epoll, libc::EPOLL_CTL_MOD)
    }

    /// epoll_ctl(2), with what the kernel is to be asked for.
    fn control(&self, epoll: c_int, operation: c_int) -> c_int {
        let fd = self.entry.fd;
        let mut event = match self.asked {
            Some(events) => epoll_event { events, u64: TAG | u64::from(fd.unsigned_abs()) },
            None => epoll_event { events: self.events, u64: self.data },
        };
        // SAFETY: the event is a local.
        unsafe { crate::real::epoll_ctl(epoll, operation, fd, &raw mut event) }
    }
}

/// epoll_ctl(2), if a connection that can be fast is registered; else `None`: the caller makes the program's own call.
///
/// # Safety
/// `event` is as epoll_ctl(2) demands.
pub unsafe fn control(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *const epoll_event,
) -> Option<c_int> {
    nest(fd);
    let entry = table::find(fd)?;
    if operation == libc::EPOLL_CTL_DEL {
        remove(epoll, entry);
        return None;
    }
    if event.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let epoll_event { events, u64: data } = unsafe { event.read_unaligned() };
    let shared = find_or_make(epoll)?;
    let other = place(entry).is_some_and(|place| place != epoll);
    let nested = shared.with(|epoll| epoll.nested).unwrap_or(true);
    if events & UNSUPPORTED != 0 || nested || other {
        demote::both(entry, Reason::Unsupported);
        return None;
    }
    let mut member = Member { entry, events, data, ..Member::of(entry) };
    member.by_ring = readiness::is_by_ring(entry);
    member.asked = member.to_ask();
    if member.asked.is_none() {
        // The kernel reports what is ready now, also of a direction that is on a ring already.
        member.edge = Some(0);
    }
    let code = member.control(epoll, operation);
    if code == 0 {
        let saved = crate::errno::last();
        note(epoll, shared, member);
        crate::errno::set(saved);
    }
    Some(code)
}

/// The program has registered a connection, or changed its events: edges are reported anew.
fn note(epoll: c_int, shared: &Shared, new: Member) {
    if let Some(cell) = IN.get(new.entry.number as usize) {
        cell.store(epoll + 1, Ordering::Release);
    }
    shared.with(|state| {
        let known = state.members.iter().position(|member| member.entry.fd == new.entry.fd);
        let place = known.unwrap_or(state.members.len());
        if new.by_ring {
            state.register_bell(epoll);
        }
        match known {
            Some(place) => state.members[place] = new,
            None => state.members.push(new),
        }
        state.ask_kernel |= known.is_none();
        state.wake_sleepers(place);
    });
}

/// The epoll that a connection is in.
fn place(entry: Entry) -> Option<c_int> {
    let known = IN.get(entry.number as usize)?.load(Ordering::Acquire);
    (known > 0).then_some(known - 1)
}

fn remove(epoll: c_int, entry: Entry) {
    if let Some(shared) = find(epoll) {
        shared.with(|epoll| epoll.members.retain(|member| member.entry.fd != entry.fd));
    }
    if place(entry) == Some(epoll)
        && let Some(cell) = IN.get(entry.number as usize)
    {
        cell.store(0, Ordering::Release);
    }
}

/// An epoll is watched by another one, by poll(2), or has a second descriptor: what it has stays on TCP.
pub fn nest(epoll: c_int) {
    let Some(shared) = find(epoll) else { return };
    let entries = shared.with(|epoll| {
        let first = !std::mem::replace(&mut epoll.nested, true);
        first.then(|| epoll.members.iter().map(|member| member.entry).collect::<Vec<_>>())
    });
    for entry in entries.flatten().into_iter().flatten() {
        demote::both(entry, Reason::Unsupported);
    }
}

/// Whether a connection is registered by this descriptor.
pub fn is_registered(entry: Entry) -> bool {
    let shared = place(entry).and_then(find);
    let has = |epoll: &mut Epoll| epoll.members.iter().any(|member| member.entry.fd == entry.fd);
    shared.is_some_and(|shared| shared.with(has) == Some(true))
}

/// Whether a connection is registered in a way that a ring has no answer to.
pub fn is_unsupported(entry: Entry) -> bool {
    let shared = place(entry).and_then(find);
    shared.is_some_and(|shared| shared.with(|epoll| epoll.nested).unwrap_or(true))
}

/// A direction of a connection has moved to a ring, in a thread that may not be the one that waits for it.
pub fn moved(entry: Entry) {
    let Some(epoll) = place(entry) else { return };
    let Some(shared) = find(epoll) else { return };
    shared.with(|state| {
        let of_it = |member: &Member| member.entry.number == entry.number;
        if state.sleepers > 0
            && let Some(place) = state.members.iter().position(of_it)
        {
            if state.members[place].refresh(epoll) {
                state.register_bell(epoll);
            }
            state.wake_sleepers(place);
        }
    });
}

/// The program has changed a connection in a way that the kernel reports.
pub fn changed(entry: Entry) {
    if let Some(shared) = place(entry).and_then(find) {
        shared.with(|state| state.ask_kernel = true);
    }
}

/// Gives the kernel the program's events back, for a connection that is on TCP again.
pub fn restore(entry: Entry) {
    let Some(epoll) = place(entry) else { return };
    let Some(shared) = find(epoll) else { return };
    // A thread that is at this epoll anyway does it there.
    shared.with(|state| {
        for member in state.members.iter_mut().filter(|member| member.entry.number == entry.number)
        {
            member.refresh(epoll);
        }
    });
}

/// A descriptor is about to be closed: of an epoll, or of a connection.
pub fn closing(fd: c_int) {
    if let Some(entry) = table::find(fd)
        && let Some(epoll) = place(entry)
    {
        remove(epoll, entry);
    }
    if let Some(shared) = find(fd) {
        let old = shared.with(std::mem::take);
        for member in old.into_iter().flat_map(|epoll| epoll.members) {
            if let Some(cell) = IN.get(member.entry.number as usize) {
                cell.store(0, Ordering::Release);
            }
        }
    }
}
