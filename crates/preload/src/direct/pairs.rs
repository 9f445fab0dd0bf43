//! The processes that this one has a pool with, and the listeners that it takes connections for.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use levada_ring::Side;
use levada_ring::queue::{LISTENERS, NAMES, Open};

use super::pool::Pair;
use super::{is_direct, ports};
use crate::lock::Guarded;
use crate::{epoll, process, segments, table, waking};

/// Pools of this process.
const MAX: usize = 256;

struct All {
    /// The pair whose turn it is first.
    pairs: Vec<&'static Pair>,
    /// Pairs whose pools are unmapped.
    free: Vec<&'static Pair>,
    listeners: [Listed; LISTENERS],
    /// The name of the next listener.
    next: u32,
}

/// A listener with queues, at the place of its name.
#[derive(Clone, Copy)]
enum Listed {
    Free,
    /// Connections may wait, and no more are let in.
    Shut(u32),
    Open(Open),
}

impl Listed {
    fn name(&self) -> Option<u32> {
        match self {
            Self::Free => None,
            Self::Shut(name) => Some(*name),
            Self::Open(open) => Some(open.name),
        }
    }
}

static ALL: Guarded<All> = Guarded::new(All {
    pairs: Vec::new(),
    free: Vec::new(),
    listeners: [Listed::Free; LISTENERS],
    next: 0,
});
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl All {
    /// Those in which this process listens.
    fn as_server(&self) -> impl Iterator<Item = &&'static Pair> {
        self.pairs.iter().filter(|pair| pair.is_of_server())
    }

    fn place(&mut self, name: u32) -> Option<&mut Listed> {
        self.listeners.iter_mut().find(|listed| listed.name() == Some(name))
    }

    fn shut(&mut self, name: u32) {
        if let Some(place) = self.place(name) {
            *place = Listed::Shut(name);
            self.as_server().for_each(|pair| pair.queue().close(name));
        }
    }

    /// Lets go of the pools with processes that have ended, unless they are used still.
    fn retire(&mut self) {
        let names = || self.listeners.iter().filter_map(Listed::name);
        let is_over = |pair: &mut &'static Pair| {
            let pair = *pair;
            pair.retire(|| names().any(|name| pair.has_waiting(name)))
        };
        self.free.extend(self.pairs.extract_if(.., is_over));
        COUNT.store(self.pairs.len(), Ordering::Relaxed);
    }
}

/// Pools of this process.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// The pool with a process, if there is one.
pub fn find(peer: u32, side: Side) -> Option<&'static Pair> {
    let is_it =
        |pair: &&&'static Pair| pair.peer() == peer && pair.side() == side && !pair.is_down();
    ALL.with(|all| all.pairs.iter().find(is_it).copied())?
}

/// Notes a pool that the monitor has handed to this process and to another one, with this one's end
/// of the line.
pub fn learn(peer: u32, side: Side, port: u16, [pool, line]: [OwnedFd; 2]) {
    let free = ALL.with(|all| all.free.pop()).flatten();
    let Some(pair) = Pair::open((peer, side), port, &pool, free) else {
        ALL.with(|all| all.free.extend(free));
        return;
    };
    let is_kept = pair.keep(pool.as_fd(), line);
    let add = |all: &mut All| {
        all.retire();
        if !is_kept || all.pairs.len() >= MAX {
            return None;
        }
        all.pairs.push(pair);
        COUNT.store(all.pairs.len(), Ordering::Relaxed);
        let open = all.listeners.iter().filter_map(|listed| match listed {
            Listed::Open(open) if side == Side::Acceptor => Some(*open),
            _ => None,
        });
        Some(open.inspect(|open| pair.queue().open(*open)).collect::<Vec<Open>>())
    };
    match ALL.with(add).flatten() {
        Some(open) => wake(&open),
        None if pair.give_up() => drop(ALL.with(|all| all.free.push(pair))),
        None => {}
    }
}

/// Threads that sleep on these listeners look at the queues of all clients from now on.
fn wake(listeners: &[Open]) {
    if !listeners.is_empty() {
        listeners.iter().for_each(|open| epoll::look_again(open.mark.into()));
        waking::ring_all_own();
    }
}

/// Lets go of the pools with processes that have ended.
pub fn retire() {
    ALL.with(All::retire);
}

