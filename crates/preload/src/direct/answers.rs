//! The answers of the kernel for a connection: addresses, options, flags.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use levada_ring::records::{Reason, Record};
use libc::{c_int, c_void, sockaddr, socklen_t};

use super::spares::{self, has_own_flags};
use super::{ends, is_direct, stock};
use crate::connection::Connection;
use crate::table::{self, Entry};
use crate::{errno, real, tcp};

/// TCP_ESTABLISHED of <linux/tcp_states.h>.
const TCP_ESTABLISHED: u8 = 1;

/// The family of an address of C.
///
/// # Safety
/// `address` is null or that of `length` bytes.
pub unsafe fn family_of(address: *const sockaddr, length: socklen_t) -> Option<c_int> {
    let is_there = !address.is_null() && length as usize >= size_of::<libc::sa_family_t>();
    // SAFETY: as the caller promises.
    is_there.then(|| unsafe { (&raw const (*address).sa_family).read_unaligned() }.into())
}

/// An address of C; `None` for another family than those of IP.
///
/// # Safety
/// As [`family_of`].
pub unsafe fn address_of(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    // SAFETY: as the caller promises; the length is checked before each read.
    unsafe {
        match family_of(address, length as socklen_t)? {
            libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
                let value = address.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(value.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(value.sin_port)))
            }
            libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
                let value = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(value.sin6_addr.s6_addr);
                let is_plain = value.sin6_scope_id == 0 && value.sin6_flowinfo == 0;
                is_plain.then(|| SocketAddr::new(ip.into(), u16::from_be(value.sin6_port)))
            }
            _ => None,
        }
    }
    .filter(|address| {
        [Ipv4Addr::LOCALHOST.to_ipv6_mapped(), Ipv6Addr::LOCALHOST].contains(&match address {
            SocketAddr::V4(address) => address.ip().to_ipv6_mapped(),
            SocketAddr::V6(address) if address.ip().to_ipv4_mapped().is_none() => *address.ip(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED,
        })
    })
}

/// The address of the socket itself or, with `is_peer`, of its peer, by the kernel.
fn by_kernel(fd: c_int, is_peer: bool) -> Option<SocketAddr> {
    // SAFETY: zero is a valid value of this structure; the buffer has the stated length.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
        let pointer = (&raw mut storage).cast();
        let code = match is_peer {
            true => real::getpeername(fd, pointer, &raw mut length),
            false => real::getsockname(fd, pointer, &raw mut length),
        };
        match i32::from(storage.ss_family) {
            _ if code != 0 => None,
            libc::AF_INET => {
                let value = pointer.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(value.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(value.sin_port)))
            }
            libc::AF_INET6 => {
                let value = pointer.cast::<libc::sockaddr_in6>().read();
                let ip = Ipv6Addr::from(value.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.into(), u16::from_be(value.sin6_port)))
            }
            _ => None,
        }
    }
}

/// The peer of a connection of the kernel.
pub fn peer_of(fd: c_int) -> Option<SocketAddr> {
    by_kernel(fd, true)
}

/// Returns true for a socket that the program has bound.
pub fn is_bound(fd: c_int) -> bool {
    own_port(fd) != Some(0)
}

/// The port of a socket, by the kernel.
pub fn own_port(fd: c_int) -> Option<u16> {
    by_kernel(fd, false).map(|address| address.port())
}

/// getsockname(2) or, with `is_peer`, getpeername(2). `None` for another descriptor.
///
/// # Safety
/// As these demand.
pub unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    is_peer: bool,
) -> Option<c_int> {
    let entry = table::find(fd).filter(|entry| is_direct(*entry))?;
    if is_peer && ends::is_over(entry.connection) {
        return Some(errno::fail(libc::ENOTCONN) as c_int);
    }
    if address.is_null() || length.is_null() {
        return Some(errno::fail(libc::EFAULT) as c_int);
    }
    // SAFETY: as the caller promises.
    unsafe { write_name(fd, address, length, !is_peer) };
    Some(0)
}

