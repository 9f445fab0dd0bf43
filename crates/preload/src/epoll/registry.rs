//! What is registered in which epoll.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

use levada_ring::records::{RECORDS, Reason};
use libc::{c_int, epoll_event};
use smallvec::SmallVec;

use super::instances::{self, Instance};
use super::members::Members;
use crate::connection::{Path, Phase};
use crate::table::{self, Entry};
use crate::{demote, direct, private, readiness, waking};

/// Events that a ring has no answer to.
const UNSUPPORTED: u32 = libc::EPOLLEXCLUSIVE as u32;
const IN_OR_OUT: u32 = (libc::EPOLLIN | libc::EPOLLOUT) as u32;
/// Edge-triggered.
pub const EDGE: u32 = libc::EPOLLET as u32;
/// The bits of events, without those of how they are reported.
pub const EVENTS: u32 = 0xffff;
/// The upper half of what the kernel returns with an event of a member; the lower half is its
/// descriptor, or [`BELL`]. No address of a program has these bits.
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
    /// Whether it stays on TCP.
    pub stays: bool,
    /// Whether it is looked at in each round.
    pub is_watched: bool,
    /// Rounds since it was last reported, or began to be looked at.
    pub rounds: u32,
    /// What the kernel is asked for instead of what the program has registered.
    pub asked: Option<u32>,
    /// The kernel has the registration: not of a connection that it does not know.
    pub is_in_kernel: bool,
}

/// An epoll with connections.
#[derive(Default)]
pub struct Epoll {
    /// Those that it has, on rings or not.
    pub members: Members,
    /// The bell that is registered in it.
    pub bell: Option<u8>,
    /// Where the next look at the watched ones begins: behind the last one that was reported, so
    /// that each gets its turn.
    pub next: usize,
    /// The call that collects events, or has collected them last.
    pub round: u32,
    /// Threads that sleep on it.
    pub sleepers: u32,
    /// A thread that did not sleep has got a ring of the bell while others slept.
    pub owes_ring: bool,
    /// The descriptors of this process that it has.
    pub descriptors: SmallVec<[c_int; 2]>,
    /// It is in another epoll, or other processes have it: its connections stay on TCP.
    pub nested: bool,
    /// The kernel is to be asked first at the next wait: it had something at the last one, or a
    /// connection was registered or shut since.
    pub ask_kernel: bool,
    /// The kernel had an event for each place of the last wait. The next one begins with the rings,
    /// whose events would never be reported otherwise.
    pub kernel_has_filled: bool,
}

/// For each connection, the epoll that it is in; null for none.
static IN: [AtomicPtr<Instance>; RECORDS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; RECORDS];
/// Threads of this process that sleep on an epoll.
static SLEEPING: AtomicU32 = AtomicU32::new(0);

/// See [`Guarded`](crate::lock::Guarded). A child would take back what peers were asked for: all
/// connections are looked at again.
pub fn before_fork() {
    instances::all()
        .for_each(|instance| instance.state.before_fork(|epoll| epoll.members.watch_all()));
    instances::before_fork();
}

/// See [`Guarded`](crate::lock::Guarded).
pub fn after_fork() {
    instances::all().for_each(|instance| instance.state.after_fork());
}

/// In the child, which has one thread, and that one does not sleep.
pub fn in_child() {
    SLEEPING.store(0, Ordering::Relaxed);
    for instance in instances::all() {
        instance.with(|epoll| epoll.sleepers = 0);
    }
}

impl Epoll {
    /// Takes note of connections that have moved to a ring, or back. `None` if no ring has a say;
    /// else whether the kernel is to be asked first, because one of the connections has a direction
    /// on TCP.
    pub fn refresh(&mut self, epoll: c_int) -> Option<bool> {
        // While a thread sleeps, peers stay asked.
        let bell = self.bell.filter(|_| self.sleepers == 0);
        self.members.refresh(epoll, bell);
        let counts = self.members.counts();
        let was_filled = std::mem::take(&mut self.kernel_has_filled);
        let found = (counts.by_ring > 0).then(|| {
            let kernel_first = counts.half > 0 || std::mem::take(&mut self.ask_kernel);
            kernel_first && !was_filled
        });
        if found.is_some() {
            self.register_bell(epoll);
        }
        found
    }

