//! connect(2) to a listener that has a queue.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use levada_ring::ends::End;
use levada_ring::queue::Entry as Waiting;
use levada_ring::records::{Reason, Record};
use levada_ring::{Queue, Side};
use libc::{c_int, sockaddr, socklen_t};

use super::listeners::is_new;
use super::pairs;
use super::pool::Pair;
use super::{answers, is_on};
use crate::connection::Phase;
use crate::lock::Guarded;
use crate::table::{self, Entry};
use crate::{epoll, errno, monitor, process, spin, tcp, tcp_only, waking};

/// A listener that this process has connected to.
struct Route {
    address: SocketAddr,
    /// The network namespace of the address.
    namespace: u64,
    queue: Arc<Queue>,
    pair: &'static Pair,
    /// The number that the monitor has given to this process.
    own: u32,
}

/// The listeners that this process has connected to.
struct Routes {
    known: Vec<Route>,
    /// Listeners that have no queue, as far as is known.
    others: Vec<Other>,
}

/// A listener that has no queue, as far as is known.
struct Other {
    address: SocketAddr,
    /// Connections of the kernel.
    count: u32,
    /// The time of the last question, in [`ticks`](spin::ticks).
    asked: u32,
}

/// Listeners that a process keeps in mind.
const MAX: usize = 256;

static ROUTES: Guarded<Routes> = Guarded::new(Routes { known: Vec::new(), others: Vec::new() });

/// See [`in_child`](super::in_child).
pub fn in_child() {
    ROUTES.with(|routes| {
        // The mappings are the parent's, too, and stay.
        routes.known.clear();
        routes.others.clear();
    });
}

/// In parent and child.
pub fn after_fork() {
    ROUTES.after_fork();
}

/// See [`Guarded`].
pub fn before_fork() {
    ROUTES.before_fork(|_| ());
}

/// connect(2) by the queue of the listener. Returns the result of the call; `None` if the kernel
/// has to make it.
///
/// # Safety
/// As connect(2) demands.
pub unsafe fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> Option<c_int> {
    let entry = table::find(fd).filter(|_| is_on())?;
    if super::is_direct(entry) {
        // SAFETY: as the caller promises.
        return Some(unsafe { again(entry, address, length) });
    }
    // SAFETY: as the caller promises.
    let target = unsafe { answers::address_of(address, length) }?;
    if !target.ip().is_loopback() || !may_be_direct(entry, target) {
        return None;
    }
    let route = find(fd, target)?;
    // Two threads may connect one socket.
    if !entry.connection.advance(Phase::Fresh, Phase::Offered) {
        return Some(errno::fail(libc::EALREADY) as c_int);
    }
    let code = by_queue(entry, target, route);
    if code.is_none() {
        entry.connection.advance(Phase::Offered, Phase::Fresh);
    }
    code
}

