//! connect(2) to a listener by a queue.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use levada_ring::records::{Reason, Record};
use libc::{c_int, sockaddr, socklen_t};

use super::listeners::is_new;
use super::pairs;
use super::pool::{Made, Pair};
use super::{answers, is_on, spares};
use crate::connection::Phase;
use crate::lock::Guarded;
use crate::segments::User;
use crate::table::{self, Entry};
use crate::{epoll, errno, monitor, process, spin, tcp, tcp_only, waking};

/// A listener that this process has connected to.
struct Target {
    address: SocketAddr,
    /// The network namespace of the address.
    namespace: u64,
    /// Connections of the kernel.
    count: u32,
    /// The time of the last question to the monitor, in [`ticks`](spin::ticks).
    asked: u32,
    /// The monitor has a route, whose pool this process no longer has.
    lacks_pool: bool,
    route: Option<Route>,
}

/// How a listener is reached.
#[derive(Clone, Copy)]
struct Route {
    pair: &'static Pair,
    /// The number of the listener: the pair may have become the pair of another one.
    listener: u32,
    /// It was found open. Before, its process has not heard of this one, or it was closed already.
    was_open: bool,
}

/// Listeners that a process keeps in mind.
const MAX: usize = 256;

static TARGETS: Guarded<Vec<Target>> = Guarded::new(Vec::new());

/// See [`in_child`](super::in_child).
pub fn in_child() {
    TARGETS.with(Vec::clear);
}

/// In parent and child.
pub fn after_fork() {
    TARGETS.after_fork();
}

/// See [`Guarded`].
pub fn before_fork() {
    TARGETS.before_fork(|_| ());
}

/// connect(2) without the kernel. Returns the result of the call; `None` if the kernel has to make
/// it.
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
    let route = find(entry, target)?;
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

/// The result of the call; `None` if there is no room, or the listener is not open.
fn by_queue(entry: Entry, target: SocketAddr, route: Route) -> Option<c_int> {
    let Route { pair, listener, was_open } = route;
    let place = match pair.connect(listener, target.is_ipv6()) {
        Made::Connection(place) => place,
        Made::NoRoom => return None,
        Made::Closed => {
            if was_open {
                note(target, |_| None);
            }
            return None;
        }
    };
    // The pool stays mapped, also if another thread closes the connection.
    let _user = User::asleep(entry.number);
    begin(entry, pair, place, target);
    pair.ring();
    if !was_open {
        note(target, |route| Some(Route { was_open: true, ..route }));
    }
    Some(match entry.connection.nonblocking.load(Ordering::Relaxed) {
        0 => 0,
        _ => errno::fail(libc::EINPROGRESS) as c_int,
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
        && match spares::find(entry) {
            // The kernel knows nothing of it.
            Some((own, _)) => own == domain,
            None => {
                is_nonblocking == tcp::is_nonblocking(entry.fd)
                    && tcp::option(entry.fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(domain)
                    && !answers::is_bound(entry.fd)
            }
        }
}

fn find(entry: Entry, target: SocketAddr) -> Option<Route> {
    let is_known =
        TARGETS.with(|all| all.iter().any(|one| one.address == target && one.route.is_some()));
    if is_known != Some(true) {
        return None;
    }
    let namespace = match spares::find(entry) {
        Some((_, namespace)) => namespace,
        None => tcp::namespace(entry.fd)?,
    };
    TARGETS.with(|all| all.iter().find(|one| one.is_in(target, namespace))?.route)?
}

/// Changes what is known of a listener. Without a route, the monitor is asked again.
fn note(target: SocketAddr, change: impl Fn(Route) -> Option<Route>) {
    TARGETS.with(|all| {
        let known = all.iter_mut().filter(|one| one.address == target);
        known.for_each(|one| one.route = one.route.and_then(&change));
    });
}

fn begin(entry: Entry, pair: &'static Pair, place: (u8, u64), target: SocketAddr) {
    let port = pair.port(place.0);
    let record = entry.connection.record();
    Record::set_address(&record.local, SocketAddr::new(target.ip(), port));
    Record::set_address(&record.remote, target);
    let is_nonblocking = entry.connection.nonblocking.load(Ordering::Relaxed) != 0;
    entry.connection.is_connecting.store(is_nonblocking.into(), Ordering::Relaxed);
    entry.connection.begin_direct(pair, place);
    epoll::look_again(entry.number);
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

/// The kernel has made a connection. Asks the monitor whether its listener can be reached without
/// it, for the connections after it.
pub fn has_connected(fd: c_int) {
    let Some(entry) = table::find(fd).filter(|_| is_on() && process::owns_tables()) else { return };
    let Some(target) = answers::peer_of(fd).filter(|target| target.ip().is_loopback()) else {
        return;
    };
    let Some(namespace) = tcp::namespace(fd).filter(|_| !tcp_only::is_on()) else { return };
    if is_worth_asking(target, namespace)
        && waking::prepare().is_ok()
        && let Some(listener) = monitor::find(entry, lacks_pool(target, namespace))
    {
        let pair = pairs::find(listener);
        let route = pair.map(|pair| Route { pair, listener, was_open: false });
        TARGETS.with(|all| {
            for one in all.iter_mut().filter(|one| one.is_in(target, namespace)) {
                one.route = route;
                one.lacks_pool = route.is_none();
            }
        });
    }
}

fn lacks_pool(target: SocketAddr, namespace: u64) -> bool {
    let lacks = |one: &Target| one.is_in(target, namespace) && one.lacks_pool;
    TARGETS.with(|all| all.iter().any(lacks)) == Some(true)
}

/// The time after which a listener is asked for again, in milliseconds.
const INTERVAL: u32 = 1000;

/// Returns true for the second connection to a listener, the fourth, the eighth, and so on, and for
/// the first one after a second, unless there is a route that has led somewhere.
fn is_worth_asking(target: SocketAddr, namespace: u64) -> bool {
    let is_worth = TARGETS.with(|all| {
        let now = spin::ticks();
        let at = all.iter().position(|one| one.is_in(target, namespace)).unwrap_or_else(|| {
            if all.len() >= MAX {
                all.remove(0);
            }
            all.push(Target {
                address: target,
                namespace,
                count: 0,
                asked: now,
                lacks_pool: false,
                route: None,
            });
            all.len() - 1
        });
        let one = &mut all[at];
        one.count = one.count.saturating_add(1);
        // The first one is often the only one.
        let is_second = one.count > 1 && one.count.is_power_of_two();
        let is_time = is_second || now.wrapping_sub(one.asked) >= INTERVAL;
        let is_worth = is_time && one.route.is_none_or(|route| !route.was_open);
        if is_worth {
            one.asked = now;
        }
        is_worth
    });
    is_worth == Some(true)
}

impl Target {
    fn is_in(&self, address: SocketAddr, namespace: u64) -> bool {
        self.address == address && self.namespace == namespace
    }
}
