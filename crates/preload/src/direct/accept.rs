//! accept(2) on a listener that has a queue.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Instant;

use levada_ring::Side;
use levada_ring::records::Record;
use libc::{c_int, pollfd, sockaddr, socklen_t};

use super::listeners::{self, Listener};
use super::{answers, pairs};
use crate::connection::Connection;
use crate::table::{self, Entry};
use crate::{arena, errno, lifecycle, poll, real, tcp};

/// One connection of as many is looked for in the kernel first: neither way keeps the other one
/// waiting.
const SHARE: u32 = 8;

/// The result of a look at the queue.
enum Found {
    Connection(c_int),
    Failure(c_int),
    Nothing,
}

/// accept4(2) from the queue of the listener. Returns the result of the call; `None` if the program's
/// own call is to be made, which does not wait.
///
/// # Safety
/// As accept4(2) demands.
pub unsafe fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    let entry = table::find(fd)?;
    let listener = listeners::find(entry)?;
    if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        return None;
    }
    let count = listener.accepted.load(Ordering::Relaxed);
    let mut is_kernel_first = count % SHARE == SHARE - 1;
    let mut deadline = None;
    loop {
        if !is_kernel_first {
            match take(entry, listener, flags) {
                Found::Connection(new) => {
                    listener.accepted.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: as the caller promises.
                    unsafe { answers::write_name(new, address, length, false) };
                    return Some(new);
                }
                Found::Failure(number) => return Some(errno::fail(number) as c_int),
                Found::Nothing => {}
            }
        }
        // SAFETY: as the caller promises.
        if let Some(new) = unsafe { from_kernel(fd, listener, address, length, flags) } {
            listener.accepted.fetch_add(1, Ordering::Relaxed);
            return Some(new);
        }
        if std::mem::take(&mut is_kernel_first) {
            continue;
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

fn deadline_of(fd: c_int) -> Option<Instant> {
    tcp::timeout(fd, libc::SO_RCVTIMEO).and_then(|timeout| Instant::now().checked_add(timeout))
}

/// A connection that the kernel has already.
///
/// # Safety
/// As accept4(2) demands.
unsafe fn from_kernel(
    fd: c_int,
    listener: &Listener,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    // No other thread takes it in between.
    let _guard = listener.in_kernel.lock()?;
    if tcp::ready(fd, libc::POLLIN) == 0 {
        return None;
    }
    // SAFETY: as the caller promises.
    let new = unsafe { real::accept4(fd, address, length, flags) };
    if new >= 0 {
        let saved = errno::last();
        lifecycle::is_new(new);
        lifecycle::opened(new, true);
        errno::set(saved);
    }
    Some(new)
}

/// Waits until the queue or the kernel has a connection. The error of the call, if it ends.
fn wait(fd: c_int, deadline: Option<Instant>) -> Option<c_int> {
    let mut set = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    let wait = poll::Wait { deadline: || deadline, mask: std::ptr::null() };
    let ready = match poll::poll(&mut set, wait) {
        Some(ready) => ready,
        // The listener has no queue any more.
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

/// Takes a connection from the queue. Without a descriptor for it, it waits on, as in the kernel.
fn take(entry: Entry, listener: &'static Listener, flags: c_int) -> Found {
    if !listener.queue.has_entry() {
        return Found::Nothing;
    }
    let is_inheritable = flags & libc::SOCK_CLOEXEC == 0;
    let (fd, is_shared) = match listener.stock.descriptor(entry.fd, is_inheritable) {
        Ok(made) => made,
        Err(error) => return Found::Failure(error.raw_os_error()),
    };
    lifecycle::is_new(fd);
    let is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let begun = arena::allocate().and_then(|(number, connection)| {
        let has_begun = connection.begin(is_nonblocking, true);
        if !has_begun {
            arena::release(number);
        }
        has_begun.then_some((number, connection))
    });
    let Some((number, connection)) = begun.filter(|_| (fd as usize) < table::DESCRIPTORS) else {
        return Found::Failure(libc::ENFILE).close(fd);
    };
    connection.shares_socket.store(is_shared.into(), Ordering::Relaxed);
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

/// Gives the next connection of the queue to `connection`. `false` if there is none.
fn attach(entry: Entry, listener: &Listener, connection: &Connection) -> bool {
    while let Some(waiting) = listener.queue.take() {
        // Another process than those that the monitor has introduced made this entry.
        let Some(pair) = pairs::of_client(waiting.client) else { continue };
        if !pair.enter() {
            continue;
        }
        let segment = pair.segment(waiting.segment);
        let generation = segment.ends().generation();
        segment.ends().hold(Side::Acceptor, crate::process::own());
        let port = pair.port(waiting.segment);
        note_addresses(connection, (segment.ends().is_ipv6(), port), listener.port);
        // As it inherits them.
        let inherited = [&entry.connection.has_timeouts, &entry.connection.has_linger];
        for (from, to) in inherited.iter().zip([&connection.has_timeouts, &connection.has_linger]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        connection.begin_direct(pair, (waiting.segment, generation));
        super::opened();
        return true;
    }
    false
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