/// Returns true if a process that this one has a pool with has ended, or one of its processes may
/// have that share connections.
pub fn may_have_ended() -> bool {
    let is_it = |pair: &&&'static Pair| pair.is_down() || pair.has_forked_peer();
    ALL.with(|all| all.pairs.iter().filter(is_it).count() > 0) == Some(true)
}

/// The name of a new listener. `None` if there are too many.
pub fn name_listener() -> Option<u32> {
    ALL.with(|all| {
        let names = all.next..NAMES.min(all.next.saturating_add(LISTENERS as u32));
        let is_free =
            |name: &u32| matches!(all.listeners[*name as usize % LISTENERS], Listed::Free);
        let name = names.into_iter().find(is_free)?;
        all.listeners[name as usize % LISTENERS] = Listed::Shut(name);
        all.next = name + 1;
        Some(name)
    })?
}

/// Lets clients in, unless `is_shared` says, while no fork is under way, that another process has
/// the listener, too. Returns true if it is open.
pub fn open(listener: Open, is_shared: impl FnOnce() -> bool) -> bool {
    let is_open = ALL.with(|all| {
        if is_shared() {
            return false;
        }
        let Some(place) = all.place(listener.name) else { return false };
        *place = Listed::Open(listener);
        all.as_server().for_each(|pair| pair.queue().open(listener));
        true
    });
    let is_open = is_open == Some(true);
    wake(if is_open { std::slice::from_ref(&listener) } else { &[] });
    is_open
}

/// Returns true if clients are let in.
pub fn is_open(name: u32) -> bool {
    let is_it = |listed: &Listed| matches!(listed, Listed::Open(open) if open.name == name);
    ALL.with(|all| all.listeners.iter().any(is_it)) == Some(true)
}

/// Lets no further client in. The connections that wait can still be taken.
pub fn shut(name: u32) {
    ALL.with(|all| all.shut(name));
}

/// The listener has ended: the caller has shut it ([`shut`]), and taken what has waited.
pub fn forget_listener(name: u32) {
    ALL.with(|all| {
        if let Some(place) = all.place(name) {
            *place = Listed::Free;
        }
    });
}

/// Takes the connection of a client that waits for a listener, and enters its pool: the pair, the
/// segment, and the generation.
pub fn take(name: u32) -> Option<(&'static Pair, u8, u64)> {
    ALL.with(|all| {
        if !process::owns_tables() {
            return None;
        }
        let take = |(at, pair): (usize, &&'static Pair)| {
            let taken = if pair.is_of_server() { pair.take(name) } else { None };
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
    count() > 0 && ALL.with(|all| all.as_server().any(|pair| pair.has_waiting(name))) == Some(true)
}

/// A number that changes with each connection that a client makes.
pub fn made() -> u64 {
    let sum =
        |all: &mut All| all.as_server().map(|pair| pair.queue().made()).fold(0, u64::wrapping_add);
    if count() > 0 { ALL.with(sum).unwrap_or(0) } else { 0 }
}

/// A thread is about to sleep until a bell. It looks for connections after this.
pub fn announce(name: u32, bell: u8) {
    ALL.with(|all| all.as_server().for_each(|pair| pair.queue().announce(name, bell)));
}

/// A fork follows: the listeners would be those of two processes. What waits, this one takes. No
/// thread is at the pools during the fork.
pub fn before_fork() {
    ALL.before_fork(|all| {
        let names: Vec<u32> = all.listeners.iter().filter_map(Listed::name).collect();
        names.into_iter().for_each(|name| all.shut(name));
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
    let entries = table::entries().filter(|entry| is_direct(*entry));
    let mut numbers: Vec<u32> = entries.map(|entry| entry.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let place = |number: u32| segments::own(number).pair().map(|(pair, place, _)| (pair, place));
    numbers.into_iter().filter_map(place).collect()
}

fn places(shared: &[(&'static Pair, u8)], pair: &Pair) -> Vec<u8> {
    shared.iter().filter(|(one, _)| std::ptr::eq(*one, pair)).map(|(_, place)| *place).collect()
}

/// In the child of a fork: it has the pools, and the lines, of the connections that it has
/// inherited.
pub fn in_child() {
    let shared = shared();
    ALL.with(|all| {
        all.listeners.fill(Listed::Free);
        all.pairs.iter().for_each(|pair| pair.inherit(&places(&shared, pair)));
        all.retire();
    });
    ports::in_child();
}