    /// A connection was marked: it is looked at from now on, and a thread that sleeps looks now.
    fn look_at(&mut self, number: u32) {
        for place in self.members.of_connection(number) {
            self.members.watch(place);
        }
        if let (Some(bell), 1..) = (self.bell, self.sleepers) {
            waking::ring_own(bell);
        }
    }

    /// A thread begins to sleep.
    pub fn begin_sleep(&mut self) {
        self.sleepers += 1;
        SLEEPING.fetch_add(1, Ordering::SeqCst);
        // The caller looks for marks after it, as `look_again` looks for sleepers after its mark.
        fence(Ordering::SeqCst);
    }

    /// A thread sleeps no longer. Whether it was the last one.
    pub fn end_sleep(&mut self) -> bool {
        SLEEPING.fetch_sub(1, Ordering::Relaxed);
        // The epoll may have been closed meanwhile.
        self.sleepers = self.sleepers.saturating_sub(1);
        self.sleepers == 0
    }

    fn register_bell(&mut self, epoll: c_int) {
        if self.bell.is_none() {
            self.bell = register_bell(epoll);
        }
    }

    /// A bell makes an epoll readable, for a program that asks the kernel about the epoll itself.
    fn remove_bell(&mut self, epoll: c_int) {
        if let Some(bell) = self.bell.take() {
            remove_bell(epoll, bell);
        }
    }
}

fn register_bell(epoll: c_int) -> Option<u8> {
    let number = instances::find(epoll)?.bell();
    let bell = waking::own_bell(number.into())?;
    let events = waking::BELL_EVENTS.bits();
    let mut event = epoll_event { events, u64: TAG | u64::from(BELL) };
    let add = |bell: BorrowedFd<'_>| {
        // SAFETY: the event is a local.
        unsafe {
            crate::real::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, bell.as_raw_fd(), &raw mut event)
        }
    };
    let code = private::with(bell, add)?;
    (code == 0 || crate::errno::last() == libc::EEXIST).then_some(number)
}

