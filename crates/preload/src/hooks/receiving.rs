//! read(2), recv(2) and their relatives.

use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};

use super::piece;
use crate::connection::{Path, Phase};
use crate::pieces::array;
use crate::{errno, real, seccomp, stream, table, tcp};

/// See read(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::read(fd, buffer, length) };
    match table::find(fd) {
        None => call(),
        Some(entry) => stream::receive(entry, &[piece(buffer, length)], 0, call),
    }
}

/// See read(2), with the length of the buffer checked (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    if length > room {
        std::process::abort();
    }
    // SAFETY: as the program promises.
    unsafe { read(fd, buffer, length) }
}

/// See readv(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::readv(fd, pieces, count) };
    match (table::find(fd), usize::try_from(count)) {
        (Some(entry), Ok(count @ 1..=1024)) => {
            // SAFETY: as the program promises.
            let pieces = unsafe { array(pieces, count) };
            stream::receive(entry, pieces, 0, call)
        }
        _ => call(),
    }
}

/// See preadv2(2). A connection has no offsets: -1 stands for that.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    if offset == -1 && flags == 0 && table::find(fd).is_some() {
        // SAFETY: as the program promises.
        return unsafe { readv(fd, pieces, count) };
    }
    if let Some(entry) = table::find(fd) {
        crate::demote::both(entry, levada_ring::records::Reason::Unsupported);
    }
    // SAFETY: as the program promises.
    unsafe { real::preadv2(fd, pieces, count, offset, flags) }
}

/// See preadv2(2): the same function, by the name that programs with large offsets use.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises; offsets have 64 bits here either way.
    unsafe { preadv2(fd, pieces, count, offset, flags) }
}

/// See recv(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::recv(fd, buffer, length, flags) };
    match table::find(fd) {
        None => call(),
        Some(entry) => stream::receive(entry, &[piece(buffer, length)], flags, call),
    }
}

/// See recv(2), with the length of the buffer checked.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if length > room {
        std::process::abort();
    }
    // SAFETY: as the program promises.
    unsafe { recv(fd, buffer, length, flags) }
}

/// See recvfrom(2). For TCP, the kernel leaves the address alone, and its length too.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    from: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::recvfrom(fd, buffer, length, flags, from, size) };
    match table::find(fd) {
        None => call(),
        Some(entry) => {
            let received = stream::receive(entry, &[piece(buffer, length)], flags, call);
            if received >= 0 && !from.is_null() && !size.is_null() {
                // SAFETY: as the program promises.
                unsafe { *size = 0 };
            }
            received
        }
    }
}

/// See recvfrom(2), with the length of the buffer checked.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    if length > room {
        std::process::abort();
    }
    // SAFETY: as the program promises.
    unsafe { recvfrom(fd, buffer, length, flags, from, size) }
}

/// See recvmsg(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::recvmsg(fd, message, flags) };
    let Some(entry) = table::find(fd).filter(|_| !message.is_null()) else { return call() };
    // SAFETY: as the program promises.
    let pieces = unsafe { array((*message).msg_iov, (*message).msg_iovlen) };
    let by_kernel = std::cell::Cell::new(false);
    let received = stream::receive(entry, pieces, flags, || {
        by_kernel.set(true);
        call()
    });
    if received >= 0 && !by_kernel.get() {
        // SAFETY: as the program promises. TCP has no names and, in a ring, no control data.
        unsafe {
            (*message).msg_namelen = 0;
            (*message).msg_controllen = 0;
            (*message).msg_flags = 0;
        }
    }
    received
}

/// See recvmmsg(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: as the program promises.
    let call = || unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    let Some(entry) = table::find(fd) else { return call() };
    if messages.is_null() || !timeout.is_null() {
        crate::demote::both(entry, levada_ring::records::Reason::Unsupported);
        return call();
    }
    let connection = entry.connection;
    if crate::direct::is_direct(entry) {
        if let Some(error) = crate::direct::take_error(connection) {
            return errno::fail(error) as c_int;
        }
        // SAFETY: as the program promises, there are `count` messages.
        return unsafe { receive_one_by_one(fd, messages, count, flags) };
    }
    if connection.phase() == Phase::Paired && connection.inbound_path() != Path::Back {
        // As the kernel does, also while bytes are unread.
        if !seccomp::is_sealed()
            && let Some(error) = tcp::take_error(fd)
        {
            return errno::fail(error) as c_int;
        }
        // SAFETY: as the program promises, there are `count` messages.
        return unsafe { receive_one_by_one(fd, messages, count, flags) };
    }
    // The kernel's own call returns a pending error even after the end of the stream.
    let received = std::cell::Cell::new(0);
    stream::receive_in_kernel(entry, flags, || {
        received.set(call());
        let number = usize::try_from(received.get()).unwrap_or(0).min(count as usize);
        // SAFETY: as the program promises, and the kernel has written the length of so many
        // messages.
        let lengths = (0..number).map(|at| unsafe { (*messages.add(at)).msg_len as isize });
        if received.get() < 0 { -1 } else { lengths.sum() }
    });
    received.get()
}

/// Receives messages one by one; after the first, without waiting.
///
/// # Safety
/// As recvmmsg(2): there are `count` messages.
unsafe fn receive_one_by_one(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let mut done = 0;
    while done < count {
        let more =
            if done > 0 && flags & libc::MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: as the caller promises.
        let received = unsafe {
            let message = &mut *messages.add(done as usize);
            let received =
                recvmsg(fd, &raw mut message.msg_hdr, flags & !libc::MSG_WAITFORONE | more);
            message.msg_len = u32::try_from(received).unwrap_or(0);
            received
        };
        if received < 0 {
            return if done > 0 { done as c_int } else { -1 };
        }
        done += 1;
    }
    done as c_int
}
