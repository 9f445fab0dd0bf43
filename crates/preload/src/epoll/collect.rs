//! The events of members: what rings have, and what the kernel says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{c_int, epoll_event};

use super::registry::{BELL, EDGE, EVENTS, Epoll, Member, TAG};
use crate::connection::Path;
use crate::{direct, readiness, seccomp, segments, tcp, waking};

const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// Reported whether the program asks for them or not.
const ALWAYS: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
const ENDS: u32 = ALWAYS | libc::EPOLLRDHUP as u32;
/// Between looks, if there is no bell.
const WITHOUT_BELL: Duration = Duration::from_millis(1);
/// Once shown, it is for ever.
const HUP: u32 = libc::EPOLLHUP as u32;
const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDHUP) as u32;
const OUT: u32 = libc::EPOLLOUT as u32;

/// Whose an event of the kernel is.
enum Origin {
    /// That of a member.
    Member(usize),
    /// The bell's, or that of a connection that has left: it is dropped.
    None,
    /// One that this library has no part in.
    Program,
}

impl Epoll {
    /// Begins to collect the events of one call, in which each member is reported once at most.
    pub fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Fills in events of members whose rings have something, and returns how many.
    pub fn by_rings(&mut self, events: &mut [epoll_event]) -> usize {
        let count = self.members.watched().len();
        let first = self.next;
        let round = self.round;
        let mut filled = 0;
        for at in 0..count {
            if filled == events.len() {
                break;
            }
            let at = (first + at) % count;
            let place = self.members.watched()[at];
            let event = self.members.change(place, |member| {
                let position = member.position();
                let ready = member.due_at(position);
                member.rounds = member.rounds.saturating_add(1);
                (ready != 0 && member.round != round).then(|| {
                    member.round = round;
                    member.report(ready, position)
                })
            });
            if let Some(event) = event.flatten() {
                events[filled] = event;
                filled += 1;
                self.next = at + 1;
            }
        }
        filled
    }

    /// Whether a member has something to report, or may have.
    pub fn is_any_due(&self) -> bool {
        self.members.iter_watched().any(|member| member.due() != 0) || waking::is_any_marked()
    }

    /// Returns true if the peers of all watched members are on the processor of this thread.
    pub fn share_processor(&self) -> bool {
        self.members.iter_watched().all(|member| readiness::shares_processor(member.entry))
    }

    /// Replaces what the kernel says of members by what the program is to get, drops rings of the
    /// bell, and returns how many events are left.
    pub fn of_kernel(&mut self, events: &mut [epoll_event], shown: c_int) -> usize {
        let shown = usize::try_from(shown).unwrap_or(0).min(events.len());
        let mut kept = 0;
        for at in 0..shown {
            let epoll_event { events: bits, u64: data } = events[at];
            self.owes_ring |= self.sleepers > 0 && data == TAG | u64::from(BELL);
            let event = match self.member_of(data) {
                Origin::Member(place) => self.of_member(bits, place),
                Origin::None => None,
                Origin::Program => Some(epoll_event { events: bits, u64: data }),
            };
            if let Some(event) = event {
                events[kept] = event;
                kept += 1;
            }
        }
        // What is ready now may be ready again at the next call.
        self.ask_kernel |= kept > 0;
        self.kernel_has_filled = kept == events.len();
        kept
    }

    /// Whose event the kernel has returned with `data`.
    fn member_of(&self, data: u64) -> Origin {
        let tagged = data & !u64::from(u32::MAX) == TAG;
        if tagged {
            let fd = c_int::try_from(data as u32).ok();
            let place = fd.and_then(|fd| self.members.of_descriptor(fd));
            return place.map_or(Origin::None, Origin::Member);
        }
        let place = self.members.of_data(data);
        place.map_or(Origin::Program, Origin::Member)
    }

    fn of_member(&mut self, bits: u32, place: usize) -> Option<epoll_event> {
        let round = self.round;
        self.members.watch(place);
        self.members.change(place, |member| member.shown(bits, round)).flatten()
    }

    /// Asks the peers of the watched members to ring, until [`disarm`](Self::disarm). `false`, and
    /// nothing is asked, if one has something to report already, or has moved.
    pub fn arm(&mut self) -> bool {
        if let Some(bell) = self.bell {
            self.members.iter_watched().for_each(|member| member.arm(bell));
        } else if self.members.counts().by_ring > 0 {
            // There is no descriptor for a bell: the caller looks again, and again.
            std::thread::sleep(WITHOUT_BELL);
            return false;
        }
        self.begin_sleep();
        self.owes_ring = false;
        // A look may have found the end of a ring: then the kernel has to be asked for more.
        let armed = !self.is_any_due() && !self.members.iter_watched().any(Member::is_stale);
        if !armed {
            self.disarm();
        }
        armed
    }

    /// Returns true if it has a connection that the kernel does not know.
    pub fn has_direct(&self) -> bool {
        self.members.iter().any(|(_, member)| direct::is_direct(member.entry))
    }

    /// Lets the bell make this epoll readable for another epoll, or for poll(2), when a connection
    /// that the kernel does not know has something. It may be readable without a reason, too.
    pub fn arm_for_others(&self) {
        let Some(bell) = self.bell.filter(|_| self.nested) else { return };
        let all = self.members.iter().map(|(_, member)| member);
        let direct: Vec<_> = all.filter(|member| direct::is_direct(member.entry)).collect();
        direct.iter().for_each(|member| member.arm(bell));
        if direct.iter().any(|member| member.due() != 0) {
            waking::ring_own(bell);
        }
    }

