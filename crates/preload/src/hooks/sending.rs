//! write(2), send(2), sendfile(2) and their relatives.

use levada_ring::records::Reason;
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, off64_t, size_t, sockaddr, socklen_t,
    ssize_t,
};

use super::piece;
use crate::connection::Path;
use crate::pieces::array;
use crate::{demote, direct, epoll, errno, real, stream, table};

/// See write(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::write(fd, buffer, length) };
    match table::find(fd) {
        None => call(),
        Some(entry) => stream::send(entry, &[piece(buffer, length)], 0, call),
    }
}

/// See writev(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::writev(fd, pieces, count) };
    match (table::find(fd), usize::try_from(count)) {
        (Some(entry), Ok(count @ 1..=1024)) => {
            // SAFETY: as the program promises.
            let pieces = unsafe { array(pieces, count) };
            stream::send(entry, pieces, 0, call)
        }
        _ => call(),
    }
}

/// See pwritev2(2). A connection has no offsets: -1 stands for that.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    if offset == -1 && flags == 0 && table::find(fd).is_some() {
        // SAFETY: as the program promises.
        return unsafe { writev(fd, pieces, count) };
    }
    if let Some(entry) = table::find(fd) {
        demote::both(entry, Reason::Unsupported);
    }
    // SAFETY: as the program promises.
    unsafe { real::pwritev2(fd, pieces, count, offset, flags) }
}

/// See pwritev2(2): the same function, by the name that programs with large offsets use.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises; offsets have 64 bits here either way.
    unsafe { pwritev2(fd, pieces, count, offset, flags) }
}

/// See send(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::send(fd, buffer, length, flags) };
    match table::find(fd) {
        None => call(),
        Some(entry) => stream::send(entry, &[piece(buffer, length)], flags, call),
    }
}

/// See sendto(2). TCP ignores the address of a connected socket.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::sendto(fd, buffer, length, flags, to, size) };
    match table::find(fd) {
        None => call(),
        Some(entry) => stream::send(entry, &[piece(buffer, length)], flags, call),
    }
}

/// Connections that a message hands to another process (SCM_RIGHTS) go back to TCP, on which that
/// process has them. Returns false if one of them cannot.
///
/// # Safety
/// As sendmsg(2) demands.
unsafe fn hand_over(message: &msghdr) -> bool {
    let mut is_possible = true;
    // SAFETY: as the caller promises; the macros stay within the control data.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                let length = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for at in 0..length / size_of::<c_int>() {
                    let fd = data.add(at).read_unaligned();
                    if let Some(entry) = table::find(fd) {
                        demote::both(entry, Reason::Handed);
                        is_possible &= !direct::is_direct(entry);
                    }
                    epoll::nest(fd);
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    is_possible
}

/// See sendmsg(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the program promises.
    let call = || unsafe { real::sendmsg(fd, message, flags) };
    // SAFETY: as the program promises.
    let Some(header) = (unsafe { message.as_ref() }) else { return call() };
    if header.msg_controllen > 0 && !header.msg_control.is_null() {
        // SAFETY: as the program promises.
        if !unsafe { hand_over(header) } {
            return errno::fail(libc::EOPNOTSUPP);
        }
        if let Some(entry) = table::find(fd) {
            demote::both(entry, Reason::Unsupported);
            if direct::is_direct(entry) {
                return errno::fail(libc::EOPNOTSUPP);
            }
        }
        return call();
    }
    match table::find(fd) {
        None => call(),
        Some(entry) => {
            // SAFETY: as the program promises.
            let pieces = unsafe { array(header.msg_iov, header.msg_iovlen) };
            stream::send(entry, pieces, flags, call)
        }
    }
}

/// See sendmmsg(2). On a ring, messages are sent one by one.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if table::find(fd).is_none() || messages.is_null() {
        // SAFETY: as the program promises.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let mut done = 0;
    while done < count {
        // SAFETY: as the program promises, there are `count` messages.
        let sent = unsafe {
            let message = &mut *messages.add(done as usize);
            let sent = sendmsg(fd, &raw const message.msg_hdr, flags);
            message.msg_len = u32::try_from(sent).unwrap_or(0);
            sent
        };
        if sent < 0 {
            return if done > 0 { done as c_int } else { -1 };
        }
        done += 1;
    }
    done as c_int
}

/// Bytes of a file that are sent at a time.
const CHUNK: usize = 16 << 10;

/// See sendfile(2). Into a ring, the file is read.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    length: size_t,
) -> ssize_t {
    if let Some(entry) = table::find(from) {
        demote::both(entry, Reason::Unsupported);
    }
    let ring = table::find(to).filter(|entry| entry.connection.outbound_path() == Path::Ring);
    if ring.is_none() {
        // SAFETY: as the program promises.
        let call = || unsafe { real::sendfile(to, from, offset, length) };
        return match table::find(to) {
            None => call(),
            Some(entry) => stream::send_file(entry, call),
        };
    }
    // SAFETY: as the program promises.
    unsafe { copy_file(to, from, offset, length) }
}