fn remove_bell(epoll: c_int, bell: u8) {
    let remove = |bell: BorrowedFd<'_>| {
        let none = std::ptr::null_mut();
        // SAFETY: the call takes no address.
        unsafe { crate::real::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, bell.as_raw_fd(), none) }
    };
    waking::own_bell(bell.into()).and_then(|bell| private::with(bell, remove));
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
            stays: false,
            is_watched: false,
            rounds: 0,
            asked: None,
            is_in_kernel: false,
        }
    }

    /// Whether the kernel may have something at any time. A connection that stays on TCP may; one
    /// that is new rarely has.
    pub fn is_half(&self) -> bool {
        match self.by_ring {
            true => self.asked.is_none_or(|asked| asked & IN_OR_OUT != 0),
            false => self.stays,
        }
    }

    /// Whether a direction is on a ring, and the registration is the program's.
    pub fn is_as_registered(&self) -> bool {
        self.by_ring && self.asked.is_none()
    }

    /// Registers in the kernel what it is to be asked for now.
    pub fn refresh(&mut self, epoll: c_int) {
        let by_ring = readiness::is_by_ring(self.entry);
        let is_direct = direct::is_direct(self.entry);
        if by_ring && !self.by_ring {
            // The kernel has reported what came by TCP; what is in the ring was not.
            self.edge = (!is_direct).then_some(0);
        }
        if is_direct && std::mem::take(&mut self.is_in_kernel) {
            self.control(epoll, libc::EPOLL_CTL_DEL);
            self.asked = Some(0);
        }
        self.by_ring = by_ring;
        self.stays = self.entry.connection.phase() == Phase::Settled;
        let asked = self.to_ask();
        if asked != self.asked {
            self.asked = asked;
            self.register(epoll);
        }
    }

    /// Whether the kernel is to be asked for something else than it is.
    pub fn is_stale(&self) -> bool {
        self.by_ring && self.to_ask() != self.asked
    }

    /// What the kernel is to be asked for: nothing that a ring answers. With edges, a new
    /// registration would report again what is still in TCP, or an end: they stay as they are until
    /// the inbound direction, too, is on the ring, and after its end.
    fn to_ask(&self) -> Option<u32> {
        if direct::is_direct(self.entry) {
            return Some(0);
        }
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
        if direct::is_direct(self.entry) {
            return 0;
        }
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

/// epoll_ctl(2), if a connection that can be fast is registered; else `None`: the caller makes the
/// program's own call.
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
    if direct::is_direct(entry) {
        // SAFETY: as the caller promises.
        return Some(unsafe { control_direct(epoll, operation, entry, event) });
    }
    if direct::is_on() {
        direct::claim(entry);
    }
    if operation == libc::EPOLL_CTL_DEL {
        remove(instances::find(epoll)?, entry);
        return None;
    }
    if event.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let epoll_event { events, u64: data } = unsafe { event.read_unaligned() };
    let instance = instances::find_or_make(epoll);
    let other =
        place(entry).is_some_and(|place| !instance.is_some_and(|own| std::ptr::eq(own, place)));
    // A listener is registered in the kernel as the program says.
    let is_supported = events & UNSUPPORTED == 0 || entry.connection.phase() == Phase::Listening;
    let is_usable = |one: &&'static Instance| is_supported && !other && !is_nested(one);
    let Some(instance) = instance.filter(is_usable) else {
        demote::both(entry, Reason::Unsupported);
        return None;
    };
    if instance.is_held_by_several() && entry.connection.phase() == Phase::Paired {
        demote::both(entry, Reason::Forked);
    }
    // Without marks, each round looks at all connections.
    let _ = waking::prepare_marks();
    let registered = instance.with(|state| {
        // Under the lock: a thread that waits must not register in between what it knew before.
        let mut member = Member { entry, events, data, ..Member::of(entry) };
        member.by_ring = readiness::is_by_ring(entry);
        member.asked = member.to_ask();
        if member.asked.is_none() {
            // The kernel reports what is ready now, also of a direction that is on a ring already.
            member.edge = Some(0);
        }
        let code = member.control(epoll, operation);
        member.is_in_kernel = code == 0;
        if code == 0 {
            let saved = crate::errno::last();
            set_place(entry.number, Some(instance));
            state.note(epoll, member);
            crate::errno::set(saved);
        }
        code
    });
    if registered.is_none() {
        // This is a signal handler that has interrupted a call on the epoll.
        demote::both(entry, Reason::Unsupported);
    }
    registered
}

/// epoll_ctl(2) for a connection that the kernel does not know.
///
/// # Safety
/// As [`control`].
unsafe fn control_direct(
    epoll: c_int,
    operation: c_int,
    entry: Entry,
    event: *const epoll_event,
) -> c_int {
    let fail = |number| crate::errno::fail(number) as c_int;
    let instance = instances::find_or_make(epoll);
    let is_member = |instance: &'static Instance| {
        let has = |state: &mut Epoll| {
            let place = state.members.of_descriptor(entry.fd);
            place.and_then(|place| state.members.at(place)).map(|one| one.entry.number)
        };
        instance.with(has).flatten() == Some(entry.number)
    };
    let known = instance.is_some_and(is_member);
    match operation {
        libc::EPOLL_CTL_ADD if known => return fail(libc::EEXIST),
        libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !known => return fail(libc::ENOENT),
        libc::EPOLL_CTL_DEL => {
            instance.into_iter().for_each(|instance| remove(instance, entry));
            return 0;
        }
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD if !event.is_null() => {}
        _ => return fail(if event.is_null() { libc::EFAULT } else { libc::EINVAL }),
    }
    // SAFETY: as the caller promises.
    let epoll_event { events, u64: data } = unsafe { event.read_unaligned() };
    if events & UNSUPPORTED != 0 && known {
        return fail(libc::EINVAL);
    }
    let is_other = |own: &Instance| place(entry).is_some_and(|place| !std::ptr::eq(own, place));
    let is_usable = |one: &&'static Instance| {
        let is_possible = known || !one.is_held_by_several();
        is_possible && events & UNSUPPORTED == 0 && !is_other(one)
    };
    let Some(instance) = instance.filter(is_usable) else {
        // There is no way by the kernel.
        entry.connection.note(Reason::Unsupported);
        return fail(libc::EPERM);
    };
    let _ = waking::prepare_marks();
    instance.with(|state| {
        let by_ring = true;
        let asked = Some(0);
        set_place(entry.number, Some(instance));
        state.note(epoll, Member { entry, events, data, by_ring, asked, ..Member::of(entry) });
        state.arm_for_others();
    });
    0
}