    /// Takes [`arm`](Self::arm) back, if no other thread sleeps on this epoll. When a peer rang, as
    /// [`readiness::disarm`] says.
    pub fn disarm(&mut self) -> Option<u64> {
        let is_last = self.end_sleep();
        self.members.disarm(self.bell.filter(|_| is_last)?)
    }

    /// Rings again if a thread that now goes on with its program has got a ring: the kernel shows
    /// each to one thread. One that sleeps asks the peers anew, and waits in the kernel until then.
    pub fn pass_ring_on(&mut self) {
        if std::mem::take(&mut self.owes_ring)
            && let (Some(bell), 1..) = (self.bell, self.sleepers)
        {
            waking::ring_own(bell);
        }
    }

    /// A member has changed while threads sleep: they are woken if it has something to report, and
    /// later by its peer.
    pub fn wake_sleepers(&self, place: usize) {
        let (Some(bell), Some(member)) = (self.bell, self.members.at(place)) else { return };
        if self.sleepers > 0 {
            member.arm(bell);
            if member.due() != 0 {
                waking::ring_own(bell);
            }
        }
    }
}

impl Member {
    /// What to report of what the kernel has shown.
    fn shown(&mut self, bits: u32, round: u32) -> Option<epoll_event> {
        readiness::note_kernel(self.entry, (bits & EVENTS) as i16);
        let reported = self.events & EDGE != 0 && bits & EVENTS & !self.ends == 0;
        let position = self.position();
        if self.disabled || reported && self.due_at(position) == 0 {
            return None;
        }
        let mut ready = bits | self.by_ring();
        if self.is_stale() {
            // A ring has ended just now: the kernel was not asked for what TCP has.
            ready |= self.by_kernel();
        }
        ready &= self.events & EVENTS | ALWAYS;
        (ready != 0).then(|| {
            self.round = round;
            self.report(ready, position)
        })
    }

    /// Asks its peer to ring from now on. `false`, and nothing is asked, if it has something to
    /// report, or its peer would not ring for all of it, or not for this process. No other process
    /// may have the connection: that one would take back what the peer was asked for.
    pub fn rest(&mut self, bell: u8) -> bool {
        let connection = self.entry.connection;
        let can_rest = self.events & IN != 0
            && !self.disabled
            && matches!(connection.inbound_path(), Path::Ready | Path::Ring)
            && segments::own(self.entry.number).has_marks_here()
            && segments::own(self.entry.number).peer() != Some(0)
            && connection.holders.load(Ordering::Relaxed) == 1;
        if can_rest {
            self.arm(bell);
        }
        let rests = can_rest && self.due() == 0 && !self.is_stale();
        if !rests {
            self.rounds = 0;
            if can_rest {
                self.disarm(bell);
            }
        }
        rests
    }

    fn arm(&self, bell: u8) {
        if self.disabled || !self.by_ring {
            return;
        }
        let mut events = (self.events & EVENTS) as i16;
        if self.events & EDGE != 0 && !self.was_full() {
            // There was room all the time, which was reported.
            events &= !libc::POLLOUT;
        }
        readiness::arm(self.entry, events, bell);
    }

    /// Takes what [`Epoll::arm`] has asked back. When the peer rang, as [`readiness::disarm`] says.
    pub fn disarm(&self, bell: u8) -> Option<u64> {
        readiness::disarm(self.entry, (self.events & EVENTS) as i16, bell)
    }

    fn by_ring(&self) -> u32 {
        u32::from(readiness::by_ring(self.entry).cast_unsigned())
    }

    /// What TCP has, of a connection with a direction that still is there.
    fn by_kernel(&self) -> u32 {
        if seccomp::is_sealed() {
            return 0;
        }
        let asked = readiness::for_kernel(self.entry.connection, (self.events & EVENTS) as i16);
        if asked & (libc::POLLIN | libc::POLLOUT) == 0 {
            return 0;
        }
        u32::from(tcp::ready(self.entry.fd, asked).cast_unsigned()) & self.events & EVENTS
    }

    /// The position of the stream, if reports depend on it.
    fn position(&self) -> u64 {
        if self.events & EDGE == 0 { 0 } else { readiness::position(self.entry) }
    }

    fn was_full(&self) -> bool {
        self.entry.connection.was_full.load(Ordering::Relaxed) != 0
    }

    /// The events that are to be reported now.
    fn due(&self) -> u32 {
        self.due_at(self.position())
    }

    /// The events that are to be reported, with the stream at `position`, which was read before.
    fn due_at(&self, position: u64) -> u32 {
        if self.disabled || !self.by_ring {
            return 0;
        }
        let ready = (self.by_ring() | self.ends & HUP) & (self.events & EVENTS | ALWAYS);
        if ready == 0 || self.events & EDGE == 0 {
            return ready;
        }
        let has_room = ready & OUT != 0 && self.was_full();
        // What comes is no news for a program that waits for room only.
        let moved = self.edge.is_none_or(|edge| self.events & IN != 0 && edge != position);
        if moved || has_room { ready } else { 0 }
    }

    /// Reports events. `position` was read before they were looked for: what has come since is
    /// another edge.
    fn report(&mut self, ready: u32, position: u64) -> epoll_event {
        let ready = ready | self.by_kernel();
        if self.events & EDGE != 0 {
            self.edge = Some(position);
            if ready & OUT != 0 {
                self.entry.connection.was_full.store(0, Ordering::Relaxed);
            }
        }
        self.rounds = 0;
        self.ends |= ready & ENDS;
        self.disabled = self.events & ONCE != 0;
        epoll_event { events: ready, u64: self.data }
    }
}