/// Makes an entry in the queue of a listener. The result of the call; `None` if there is no room.
fn by_queue(
    entry: Entry,
    target: SocketAddr,
    (queue, pair, own): (Arc<Queue>, &'static Pair, u32),
) -> Option<c_int> {
    let Some((segment, generation)) = pair.begin(target.is_ipv6()) else {
        if pair.is_known_dead() {
            forget(target);
        }
        return None;
    };
    let push = queue.push(Waiting { client: own, segment });
    let Ok(pushed) = push else {
        if !queue.is_open() {
            forget(target);
        }
        return give_back(entry, pair, (segment, generation));
    };
    // The process was alive after the entry was written: else it may have ended before, and another
    // one listens now.
    if !queue.is_open() || !pair.is_surely_alive() {
        forget(target);
        // An entry that was taken is a connection, which has perhaps ended.
        if queue.undo(pushed) {
            return give_back(entry, pair, (segment, generation));
        }
    }
    begin(entry, pair, (segment, generation), target);
    ring(pair, &queue);
    let is_nonblocking = entry.connection.nonblocking.load(Ordering::Relaxed) != 0;
    Some(match is_nonblocking {
        true => errno::fail(libc::EINPROGRESS) as c_int,
        false => 0,
    })
}

/// Returns true for a socket that nothing was done with that the kernel would have to know.
fn may_be_direct(entry: Entry, target: SocketAddr) -> bool {
    let connection = entry.connection;
    let domain = if target.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let is_nonblocking = connection.nonblocking.load(Ordering::Relaxed) != 0;
    is_new(connection)
        && process::owns_tables()
        && connection.is_special.load(Ordering::Relaxed) == 0
        && !tcp_only::is_on()
        && !epoll::is_unsupported(entry)
        && !epoll::is_held_by_several(entry)
        && is_nonblocking == tcp::is_nonblocking(entry.fd)
        && tcp::option(entry.fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(domain)
        && !answers::is_bound(entry.fd)
}

fn find(fd: c_int, target: SocketAddr) -> Option<(Arc<Queue>, &'static Pair, u32)> {
    ROUTES.with(|routes| {
        let route = routes.known.iter().find(|route| route.address == target)?;
        if tcp::namespace(fd) != Some(route.namespace) {
            return None;
        }
        Some((Arc::clone(&route.queue), route.pair, route.own))
    })?
}

/// The listener has ended.
fn forget(target: SocketAddr) {
    ROUTES.with(|routes| {
        routes.known.retain(|route| route.address != target);
        routes.others.retain(|other| other.address != target);
    });
}

/// Ends a connection of which no process can find an entry. The kernel makes it.
fn give_back(entry: Entry, pair: &'static Pair, (number, generation): (u8, u64)) -> Option<c_int> {
    let segment = pair.segment(number);
    segment.ends().end(Side::Connector, End::Closed);
    segment.bury(Side::Connector);
    segment.ends().acknowledge(Side::Acceptor, generation);
    pair.end(number, generation, true);
    entry.connection.note(Reason::None);
    None
}

fn begin(entry: Entry, pair: &'static Pair, place: (u8, u64), target: SocketAddr) {
    let port = pair.port(place.0);
    let record = entry.connection.record();
    Record::set_address(&record.local, SocketAddr::new(target.ip(), port));
    Record::set_address(&record.remote, target);
    let is_nonblocking = entry.connection.nonblocking.load(Ordering::Relaxed) != 0;
    entry.connection.is_connecting.store(is_nonblocking.into(), Ordering::Relaxed);
    entry.connection.begin_direct(pair, place);
    super::opened();
    epoll::look_again(entry.number);
}

/// Wakes the threads of the listener.
fn ring(pair: &Pair, queue: &Queue) {
    let (bells, mark) = queue.take_bells();
    let is_asked = |bell: &u8| bells >> bell & 1 != 0;
    for bell in (0..levada_ring::wire::BELLS as u8).filter(is_asked) {
        waking::ring_number(pair.peer, Some(levada_ring::Waiter::Bell { bell, mark }));
    }
}

/// connect(2) on a connection.
///
/// # Safety
/// As connect(2) demands.
unsafe fn again(entry: Entry, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: as the caller promises.
    if unsafe { answers::family_of(address, length) } == Some(libc::AF_UNSPEC) {
        // To be disconnected: nothing is underneath.
        entry.connection.note(Reason::Unsupported);
        return errno::fail(libc::EOPNOTSUPP) as c_int;
    }
    match entry.connection.is_connecting.swap(0, Ordering::Relaxed) {
        0 => errno::fail(libc::EISCONN) as c_int,
        _ => 0,
    }
}

/// The kernel has made a connection. Asks the monitor whether its listener has a queue, for the
/// connections after it.
pub fn has_connected(fd: c_int) {
    let Some(entry) = table::find(fd).filter(|_| is_on() && process::owns_tables()) else { return };
    let Some(target) = answers::peer_of(fd).filter(|target| target.ip().is_loopback()) else {
        return;
    };
    if is_worth_asking(target)
        && !tcp_only::is_on()
        && waking::prepare().is_ok()
        && let (Some(namespace), Some(found)) = (tcp::namespace(fd), monitor::find(entry))
    {
        learn(target, namespace, found);
    }
}

/// The time after which a listener is asked for again, in milliseconds.
const INTERVAL: u32 = 1000;

/// Returns true for the second connection to a listener, the fourth, the eighth, and so on, and for
/// the first one after a second.
fn is_worth_asking(target: SocketAddr) -> bool {
    let is_worth = ROUTES.with(|routes| {
        if routes.known.iter().any(|route| route.address == target) {
            return false;
        }
        let now = spin::ticks();
        let at = routes.others.iter().position(|other| other.address == target);
        let at = at.unwrap_or_else(|| {
            if routes.others.len() >= MAX {
                routes.others.remove(0);
            }
            routes.others.push(Other { address: target, count: 0, asked: now });
            routes.others.len() - 1
        });
        let other = &mut routes.others[at];
        other.count = other.count.saturating_add(1);
        // The first one is often the only one.
        let is_second = other.count > 1 && other.count.is_power_of_two();
        let is_worth = is_second || now.wrapping_sub(other.asked) >= INTERVAL;
        if is_worth {
            other.asked = now;
        }
        is_worth
    });
    is_worth == Some(true)
}

/// The monitor has found the listener.
fn learn(target: SocketAddr, namespace: u64, (peer, own, queue): (u32, u32, OwnedFd)) {
    let (Ok(queue), Some(pair)) = (Queue::open(&queue), pairs::find(peer, Side::Connector)) else {
        return;
    };
    ROUTES.with(|routes| {
        routes.others.retain(|other| other.address != target);
        routes.known.retain(|route| route.address != target);
        if routes.known.len() >= MAX {
            routes.known.remove(0);
        }
        let queue = Arc::new(queue);
        routes.known.push(Route { address: target, namespace, queue, pair, own });
    });
}
