//! The pools of this process, and the listeners that it takes connections for.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use levada_ring::queue::Open;

use super::pool::{Pair, Role};
use super::{is_direct, ports};
use crate::lock::Guarded;
use crate::{epoll, process, segments, table, waking};

/// Pools of this process.
const MAX: usize = 256;
/// Listeners of this process that take connections. The place of one is its name, modulo this.
const LISTENERS: usize = 64;

struct All {
    /// The pair whose turn it is first.
    pairs: Vec<&'static Pair>,
    /// Pairs whose pools are unmapped.
    free: Vec<&'static Pair>,
    listeners: [Option<Listed>; LISTENERS],
    /// The name of the next listener.
    next: u32,
}

/// A listener with queues, at the place of its name.
#[derive(Clone, Copy)]
struct Listed {
    name: u32,
    /// `None` before clients are let in.
    open: Option<Open>,
}

static ALL: Guarded<All> = Guarded::new(All {
    pairs: Vec::new(),
    free: Vec::new(),
    listeners: [None; LISTENERS],
    next: 0,
});
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl All {
    /// The pairs with the clients of a listener of this process.
    fn of(&self, name: u32) -> impl Iterator<Item = &&'static Pair> {
        self.pairs.iter().filter(move |pair| pair.is_of(name))
    }

    fn listed(&mut self, name: u32) -> Option<&mut Listed> {
        self.listeners.iter_mut().flatten().find(|listed| listed.name == name)
    }

    /// Lets the clients of a listener in as `change` says.
    fn change(&mut self, name: u32, change: impl FnOnce(Option<Open>) -> Option<Open>) {
        let Some(listed) = self.listed(name) else { return };
        listed.open = change(listed.open);
        if let Some(open) = listed.open {
            self.of(name).for_each(|pair| pair.let_in(open));
        }
    }

    /// Lets go of the pools that are over, unless they are used still.
    fn retire(&mut self) {
        self.free.extend(self.pairs.extract_if(.., |pair| pair.retire()));
        COUNT.store(self.pairs.len(), Ordering::Relaxed);
    }
}

/// Pools of this process.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// The pool of a listener, which has this number with the monitor, if there is one.
pub fn find(listener: u32) -> Option<&'static Pair> {
    let is_it = |pair: &&&'static Pair| pair.role() == Role::Client(listener) && !pair.is_down();
    ALL.with(|all| all.pairs.iter().find(is_it).copied())?
}

/// A process of the other side of a pool.
pub struct Member {
    /// Its slot; 0 for a client.
    pub slot: u8,
    /// Its number.
    pub number: u32,
    /// This process's end of the line.
    pub line: OwnedFd,
}

/// Notes a pool that the monitor has handed to this process and to another one.
pub fn learn(role: Role, port: u16, pool: OwnedFd, member: Member) {
    let free = ALL.with(|all| all.free.pop()).flatten();
    let Some(pair) = Pair::open(role, port, &pool, free) else {
        ALL.with(|all| all.free.extend(free));
        return;
    };
    pair.keep(pool.as_fd());
    let is_kept = pair.add(member.slot, member.number, member.line);
    let add = |all: &mut All| {
        all.retire();
        if !is_kept || all.pairs.len() >= MAX {
            return None;
        }
        all.pairs.push(pair);
        COUNT.store(all.pairs.len(), Ordering::Relaxed);
        let Role::Server(name, _) = role else { return Some(None) };
        let open = all.listed(name).and_then(|listed| listed.open);
        Some(open.inspect(|open| pair.let_in(*open)))
    };
    match ALL.with(add).flatten() {
        Some(open) => wake(open),
        None if pair.give_up() => drop(ALL.with(|all| all.free.push(pair))),
        None => {}
    }
}

/// Notes another process that has a listener, in the pool of this client.
pub fn learn_member(listener: u32, member: Member) {
    let Member { slot, number, line } = member;
    let add = |all: &mut All| {
        let is_it = |pair: &&&'static Pair| pair.role() == Role::Client(listener);
        all.pairs.iter().find(is_it).map(|pair| pair.add(slot, number, line))
    };
    ALL.with(add);
}

/// Threads that sleep on a listener look at the queues of all clients from now on.
fn wake(listener: Option<Open>) {
    if let Some(open) = listener {
        epoll::look_again(open.mark.into());
        waking::ring_all_own();
    }
}

/// Lets go of the pools that are over.
pub fn retire() {
    ALL.with(All::retire);
}

/// Returns true if a process that this one has a pool with may have ended.
pub fn may_have_ended() -> bool {
    ALL.with(|all| all.pairs.iter().any(|pair| pair.may_have_ended())) == Some(true)
}

