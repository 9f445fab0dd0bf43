//! accept(2) on a listener whose clients have queues.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Instant;

use levada_ring::records::Record;
use libc::{c_int, pollfd, sockaddr, socklen_t};

use super::listeners::{self, Listener};
use super::{answers, pairs};
use crate::connection::{Connection, Phase};
use crate::table::{self, Entry};
use crate::{errno, lifecycle, monitor, poll, real, seccomp, tcp, tcp_only};

/// One connection of as many is looked for in the kernel first: neither way keeps the other one
/// waiting.
const SHARE: u32 = 8;

/// The result of a look at the queues.
enum Found {
    Connection(c_int),
    Failure(c_int),
    Nothing,
}

/// The arguments of accept4(2) after the listener.
#[derive(Clone, Copy)]
struct Call {
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
}

/// accept4(2) from the queues of clients, or the kernel. Returns the result of the call; `None` if
/// the program's own call is to be made, which does not wait, or has no part in a queue.
///
/// # Safety
/// As accept4(2) demands.
pub unsafe fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    let entry = table::find(fd).filter(|entry| entry.connection.phase() == Phase::Listening)?;
    let is_usual = flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) == 0;
    if !is_usual || tcp_only::is_on() || seccomp::is_sealed() {
        return None;
    }
    let call = Call { address, length, flags };
    if listeners::may_join() {
        super::sweep();
    }
    let mut deadline = None;
    loop {
        let found = match listeners::find(entry) {
            // SAFETY: as the caller promises.
            Some(listener) => unsafe { from_both(entry, listener, call) },
            // Another program may take what this thread sees, and it would wait in the kernel.
            None if entry.connection.is_handed_over.load(Ordering::Relaxed) != 0 => return None,
            // No thread waits in the kernel, where it would not learn of a queue.
            // SAFETY: as the caller promises.
            None => unsafe { from_kernel(entry, call) }.inspect(|new| {
                if *new >= 0 {
                    listeners::accepted(fd);
                }
            }),
        };
        if found.is_some() {
            return found;
        }
        if tcp::is_nonblocking(fd) {
            return None;
        }
        let deadline = *deadline.get_or_insert_with(|| deadline_of(fd));
        if let Some(number) = wait(fd, deadline) {
            return Some(errno::fail(number) as c_int);
        }
    }
}

/// A connection of a queue or of the kernel, if there is one: of the kernel first in one of
/// [`SHARE`] calls.
///
/// # Safety
/// As accept4(2) demands.
unsafe fn from_both(entry: Entry, listener: &'static Listener, call: Call) -> Option<c_int> {
    let is_kernel_first = listener.accepted.load(Ordering::Relaxed) % SHARE == SHARE - 1;
    // SAFETY: as the caller promises.
    let by_queue = || unsafe { from_queue(entry, listener, call) };
    // SAFETY: as the caller promises.
    let accept = || unsafe { from_kernel(entry, call) };
    let by_kernel = || match accept() {
        // The number of the stock is one more for the program.
        Some(..0) if errno::last() == libc::EMFILE && listener.stock.release() => accept(),
        found => found,
    };
    let found = match is_kernel_first {
        true => by_kernel().or_else(by_queue),
        false => by_queue().or_else(by_kernel),
    };
    if found.is_some_and(|new| new >= 0) {
        listener.accepted.fetch_add(1, Ordering::Relaxed);
    }
    found
}

/// A connection that waits in a queue, if there is one; or the failure of the call.
///
/// # Safety
/// As accept4(2) demands.
unsafe fn from_queue(entry: Entry, listener: &'static Listener, call: Call) -> Option<c_int> {
    match take(entry, listener, call.flags) {
        Found::Connection(new) => {
            // SAFETY: as the caller promises.
            unsafe { answers::write_name(new, call.address, call.length, false) };
            Some(new)
        }
        Found::Failure(number) => Some(errno::fail(number) as c_int),
        Found::Nothing => None,
    }
}

fn deadline_of(fd: c_int) -> Option<Instant> {
    tcp::timeout(fd, libc::SO_RCVTIMEO).and_then(|timeout| Instant::now().checked_add(timeout))
}