/// Writes an address of a connection: its own, or its peer's.
///
/// # Safety
/// As getsockname(2) demands, or both are null.
pub unsafe fn write_name(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, is_own: bool) {
    let Some(entry) = table::find(fd) else { return };
    if address.is_null() || length.is_null() {
        return;
    }
    let record = entry.connection.record();
    let known = Record::address(if is_own { &record.local } else { &record.remote });
    let bytes = match (domain_of(entry), known) {
        (Some(libc::AF_INET6), known) => of_ipv6(known),
        (_, SocketAddr::V4(known)) => of_ipv4(known),
        (_, known) => of_ipv6(known),
    };
    // SAFETY: as the caller promises: `length` is the room at `address`.
    unsafe {
        let room = (*length as usize).min(bytes.len());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>(), room);
        *length = bytes.len() as socklen_t;
    }
}

fn of_ipv4(address: std::net::SocketAddrV4) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<libc::sockaddr_in>()];
    bytes[..2].copy_from_slice(&(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&address.ip().octets());
    bytes
}

fn of_ipv6(address: SocketAddr) -> Vec<u8> {
    let ip = match address {
        SocketAddr::V4(address) => address.ip().to_ipv6_mapped(),
        SocketAddr::V6(address) => *address.ip(),
    };
    let mut bytes = vec![0; size_of::<libc::sockaddr_in6>()];
    bytes[..2].copy_from_slice(&(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    bytes[8..24].copy_from_slice(&ip.octets());
    bytes
}

/// getsockopt(2), where the kernel would answer for a socket that is not connected. `real` makes
/// the program's own call.
///
/// # Safety
/// As getsockopt(2) demands.
pub unsafe fn option(
    entry: Entry,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    length: *mut socklen_t,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let code = real();
    // SAFETY: as the caller promises.
    let room = unsafe { length.as_ref() }.map_or(0, |length| *length as usize);
    if code != 0 || value.is_null() {
        return code;
    }
    let connection = entry.connection;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) if room >= size_of::<c_int>() => {
            ends::note_reset(connection);
            let error = ends::take_error(connection).unwrap_or(0);
            // SAFETY: as the caller promises; there is room.
            unsafe { value.cast::<c_int>().write_unaligned(error) };
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) if room > 0 && !ends::is_over(connection) => {
            // SAFETY: as above: the state is the first byte.
            unsafe { value.cast::<u8>().write(TCP_ESTABLISHED) };
        }
        (libc::IPPROTO_TCP, libc::TCP_NODELAY)
            if room >= size_of::<c_int>() && has_own_flags(entry) =>
        {
            let is_set = connection.nodelay.load(Ordering::Relaxed);
            if is_set != 0 {
                // SAFETY: as above.
                unsafe { value.cast::<c_int>().write_unaligned((is_set == 2).into()) };
            }
        }
        _ => {}
    }
    code
}

/// setsockopt(2), for an option whose value this library keeps. `None` if the kernel keeps it.
///
/// # Safety
/// As setsockopt(2) demands.
pub unsafe fn set_option(
    entry: Entry,
    (level, name): (c_int, c_int),
    value: *const c_void,
    length: socklen_t,
) -> Option<c_int> {
    let is_kept = level == libc::IPPROTO_TCP && name == libc::TCP_NODELAY && has_own_flags(entry);
    if !is_kept || value.is_null() || (length as usize) < size_of::<c_int>() {
        return None;
    }
    // SAFETY: as the caller promises; the length is checked.
    let is_set = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
    entry.connection.nodelay.store(1 + u32::from(is_set), Ordering::Relaxed);
    Some(0)
}

/// Gives a connection that shares its socket with other connections, or has one that is kept, a
/// socket for itself, whose options may differ. `false` if there is none. In a process that shares
/// the connection with others, they hold in this one.
pub fn own_socket(entry: Entry) -> bool {
    if spares::find(entry).is_some() {
        spares::replace(entry);
    }
    if !has_own_flags(entry) {
        return true;
    }
    let domain = domain_of(entry);
    let socket = domain.and_then(|domain| stock::socket_like(domain, entry.fd).ok());
    socket.is_some_and(|socket| give_socket(entry, &socket))
}

