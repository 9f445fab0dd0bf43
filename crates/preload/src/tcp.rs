//! What the kernel says of a TCP socket.

use std::mem::MaybeUninit;
use std::time::Duration;

use libc::{c_int, c_void, iovec, msghdr};

use crate::errno;

/// What a look at the receive queue of the kernel has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Bytes.
    Bytes,
    /// Nothing yet.
    Empty,
    /// The end of the stream, or an error: the next call in the kernel returns it.
    Ended,
}

/// States of <linux/tcp_states.h>: TCP_ESTABLISHED, and the two in which only this end is closed.
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;

/// Bytes in the receive queue.
fn unread(fd: c_int) -> u64 {
    let mut bytes: c_int = 0;
    // SAFETY: the address of a number.
    unsafe { crate::real::ioctl(fd, libc::FIONREAD as libc::c_ulong, (&raw mut bytes).cast()) };
    u64::try_from(bytes).unwrap_or(0)
}

/// Bytes of the stream that calls of the program have received so far. `None` if the kernel does
/// not say, or the connection is not open in both directions any more: the end of a stream counts
/// as a byte.
pub fn received(fd: c_int) -> Option<u64> {
    loop {
        let before = information(fd).filter(|information| information.tcpi_state == ESTABLISHED)?;
        let unread = unread(fd);
        let after = information(fd)?;
        // Else more has arrived in between.
        let [before, arrived] = [before, after].map(|information| information.tcpi_bytes_received);
        if before == arrived && after.tcpi_state == ESTABLISHED {
            return Some(arrived.saturating_sub(unread));
        }
    }
}

/// Takes the error that is pending (SO_ERROR). `None` without one.
pub fn take_error(fd: c_int) -> Option<c_int> {
    let mut error = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    let place = (&raw mut error).cast();
    // SAFETY: the addresses of a number and of its length.
    unsafe {
        crate::real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, place, &raw mut length)
    };
    (error != 0).then_some(error)
}

/// What poll(2) shows of `events`.
pub fn ready(fd: c_int, events: libc::c_short) -> libc::c_short {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    unsafe { crate::real::poll(&raw mut entry, 1, 0) };
    entry.revents
}

/// Looks at the receive queue, without taking anything: not even an error, which a call of recv(2)
/// would.
pub fn queue(fd: c_int) -> Queue {
    let shown = ready(fd, libc::POLLIN | libc::POLLRDHUP);
    let ended = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
    match (unread(fd), shown & ended) {
        (1.., _) => Queue::Bytes,
        (_, 0) => Queue::Empty,
        _ => Queue::Ended,
    }
}

/// Whether the peer's end of stream has come, or a reset. poll(2) shows an end also after a SHUT_RD
/// of this side.
pub fn peer_has_ended(fd: c_int) -> bool {
    let state = information(fd).map(|information| information.tcpi_state);
    !matches!(state, Some(ESTABLISHED | FIN_WAIT1 | FIN_WAIT2))
}

fn information(fd: c_int) -> Option<libc::tcp_info> {
    let mut information = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the buffer has the stated length, and any bytes are a valid structure of numbers.
    unsafe {
        let code = crate::real::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            information.as_mut_ptr().cast(),
            &raw mut length,
        );
        (code == 0).then(|| information.assume_init())
    }
}

/// Bytes of the stream that were handed to the kernel so far. `None` if it does not say.
pub fn sent(fd: c_int) -> Option<u64> {
    information(fd).map(|information| {
        information.tcpi_bytes_sent - information.tcpi_bytes_retrans
            + u64::from(information.tcpi_notsent_bytes)
    })
}

/// Bytes of the stream that have arrived so far, read or not. The peer's end of stream counts as
/// one more.
pub fn arrived(fd: c_int) -> Option<u64> {
    information(fd).map(|information| information.tcpi_bytes_received)
}

/// Whether the descriptor is non-blocking.
pub fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: the command takes no argument.
    unsafe { crate::real::fcntl64(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
}

/// An option of a socket that is a number.
pub fn option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the buffer has the stated length.
    let code = unsafe { crate::real::getsockopt(fd, level, name, place, &raw mut length) };
    (code == 0).then_some(value)
}

/// The network namespace of a socket, by a number that is not used again.
pub fn namespace(fd: c_int) -> Option<u64> {
    const SO_NETNS_COOKIE: c_int = 71;
    let mut value = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the buffer has the stated length.
    let code = unsafe {
        crate::real::getsockopt(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, place, &raw mut length)
    };
    (code == 0).then_some(value)
}

/// Options of sockets that a ring has no answer to.
pub const UNSUPPORTED: [c_int; 5] = [
    libc::SO_RCVLOWAT,
    libc::SO_ZEROCOPY,
    libc::SO_TIMESTAMP,
    libc::SO_TIMESTAMPNS,
    libc::SO_TIMESTAMPING,
];