/// The name of a new listener. `None` if there are too many.
pub fn name_listener() -> Option<u32> {
    ALL.with(|all| {
        let names = all.next..all.next.checked_add(LISTENERS as u32)?;
        let is_free = |name: &u32| all.listeners[*name as usize % LISTENERS].is_none();
        let name = names.into_iter().find(is_free)?;
        all.listeners[name as usize % LISTENERS] = Some(Listed { name, open: None });
        all.next = name + 1;
        Some(name)
    })?
}

/// Lets clients in.
pub fn open(name: u32, open: Open) {
    ALL.with(|all| all.change(name, |_| Some(open)));
    wake(Some(open));
}

/// Returns true if clients are let in.
pub fn is_open(name: u32) -> bool {
    let open = ALL.with(|all| all.listed(name).and_then(|listed| listed.open)).flatten();
    open.is_some_and(|open| open.backlog > 0)
}

/// The numbers of the listeners that take connections.
pub fn marks() -> Vec<u32> {
    let mark = |listed: &Listed| Some(listed.open?.mark.into());
    ALL.with(|all| all.listeners.iter().flatten().filter_map(mark).collect()).unwrap_or_default()
}

/// Lets no further client in. The connections that wait can still be taken.
pub fn shut(name: u32) {
    let shut = |open: Open| Open { backlog: 0, ..open };
    ALL.with(|all| all.change(name, |open| open.map(shut)));
}

/// This process no longer takes connections of a listener. Calls `reset`, if there is one, for each
/// that waits.
pub fn close(name: u32, reset: Option<fn(&'static Pair, u8, u64)>) {
    ALL.with(|all| {
        for pair in all.of(name) {
            pair.close();
            let Some(reset) = reset else { continue };
            while let Some((number, generation)) = pair.take() {
                reset(pair, number, generation);
            }
        }
        if let Some(place) = all.listeners.get_mut(name as usize % LISTENERS) {
            *place = None;
        }
    });
    retire();
}

/// Takes the connection of a client that waits for a listener, and enters its pool: the pair, the
/// segment, and the generation.
pub fn take(name: u32) -> Option<(&'static Pair, u8, u64)> {
    ALL.with(|all| {
        if !process::owns_tables() {
            return None;
        }
        let take = |(at, pair): (usize, &&'static Pair)| {
            let taken = if pair.is_of(name) { pair.take() } else { None };
            taken.map(|(number, generation)| (at, (*pair, number, generation)))
        };
        let (at, taken) = all.pairs.iter().enumerate().find_map(take)?;
        // The next one is another client's.
        all.pairs.rotate_left(at + 1);
        Some(taken)
    })?
}

/// Returns true if a connection waits for a listener.
pub fn has_waiting(name: u32) -> bool {
    count() > 0 && ALL.with(|all| all.of(name).any(|pair| pair.has_waiting())) == Some(true)
}

/// A number that changes with each connection that a client makes.
pub fn made() -> u64 {
    let sum = |all: &mut All| {
        let servers = all.pairs.iter().filter(|pair| matches!(pair.role(), Role::Server(..)));
        servers.map(|pair| pair.queue().made()).fold(0, u64::wrapping_add)
    };
    if count() > 0 { ALL.with(sum).unwrap_or(0) } else { 0 }
}

/// A thread is about to sleep until a bell. It looks for connections after this.
pub fn announce(name: u32, bell: u8) {
    ALL.with(|all| all.of(name).for_each(|pair| pair.announce(bell)));
}

/// A fork follows. No thread is at the pools until it has happened.
pub fn before_fork() {
    ALL.before_fork(|all| {
        let shared = shared();
        all.pairs.iter().for_each(|pair| pair.before_fork(&places(&shared, pair)));
    });
    ports::before_fork();
}

/// In parent and child.
pub fn after_fork() {
    ALL.after_fork();
    ports::after_fork();
}

/// In the parent of a fork.
pub fn in_parent() {
    ALL.with(|all| all.pairs.iter().for_each(|pair| pair.in_parent()));
}

/// The connections in pools: the pool, and the place in it, of each.
fn shared() -> Vec<(&'static Pair, u8)> {
    let place = |number: u32| segments::own(number).pair().map(|(pair, place, _)| (pair, place));
    table::numbers(|entry| is_direct(*entry)).into_iter().filter_map(place).collect()
}

fn places(shared: &[(&'static Pair, u8)], pair: &Pair) -> Vec<u8> {
    shared.iter().filter(|(one, _)| std::ptr::eq(*one, pair)).map(|(_, place)| *place).collect()
}

/// In the child of a fork: it has the pools, and the lines, of the connections that it has
/// inherited.
pub fn in_child() {
    let shared = shared();
    ALL.with(|all| {
        all.listeners.fill(None);
        all.pairs.iter().for_each(|pair| pair.inherit(&places(&shared, pair)));
        all.retire();
    });
    ports::in_child();
}