impl Epoll {
    /// The program has registered a connection, or changed its events: edges are reported anew.
    fn note(&mut self, epoll: c_int, new: Member) {
        if new.by_ring {
            self.register_bell(epoll);
        }
        self.ask_kernel |= self.members.of_descriptor(new.entry.fd).is_none();
        let place = self.members.insert(new);
        self.wake_sleepers(place);
    }
}

/// The epoll that a connection is in.
fn place(entry: Entry) -> Option<&'static Instance> {
    place_of(entry.number)
}

fn place_of(number: u32) -> Option<&'static Instance> {
    // SAFETY: the pointer is null, or that of an instance, which is never freed.
    unsafe { IN.get(number as usize)?.load(Ordering::Acquire).as_ref() }
}

fn set_place(number: u32, instance: Option<&'static Instance>) {
    if let Some(cell) = IN.get(number as usize) {
        let pointer =
            instance.map_or(std::ptr::null_mut(), |one| std::ptr::from_ref(one).cast_mut());
        cell.store(pointer, Ordering::Release);
    }
}

fn remove(instance: &'static Instance, entry: Entry) {
    let last = instance.with(|epoll| {
        if let Some(member) = epoll.members.remove(entry.fd)
            && !member.is_watched
        {
            // It was still armed.
            epoll.bell.and_then(|bell| member.disarm(bell));
        }
        epoll.members.of_connection(entry.number).is_empty()
    });
    if last == Some(true) && place(entry).is_some_and(|place| std::ptr::eq(place, instance)) {
        set_place(entry.number, None);
    }
}

/// If this is an epoll: it is watched by another one, or by poll(2), or another process has it.
/// What it has stays on TCP.
pub fn nest(epoll: c_int) {
    if let Some(instance) = instances::find(epoll) {
        nest_instance(instance);
    }
}

fn nest_instance(instance: &'static Instance) {
    let entries = instance.with(|epoll| {
        let first = !std::mem::replace(&mut epoll.nested, true);
        first.then(|| epoll.members.iter().map(|(_, member)| member.entry).collect::<Vec<_>>())
    });
    let Some(entries) = entries.flatten() else { return };
    demote::all(&entries, Reason::Unsupported);
    instance.with(|state| {
        if state.has_direct() {
            return state.arm_for_others();
        }
        if let Some(&epoll) = state.descriptors.first() {
            state.remove_bell(epoll);
        }
    });
}

/// Returns true if connections in this epoll stay on TCP.
fn is_nested(instance: &'static Instance) -> bool {
    instance.with(|epoll| epoll.nested).unwrap_or(true)
}

/// The process becomes another program, which has no epoll that is closed by that. Returns those.
/// The connections of the others are on TCP already.
pub fn before_exec() -> Vec<&'static Instance> {
    let stays_open = |epoll: c_int| {
        // SAFETY: the command takes no argument.
        let flags = unsafe { crate::real::fcntl64(epoll, libc::F_GETFD, 0) };
        flags >= 0 && flags & libc::FD_CLOEXEC == 0
    };
    let (kept, left): (Vec<c_int>, Vec<c_int>) =
        instances::descriptors().partition(|epoll| stays_open(*epoll));
    for epoll in kept {
        instances::find(epoll).and_then(|instance| instance.with(|state| state.remove_bell(epoll)));
    }
    let mut closed: Vec<&'static Instance> = Vec::new();
    for epoll in left {
        let instance = instances::find(epoll);
        let is_new =
            |one: &&'static Instance| !closed.iter().any(|other| std::ptr::eq(*other, *one));
        closed.extend(instance.filter(is_new));
    }
    closed.iter().for_each(|instance| instance.release());
    closed
}