/// Makes all descriptors of a connection those of a new socket, with its flags.
pub fn give_socket(entry: Entry, socket: &OwnedFd) -> bool {
    let connection = entry.connection;
    let [is_nonblocking, nodelay] = flags_of(connection);
    set_flags(socket.as_raw_fd(), is_nonblocking == Some(true), nodelay);
    let is_replaced = match table::has_duplicates(entry) {
        false => replace(entry.fd, socket),
        true => {
            let mut descriptors = table::entries().filter(|one| one.number == entry.number);
            descriptors.all(|one| replace(one.fd, socket))
        }
    };
    if is_replaced && connection.holders.load(Ordering::Relaxed) == 1 {
        connection.shares_socket.store(0, Ordering::Relaxed);
    }
    is_replaced
}

/// Lets the kernel have the flags of a connection, which no other one shares its socket with.
pub fn settle_flags(entry: Entry) {
    let [is_nonblocking, nodelay] = flags_of(entry.connection);
    set_flags(entry.fd, is_nonblocking == Some(true), nodelay);
    entry.connection.shares_socket.store(0, Ordering::Relaxed);
}

/// O_NONBLOCK, and TCP_NODELAY if the program has set it.
fn flags_of(connection: &Connection) -> [Option<bool>; 2] {
    let nodelay = match connection.nodelay.load(Ordering::Relaxed) {
        0 => None,
        value => Some(value == 2),
    };
    [Some(connection.nonblocking.load(Ordering::Relaxed) != 0), nodelay]
}

/// Sets O_NONBLOCK and TCP_NODELAY of a socket.
pub fn set_flags(fd: c_int, is_nonblocking: bool, nodelay: Option<bool>) {
    let flags = if is_nonblocking { libc::O_NONBLOCK } else { 0 };
    // SAFETY: the command takes a number.
    unsafe { real::fcntl64(fd, libc::F_SETFL, flags.into()) };
    if let Some(value) = nodelay.map(c_int::from) {
        let length = size_of::<c_int>() as socklen_t;
        let pointer = (&raw const value).cast();
        // SAFETY: the value is a local of the stated length.
        unsafe { real::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, pointer, length) };
    }
}

/// The family of a connection's socket: AF_INET or AF_INET6.
fn domain_of(entry: Entry) -> Option<c_int> {
    match entry.connection.domain.load(Ordering::Relaxed) {
        0 => tcp::option(entry.fd, libc::SOL_SOCKET, libc::SO_DOMAIN),
        domain => Some(domain.cast_signed()),
    }
}

/// Makes a descriptor one of another socket.
fn replace(fd: c_int, socket: &OwnedFd) -> bool {
    // SAFETY: the commands take numbers; the descriptor stays that of its connection.
    unsafe {
        let is_closed_on_exec = real::fcntl64(fd, libc::F_GETFD, 0) & libc::FD_CLOEXEC != 0;
        let flags = if is_closed_on_exec { libc::O_CLOEXEC } else { 0 };
        real::dup3(socket.as_raw_fd(), fd, flags) >= 0
    }
}

/// The result of F_GETFL: `known` is the kernel's.
pub fn flags(entry: Entry, known: c_int) -> c_int {
    match entry.connection.nonblocking.load(Ordering::Relaxed) {
        0 => known & !libc::O_NONBLOCK,
        _ => known | libc::O_NONBLOCK,
    }
}

/// F_SETFL, or FIONBIO.
pub fn set_nonblocking(entry: Entry, flags: c_int) -> c_int {
    if flags & libc::O_ASYNC != 0 {
        entry.connection.note(Reason::Unsupported);
        return errno::fail(libc::EOPNOTSUPP) as c_int;
    }
    let is_nonblocking = flags & libc::O_NONBLOCK != 0;
    entry.connection.nonblocking.store(is_nonblocking.into(), Ordering::Relaxed);
    0
}