/// Whether one of them is set. SO_RCVLOWAT is 1 by default.
pub fn has_unsupported_options(fd: c_int) -> bool {
    UNSUPPORTED.iter().any(|name| {
        let mut value: c_int = 0;
        let mut length = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the buffer has the stated length.
        let code = unsafe {
            crate::real::getsockopt(
                fd,
                libc::SOL_SOCKET,
                *name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        code == 0 && value > c_int::from(*name == libc::SO_RCVLOWAT)
    })
}

/// Returns true for an option that changes nothing for a connection which the kernel does not know,
/// or that this library reads from the socket.
pub fn is_usual(level: c_int, name: c_int) -> bool {
    const OF_SOCKETS: [c_int; 6] = [
        libc::SO_KEEPALIVE,
        libc::SO_REUSEADDR,
        libc::SO_LINGER,
        libc::SO_SNDBUF,
        libc::SO_RCVBUF,
        libc::SO_OOBINLINE,
    ];
    const OF_TCP: [c_int; 8] = [
        libc::TCP_NODELAY,
        libc::TCP_CORK,
        libc::TCP_QUICKACK,
        libc::TCP_KEEPIDLE,
        libc::TCP_KEEPINTVL,
        libc::TCP_KEEPCNT,
        libc::TCP_USER_TIMEOUT,
        libc::TCP_SYNCNT,
    ];
    match level {
        libc::SOL_SOCKET => OF_SOCKETS.contains(&name) || TIMEOUTS.contains(&name),
        libc::IPPROTO_TCP => OF_TCP.contains(&name),
        libc::IPPROTO_IPV6 => name == libc::IPV6_V6ONLY,
        _ => false,
    }
}

/// Options that limit how long a call waits, by both numbers that each has.
pub const TIMEOUTS: [c_int; 4] =
    [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW];
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// SO_RCVTIMEO or SO_SNDTIMEO; `None` if it is not set.
pub fn timeout(fd: c_int, option: c_int) -> Option<Duration> {
    let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the buffer has the stated length.
    let code = unsafe {
        crate::real::getsockopt(
            fd,
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    let time =
        Duration::new(value.tv_sec.unsigned_abs(), value.tv_usec.unsigned_abs() as u32 * 1000);
    (code == 0 && !time.is_zero()).then_some(time)
}

/// Receives from the kernel without waiting.
pub fn receive_now(fd: c_int, pieces: &[iovec], flags: c_int) -> isize {
    receive(fd, pieces, flags | libc::MSG_DONTWAIT)
}

/// Receives from the kernel.
pub fn receive(fd: c_int, pieces: &[iovec], flags: c_int) -> isize {
    // SAFETY: a message without pieces, names or control data is valid.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len();
    // SAFETY: the pieces are the program's, as it has described them.
    unsafe { crate::real::recvmsg(fd, &raw mut message, flags) }
}

/// Sends all of `bytes`, whatever the mode of the descriptor; waits for room. `false` if the kernel
/// refuses it.
pub fn send_all(fd: c_int, mut bytes: &[u8]) -> bool {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    while !bytes.is_empty() {
        // SAFETY: the buffer is a slice.
        let sent =
            unsafe { crate::real::send(fd, bytes.as_ptr().cast::<c_void>(), bytes.len(), flags) };
        if let Ok(sent) = usize::try_from(sent) {
            bytes = &bytes[sent..];
        } else if errno::last() == libc::EAGAIN {
            let mut entry = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one entry.
            unsafe { crate::real::poll(&raw mut entry, 1, 1000) };
            if entry.revents & (libc::POLLERR | libc::POLLHUP) != 0 {
                return false;
            }
        } else if errno::last() != libc::EINTR {
            return false;
        }
    }
    true
}

/// Ends the connection as close(2) does, although another process has the socket for a moment.
pub fn end(fd: c_int) {
    let is_reset = unread(fd) > 0 || lingers_not(fd);
    // SAFETY: the address is a local, of the stated length.
    unsafe {
        if is_reset {
            let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
            let length = size_of::<libc::sockaddr>() as libc::socklen_t;
            crate::real::connect(fd, &raw const none, length);
        } else {
            crate::real::shutdown(fd, libc::SHUT_RDWR);
        }
    }
}

/// Returns true if close(2) resets the connection: SO_LINGER with a time of 0.
pub fn lingers_not(fd: c_int) -> bool {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut length = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the buffer has the stated length.
    let code = unsafe {
        let value = (&raw mut linger).cast();
        crate::real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, &raw mut length)
    };
    code == 0 && linger.l_onoff != 0 && linger.l_linger == 0
}

/// Makes the last close(2) reset the connection, as the kernel does when unread bytes are lost.
pub fn reset_when_closed(fd: c_int) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the buffer has the stated length.
    unsafe {
        crate::real::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            length,
        )
    };
}