/// sendfile(2) by reading and sending.
///
/// # Safety
/// As sendfile(2) demands.
unsafe fn copy_file(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t {
    let mut buffer = [0_u8; CHUNK];
    // SAFETY: as the caller promises.
    let start =
        unsafe { if offset.is_null() { libc::lseek(from, 0, libc::SEEK_CUR) } else { *offset } };
    if start < 0 {
        return -1;
    }
    let mut done = 0;
    let mut code = 0;
    while done < length {
        let wanted = CHUNK.min(length - done);
        // SAFETY: the buffer has `wanted` bytes.
        let read =
            unsafe { libc::pread(from, buffer.as_mut_ptr().cast(), wanted, start + done as off_t) };
        if read <= 0 {
            code = read;
            break;
        }
        // SAFETY: `read` bytes of the buffer were filled in.
        let sent = unsafe { send(to, buffer.as_ptr().cast(), read.unsigned_abs(), 0) };
        if sent < 0 {
            code = sent;
            break;
        }
        done += sent.unsigned_abs();
        if sent < read {
            break;
        }
    }
    let saved = errno::last();
    // SAFETY: as the caller promises.
    unsafe {
        if offset.is_null() {
            libc::lseek(from, start + done as off_t, libc::SEEK_SET);
        } else {
            *offset = start + done as off_t;
        }
    }
    errno::set(saved);
    if done > 0 { done.cast_signed() } else { code }
}

/// See sendfile(2): the same function, by the name that programs with large offsets use.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    length: size_t,
) -> ssize_t {
    // SAFETY: as the program promises; offsets have 64 bits here either way.
    unsafe { sendfile(to, from, offset, length) }
}

/// See splice(2), which moves bytes inside the kernel.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if let Some(entry) = table::find(to) {
        demote::both(entry, Reason::Unsupported);
        if direct::is_direct(entry) {
            return errno::fail(libc::EOPNOTSUPP);
        }
    }
    if let Some(entry) = table::find(from)
        && stream::is_ring_next(entry)
    {
        return copy_to_pipe(entry, to, length, flags);
    }
    // SAFETY: as the program promises.
    let call = || unsafe { real::splice(from, from_offset, to, to_offset, length, flags) };
    match table::find(from) {
        None => call(),
        Some(entry) => stream::receive_in_kernel(entry, 0, call),
    }
}

/// splice(2) out of a ring: what fits into the pipe is taken.
fn copy_to_pipe(entry: table::Entry, to: c_int, length: size_t, flags: c_uint) -> ssize_t {
    let mut buffer = [0_u8; CHUNK];
    let room = CHUNK.min(length);
    let nonblocking = if flags & libc::SPLICE_F_NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
    let pieces = [piece(buffer.as_mut_ptr().cast(), room)];
    // SAFETY: the buffer has room for it.
    let call =
        || unsafe { real::recv(entry.fd, pieces[0].iov_base, room, libc::MSG_PEEK | nonblocking) };
    let seen = stream::receive(entry, &pieces, libc::MSG_PEEK | nonblocking, call);
    let Ok(seen @ 1..) = usize::try_from(seen) else { return seen };
    let moved = fill_pipe(to, &buffer[..seen], nonblocking == 0);
    if moved > 0 {
        let taken = [piece(buffer.as_mut_ptr().cast(), moved.unsigned_abs())];
        // SAFETY: the buffer has room for it.
        let call = || unsafe { real::recv(entry.fd, taken[0].iov_base, moved.unsigned_abs(), 0) };
        stream::receive(entry, &taken, 0, call);
    }
    moved
}

/// Writes what fits into a pipe, whatever the mode of its descriptor. With `waits`, waits until
/// something does.
fn fill_pipe(pipe: c_int, bytes: &[u8], waits: bool) -> ssize_t {
    let pieces = [piece(bytes.as_ptr().cast(), bytes.len())];
    loop {
        // SAFETY: one piece, which is a slice.
        let written = unsafe { real::pwritev2(pipe, pieces.as_ptr(), 1, -1, libc::RWF_NOWAIT) };
        // Before Linux 6.5, pipes do not have this flag. A page fits into one that poll(2) shows as
        // ready.
        let is_old = written < 0 && errno::last() == libc::EOPNOTSUPP;
        if written >= 0 || errno::last() != libc::EAGAIN && !is_old {
            return written;
        }
        let waits = waits && !crate::tcp::is_nonblocking(pipe);
        let mut entry = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry.
        let ready = unsafe { real::poll(&raw mut entry, 1, if waits { -1 } else { 0 }) };
        if ready < 0 {
            return -1;
        }
        if ready == 0 || !is_old && !waits {
            return errno::fail(libc::EAGAIN);
        }
        if is_old {
            let length = bytes.len().min(libc::PIPE_BUF);
            // SAFETY: the buffer is a slice.
            return unsafe { real::write(pipe, bytes.as_ptr().cast(), length) };
        }
    }
}
