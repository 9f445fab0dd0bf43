//! The connections of an epoll, and which of them are looked at.
//!
//! Where many are looked at, one that has had nothing for some rounds *rests*: it stays armed, so
//! that its peer marks it and rings, and no round looks at it until then. So thousands of quiet
//! connections cost nothing.

use std::hash::Hash;

use libc::c_int;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::registry::Member;
use crate::waking;

/// Rounds without an event after which a connection rests.
const ROUNDS: u32 = 16;
/// To look at so many costs less than their peers' marks and bells.
const FEW: usize = 32;

/// Places of members. More than one has the same key only after dup(2).
type Places = SmallVec<[usize; 2]>;

/// All of an epoll. Some programs add and remove a connection for each message, so that must cost
/// little. Its keys are the program's own: their hash need not resist an attacker.
#[derive(Default)]
pub struct Members {
    all: Vec<Option<Member>>,
    free: Vec<usize>,
    by_descriptor: FxHashMap<c_int, usize>,
    by_connection: FxHashMap<u32, Places>,
    /// By what the program gets back with an event.
    by_data: FxHashMap<u64, Places>,
    /// The places of those that are looked at in each round.
    watched: Vec<usize>,
    counts: Counts,
}

/// How many members there are of each kind.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// On rings, in one direction at least.
    pub by_ring: usize,
    /// The kernel may have something of them at any time.
    pub half: usize,
}

impl Counts {
    fn change(&mut self, member: &Member, change: impl Fn(usize) -> usize) {
        for (count, counts) in
            [(&mut self.by_ring, member.by_ring), (&mut self.half, member.is_half())]
        {
            if counts {
                *count = change(*count);
            }
        }
    }
}

impl Members {
    /// How many there are of each kind.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Where the member with a descriptor is.
    pub fn of_descriptor(&self, fd: c_int) -> Option<usize> {
        self.by_descriptor.get(&fd).copied()
    }

    /// Where the members of a connection are: one for each of its descriptors that is registered.
    pub fn of_connection(&self, number: u32) -> Places {
        self.by_connection.get(&number).cloned().unwrap_or_default()
    }

    /// Where the member on a ring is whose registration still is the program's, and has this data.
    pub fn of_data(&self, data: u64) -> Option<usize> {
        if self.counts.by_ring == 0 {
            return None;
        }
        let is_it = |place: &&usize| self.at(**place).is_some_and(Member::is_as_registered);
        self.by_data.get(&data)?.iter().find(is_it).copied()
    }

    /// A member.
    pub fn at(&self, place: usize) -> Option<&Member> {
        self.all.get(place)?.as_ref()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.all.iter().enumerate().filter_map(|(place, member)| Some((place, member.as_ref()?)))
    }

    /// The places of those that are looked at.
    pub fn watched(&self) -> &[usize] {
        &self.watched
    }

    /// Those that are looked at.
    pub fn iter_watched(&self) -> impl Iterator<Item = &Member> {
        self.watched.iter().filter_map(|place| self.at(*place))
    }

    /// Changes a member.
    pub fn change<T>(&mut self, place: usize, change: impl FnOnce(&mut Member) -> T) -> Option<T> {
        let member = self.all.get_mut(place)?.as_mut()?;
        self.counts.change(member, |count| count.saturating_sub(1));
        let result = change(member);
        self.counts.change(member, |count| count + 1);
        Some(result)
    }

    /// Adds a member, in place of the one with this descriptor if there is one. It is looked at.
    /// Where it is.
    pub fn insert(&mut self, member: Member) -> usize {
        if let Some(place) = self.of_registration(&member) {
            self.change(place, |known| *known = Member { is_watched: known.is_watched, ..member });
            self.watch(place);
            return place;
        }
        self.remove(member.entry.fd);
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.by_descriptor.insert(member.entry.fd, place);
        self.by_connection.entry(member.entry.number).or_default().push(place);
        self.by_data.entry(member.data).or_default().push(place);
        self.counts.change(&member, |count| count + 1);
        self.all[place] = Some(Member { is_watched: false, ..member });
        self.watch(place);
        place
    }

    /// Where the member is that differs from this one in no more than its events, and in what was
    /// reported of them.
    fn of_registration(&self, member: &Member) -> Option<usize> {
        let place = self.of_descriptor(member.entry.fd)?;
        let known = self.at(place)?;
        (known.entry.number == member.entry.number && known.data == member.data).then_some(place)
    }

    /// Removes the member with a descriptor.
    pub fn remove(&mut self, fd: c_int) -> Option<Member> {
        let place = self.by_descriptor.remove(&fd)?;
        let member = self.all.get_mut(place)?.take()?;
        self.free.push(place);
        self.counts.change(&member, |count| count.saturating_sub(1));
        remove_place(&mut self.by_connection, member.entry.number, place);
        remove_place(&mut self.by_data, member.data, place);
        // The connection that was added last is often the one that is removed.
        if let Some(at) = self.watched.iter().rposition(|other| *other == place) {
            self.watched.remove(at);
        }
        Some(member)
    }

    /// Looks at a member from now on.
    pub fn watch(&mut self, place: usize) {
        if let Some(Some(member)) = self.all.get_mut(place) {
            member.rounds = 0;
            if !std::mem::replace(&mut member.is_watched, true) {
                self.watched.push(place);
            }
        }
    }

    /// Looks at all.
    pub fn watch_all(&mut self) {
        (0..self.all.len()).for_each(|place| self.watch(place));
    }

    /// Takes note of those that have moved to a ring, or back, and lets those rest that had nothing
    /// for some time. `bell` is what their peers ring.
    pub fn refresh(&mut self, epoll: c_int, bell: Option<u8>) {
        for at in 0..self.watched.len() {
            self.change(self.watched[at], |member| member.refresh(epoll));
        }
        if !waking::has_marks() {
            return;
        }
        // Those that are on TCP are marked when they move.
        self.unwatch(|member| !member.by_ring);
        if let Some(bell) = bell.filter(|_| self.watched.len() > FEW) {
            self.unwatch(|member| member.rounds > ROUNDS && member.rest(bell));
        }
    }

    /// Takes back what the peers of those that are looked at were asked for. When one rang, as
    /// [`disarm`](crate::readiness::disarm) says.
    pub fn disarm(&self, bell: u8) -> Option<u64> {
        self.iter_watched().filter_map(|member| member.disarm(bell)).max()
    }

    fn unwatch(&mut self, which: impl Fn(&mut Member) -> bool) {
        let all = &mut self.all;
        self.watched.retain(|place| {
            let Some(Some(member)) = all.get_mut(*place) else { return false };
            member.is_watched = !which(member);
            member.is_watched
        });
    }
}

fn remove_place<K: Eq + Hash>(places: &mut FxHashMap<K, Places>, key: K, place: usize) {
    if let Some(all) = places.get_mut(&key) {
        all.retain(|other| *other != place);
        if all.is_empty() {
            places.remove(&key);
        }
    }
}