/// A connection that the kernel has already.
///
/// # Safety
/// As accept4(2) demands.
unsafe fn from_kernel(entry: Entry, call: Call) -> Option<c_int> {
    // No other thread, nor process, takes it in between: this one would wait in the kernel. A
    // process that is stopped, or a thread that a handler has interrupted, takes nothing.
    let is_nonblocking = entry.connection.nonblocking.load(Ordering::Relaxed) != 0;
    let _guard = if is_nonblocking { None } else { entry.connection.accepting.lock_soon() };
    if tcp::ready(entry.fd, libc::POLLIN) == 0 {
        return None;
    }
    // SAFETY: as the caller promises.
    let new = unsafe { real::accept4(entry.fd, call.address, call.length, call.flags) };
    if new >= 0 {
        let saved = errno::last();
        lifecycle::is_new(new);
        lifecycle::opened(new, true);
        // The pools of new clients, which use them once this process has them.
        monitor::collect();
        errno::set(saved);
    }
    Some(new)
}

/// Waits until a queue or the kernel has a connection. The error of the call, if it ends.
fn wait(fd: c_int, deadline: Option<Instant>) -> Option<c_int> {
    let mut set = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    let wait = poll::Wait { deadline: || deadline, mask: std::ptr::null() };
    let ready = match poll::poll(&mut set, wait) {
        Some(ready) => ready,
        // The listener has no queues any more.
        // SAFETY: one entry.
        None => unsafe { real::poll(set.as_mut_ptr(), 1, 1000) },
    };
    match ready {
        0 if deadline.is_some_and(|deadline| deadline <= Instant::now()) => Some(libc::EAGAIN),
        0.. => None,
        _ if errno::last() == libc::EINTR && all_handlers_restart() => None,
        _ => Some(errno::last()),
    }
}

/// Returns true if each signal that the program handles continues a call that it has interrupted
/// (SA_RESTART): accept(2) in the kernel would go on.
fn all_handlers_restart() -> bool {
    (1..=64).all(|signal| {
        // SAFETY: zero is a valid value of this structure; the address is a local.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            action
        };
        let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Takes a connection from a queue. Without a descriptor for it, it waits on, as in the kernel.
fn take(entry: Entry, listener: &'static Listener, flags: c_int) -> Found {
    if !pairs::has_waiting(listener.name) {
        return Found::Nothing;
    }
    let is_inheritable = flags & libc::SOCK_CLOEXEC == 0;
    let (fd, is_shared) = match listener.stock.descriptor(entry.fd, is_inheritable) {
        Ok(made) => made,
        Err(error) => return Found::Failure(error.raw_os_error()),
    };
    lifecycle::is_new(fd);
    let is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let Some((number, connection)) = lifecycle::begin(fd, is_nonblocking, true) else {
        // There are too many connections: the kernel has all further ones.
        listeners::close(entry);
        return Found::Nothing.close(fd);
    };
    connection.shares_socket.store(is_shared.into(), Ordering::Relaxed);
    connection.domain.store(listener.stock.domain.unsigned_abs(), Ordering::Relaxed);
    if !is_shared && is_nonblocking {
        set_nonblocking(fd);
    }
    match attach(entry, listener, connection) {
        true => {
            table::insert(fd, number);
            Found::Connection(fd)
        }
        false => {
            connection.end();
            connection.close();
            Found::Nothing.close(fd)
        }
    }
}

fn set_nonblocking(fd: c_int) {
    // SAFETY: the command takes a number.
    unsafe { real::fcntl64(fd, libc::F_SETFL, libc::O_NONBLOCK.into()) };
}

impl Found {
    /// Closes the descriptor that no connection was found for.
    fn close(self, fd: c_int) -> Self {
        // SAFETY: the descriptor was made for this call.
        unsafe { real::close(fd) };
        self
    }
}

/// Gives the next connection of the queues to `connection`. `false` if there is none.
fn attach(entry: Entry, listener: &Listener, connection: &Connection) -> bool {
    let Some((pair, number, generation)) = pairs::take(listener.name) else { return false };
    let is_ipv6 = pair.segment(number).ends().is_ipv6();
    note_addresses(connection, (is_ipv6, pair.port(number)), listener.port);
    // As it inherits them.
    let inherited = [&entry.connection.has_timeouts, &entry.connection.has_linger];
    for (from, to) in inherited.iter().zip([&connection.has_timeouts, &connection.has_linger]) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    connection.begin_direct(pair, (number, generation));
    true
}

/// Notes both addresses, of the client's port and the listener's.
fn note_addresses(connection: &Connection, (is_ipv6, port): (bool, u16), listens_at: u16) {
    let ip: IpAddr = match is_ipv6 {
        true => Ipv6Addr::LOCALHOST.into(),
        false => Ipv4Addr::LOCALHOST.into(),
    };
    let record = connection.record();
    Record::set_address(&record.local, SocketAddr::new(ip, listens_at));
    Record::set_address(&record.remote, SocketAddr::new(ip, port));
}