/// Whether a connection is registered by this descriptor.
pub fn is_registered(entry: Entry) -> bool {
    let has = |epoll: &mut Epoll| epoll.members.of_descriptor(entry.fd).is_some();
    place(entry).is_some_and(|instance| instance.with(has) == Some(true))
}

/// Whether a connection is registered in a way that a ring has no answer to.
pub fn is_unsupported(entry: Entry) -> bool {
    place(entry).is_some_and(is_nested)
}

/// Returns true while a connection is in an epoll that several processes have.
pub fn is_held_by_several(entry: Entry) -> bool {
    place(entry).is_some_and(Instance::is_held_by_several)
}

/// What a connection has to report, or what carries it, has changed by other means than its peer:
/// the next round looks at it, and a thread that sleeps begins one.
pub fn look_again(number: u32) {
    if let Some(instance) = place_of(number) {
        waking::mark(number);
        fence(Ordering::SeqCst);
        if SLEEPING.load(Ordering::SeqCst) > 0 {
            waking::ring_own(instance.bell());
        }
    }
}

/// Looks at the connections that are marked, in whatever epoll they are. The caller holds no lock.
pub fn take_marks() {
    waking::take_marks(|number| {
        if let Some(instance) = place_of(number) {
            instance.with(|epoll| epoll.look_at(number));
        }
    });
}

/// The program has changed a connection in a way that the kernel reports.
pub fn changed(entry: Entry) {
    if let Some(instance) = place(entry) {
        instance.with(|state| state.ask_kernel = true);
        look_again(entry.number);
    }
}

/// Gives the kernel the program's events back, for a connection that is on TCP again.
pub fn restore(entry: Entry) {
    // A thread that is at this epoll anyway does it there.
    place(entry).and_then(|instance| {
        instance.with(|state| {
            let Some(&epoll) = state.descriptors.first() else { return };
            for place in state.members.of_connection(entry.number) {
                state.members.change(place, |member| member.refresh(epoll));
            }
        })
    });
}

/// Forgets the connections for which `is_over` returns true, and epolls without others.
pub fn forget(is_over: impl Fn(Entry) -> bool) {
    for epoll in instances::descriptors().collect::<Vec<_>>() {
        let Some(instance) = instances::find(epoll) else { continue };
        let is_empty = instance.with(|state| {
            let over = state.members.iter().map(|(_, member)| member.entry);
            for entry in over.filter(|entry| is_over(*entry)).collect::<Vec<_>>() {
                state.members.remove(entry.fd);
                set_place(entry.number, None);
            }
            state.members.watch_all();
            state.remove_bell(epoll);
            state.members.iter().next().is_none()
        });
        if is_empty == Some(true) {
            instances::remove(epoll);
        }
    }
}

/// Removes the registration of a descriptor that is about to be closed while another process has
/// the file for a moment: until then, the kernel would report events of it.
pub fn unregister(entry: Entry) {
    let Some(instance) = place(entry) else { return };
    let epoll = instance.with(|state| state.descriptors.first().copied()).flatten();
    if let Some(epoll) = epoll {
        let none = std::ptr::null_mut();
        // SAFETY: the call takes no address.
        unsafe { crate::real::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, entry.fd, none) };
    }
}

/// As [`restore`], for a connection whose inbound ring was left with unread bytes: the kernel is
/// asked for all that the program wants.
pub fn restore_in_kernel(entry: Entry) {
    let restore = |state: &mut Epoll| {
        let Some(&epoll) = state.descriptors.first() else { return };
        for place in state.members.of_connection(entry.number) {
            state.members.change(place, |member| {
                member.asked = None;
                member.register(epoll);
            });
        }
    };
    place(entry).and_then(|instance| instance.with(restore));
}

/// An epoll has one more descriptor.
pub fn duplicated(from: c_int, to: c_int) {
    if let Some(instance) = instances::find(from) {
        instances::insert(to, instance);
    }
}

/// A descriptor is about to be closed: of an epoll, or of a connection.
pub fn closing(fd: c_int) {
    if let Some(entry) = table::find(fd)
        && let Some(instance) = place(entry)
    {
        remove(instance, entry);
    }
    let Some(old) = instances::remove(fd) else { return };
    for (_, member) in old.members.iter() {
        set_place(member.entry.number, None);
    }
}
