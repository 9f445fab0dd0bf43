//! connect(2), accept(2), shutdown(2) and options.

use std::sync::atomic::Ordering;

use libc::{c_int, c_void, sockaddr, socklen_t};

use crate::connection::Phase;
use crate::{demote, direct, epoll, errno, lifecycle, real, table, tcp, waking};

/// See socket(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_tcp =
        matches!(domain, libc::AF_INET | libc::AF_INET6) && kind & 0xf == libc::SOCK_STREAM;
    if is_tcp && let Some(fd) = direct::socket(domain, kind, protocol) {
        return fd;
    }
    // SAFETY: the call takes no addresses.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    lifecycle::is_new(fd);
    if is_tcp {
        // Before it connects: it may enter an epoll now.
        lifecycle::opened(fd, false);
    }
    fd
}

/// See connect(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    if let Some(entry) = table::find(fd).filter(|entry| entry.connection.phase() == Phase::Paired) {
        // To be disconnected (AF_UNSPEC), if the call succeeds.
        demote::both(entry, levada_ring::records::Reason::Unsupported);
    }
    // SAFETY: as the program promises.
    if let Some(code) = unsafe { direct::connect(fd, address, length) } {
        return code;
    }
    claim(fd);
    // SAFETY: as the program promises.
    let code = unsafe { real::connect(fd, address, length) };
    let saved = errno::last();
    if code == 0 || saved == libc::EINPROGRESS {
        lifecycle::opened(fd, false);
        direct::has_connected(fd);
    }
    errno::set(saved);
    code
}

/// The kernel is about to learn something of a socket.
fn claim(fd: c_int) {
    if let Some(entry) = table::find(fd).filter(|_| direct::is_on()) {
        direct::claim(entry);
    }
}

/// See bind(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    claim(fd);
    // SAFETY: as the program promises.
    unsafe { real::bind(fd, address, length) }
}

/// See listen(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    claim(fd);
    // SAFETY: the call takes no addresses.
    let code = unsafe { real::listen(fd, backlog) };
    if code == 0 {
        direct::listened(fd, backlog);
    }
    code
}

/// See accept(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        direct::accept(fd, address, length, 0)
            .unwrap_or_else(|| accepted(fd, real::accept(fd, address, length)))
    }
}

/// See accept4(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        direct::accept(fd, address, length, flags)
            .unwrap_or_else(|| accepted(fd, real::accept4(fd, address, length, flags)))
    }
}

fn accepted(listener: c_int, fd: c_int) -> c_int {
    let saved = errno::last();
    lifecycle::is_new(fd);
    lifecycle::opened(fd, true);
    if fd >= 0 {
        direct::accepted(listener);
    }
    errno::set(saved);
    fd
}

/// See shutdown(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(entry) = table::find(fd) {
        match entry.connection.phase() {
            Phase::Direct => return direct::shutdown(entry, how),
            Phase::Listening => direct::end(entry),
            _ => claim(fd),
        }
    }
    let entry = table::find(fd).filter(|entry| entry.connection.phase() == Phase::Paired);
    if let Some(entry) = entry
        && matches!(how, libc::SHUT_WR | libc::SHUT_RDWR)
    {
        let waiter = entry
            .connection
            .lock_outbound()
            .and_then(|mut outbound| demote::leave(entry, &mut outbound));
        waking::ring(entry.connection, waiter);
    }
    // SAFETY: the call takes no addresses.
    let code = unsafe { real::shutdown(fd, how) };
    if let Some(entry) = entry
        && code == 0
        && matches!(how, libc::SHUT_WR | libc::SHUT_RDWR)
    {
        entry.connection.write_shut.store(1, Ordering::Relaxed);
    }
    if let Some(entry) = entry {
        epoll::changed(entry);
    }
    if let Some(entry) = entry
        && code == 0
        && matches!(how, libc::SHUT_RD | libc::SHUT_RDWR)
    {
        entry.connection.read_shut.store(1, Ordering::Relaxed);
        let waiter =
            entry.connection.lock_inbound().and_then(|mut inbound| inbound.consumer().wake());
        waking::ring_here(waiter);
    }
    if let Some(entry) = entry {
        abandon_if_shut(entry);
    }
    code
}

/// What comes for a socket that is shut in both directions, the kernel answers with a reset: the
/// peer has to send it by TCP.
fn abandon_if_shut(entry: table::Entry) {
    let connection = entry.connection;
    let both = [&connection.read_shut, &connection.write_shut];
    if both.iter().all(|shut| shut.load(Ordering::Relaxed) != 0) {
        let waiter = connection.lock_inbound().and_then(|mut inbound| inbound.consumer().abandon());
        waking::ring(connection, waiter);
    }
}

/// See setsockopt(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let unsupported = match level {
        libc::SOL_SOCKET => tcp::UNSUPPORTED.contains(&name),
        libc::IPPROTO_TCP => name == libc::TCP_INQ,
        _ => false,
    };
    if unsupported && let Some(entry) = table::find(fd) {
        demote::both(entry, levada_ring::records::Reason::Unsupported);
        if direct::is_direct(entry) {
            return errno::fail(libc::EOPNOTSUPP) as c_int;
        }
    }
    if level == libc::SOL_SOCKET
        && tcp::TIMEOUTS.contains(&name)
        && let Some(entry) = table::find(fd)
    {
        entry.connection.has_timeouts.store(1, Ordering::Relaxed);
    }
    if let Some(entry) = table::find(fd).filter(|_| direct::is_on()) {
        // SAFETY: as the program promises.
        if let Some(code) = unsafe { direct::set_option(entry, (level, name), value, length) } {
            return code;
        }
        if level == libc::SOL_SOCKET && name == libc::SO_LINGER {
            entry.connection.has_linger.store(1, Ordering::Relaxed);
        }
        if !tcp::is_usual(level, name) {
            entry.connection.is_special.store(1, Ordering::Relaxed);
            if entry.connection.phase() == Phase::Listening {
                direct::shut(entry);
            }
        }
        // Those of TCP change nothing: it does not matter who shares them.
        if !direct::own_socket(entry) && level != libc::IPPROTO_TCP {
            return errno::fail(libc::EOPNOTSUPP) as c_int;
        }
        if level != libc::IPPROTO_TCP || name != libc::TCP_NODELAY {
            direct::claim(entry);
        }
    }
    // SAFETY: as the program promises.
    unsafe { real::setsockopt(fd, level, name, value, length) }
}

/// See getsockopt(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    let call = || unsafe { real::getsockopt(fd, level, name, value, length) };
    let is_answered =
        |entry: &table::Entry| direct::is_direct(*entry) || direct::has_own_flags(*entry);
    match table::find(fd).filter(is_answered) {
        None => call(),
        // SAFETY: as the program promises.
        Some(entry) => unsafe { direct::option(entry, (level, name), value, length, call) },
    }
}

/// See getsockname(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        direct::name(fd, address, length, false)
            .unwrap_or_else(|| real::getsockname(fd, address, length))
    }
}

/// See getpeername(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        direct::name(fd, address, length, true)
            .unwrap_or_else(|| real::getpeername(fd, address, length))
    }
}
