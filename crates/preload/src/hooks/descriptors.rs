//! close(2), dup(2), fcntl(2), ioctl(2), exec(3), _exit(2).

use std::sync::atomic::Ordering;

use levada_ring::records::Reason;
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use crate::{demote, direct, epoll, errno, lifecycle, private, process, real, table};

/// See close(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if private::is_ours(fd) {
        return errno::fail(libc::EBADF) as c_int;
    }
    lifecycle::closing(fd);
    // SAFETY: the call takes no addresses.
    unsafe { real::close(fd) }
}

/// See close_range(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let cloexec = 1 << 2; // CLOSE_RANGE_CLOEXEC
    if first > last {
        // SAFETY: the call takes no addresses.
        return unsafe { real::close_range(first, last, flags) };
    }
    for (first, last) in lifecycle::ranges(first, last) {
        if flags & cloexec == 0 {
            let end = last.min(table::DESCRIPTORS as c_uint);
            (first..end.saturating_add(1))
                .filter_map(|fd| c_int::try_from(fd).ok())
                .for_each(lifecycle::closing);
        }
        // SAFETY: the call takes no addresses.
        let code = unsafe { real::close_range(first, last, flags) };
        if code != 0 {
            return code;
        }
    }
    0
}

/// See closefrom(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the call takes no addresses.
    unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) };
}

/// See dup(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the call takes no addresses.
    let new = unsafe { real::dup(fd) };
    lifecycle::duplicated(fd, new);
    new
}

/// See dup2(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the calls take no addresses.
    unsafe { replace(fd, to, || real::dup2(fd, to)) }
}

/// See dup3(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the calls take no addresses.
    unsafe { replace(fd, to, || real::dup3(fd, to, flags)) }
}

/// Duplicates `fd` to the number `to`, which is closed.
///
/// # Safety
/// As dup2(2).
unsafe fn replace(fd: c_int, to: c_int, call: impl Fn() -> c_int) -> c_int {
    let is_known = |fd| table::find(fd).is_some() || epoll::is_known(fd);
    let concerns = private::is_ours(to) || is_known(fd) || is_known(to);
    // SAFETY: the command takes no argument.
    let open = concerns && unsafe { real::fcntl64(fd, libc::F_GETFD, 0) } >= 0;
    if open && fd != to && to >= 0 {
        if private::is_ours(to) && process::owns_tables() {
            private::vacate(to);
        }
        lifecycle::becomes(fd, to);
        lifecycle::closing(to);
    }
    let new = call();
    lifecycle::duplicated(fd, new);
    new
}

/// See fcntl(2). Its third argument is a number or an address, and may be missing.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: as the program promises.
    unsafe { fcntl64(fd, command, argument) }
}

/// Commands that set who gets the signals of a socket, and which.
const OWNERS: [c_int; 3] = [libc::F_SETOWN, F_SETOWN_EX, F_SETSIG];
const F_SETOWN_EX: c_int = 15;
const F_SETSIG: c_int = 10;

/// See fcntl(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if command == libc::F_SETFL
        && argument & c_long::from(libc::O_ASYNC) != 0
        && let Some(entry) = table::find(fd)
    {
        demote::both(entry, Reason::Unsupported);
    }
    if OWNERS.contains(&command)
        && let Some(entry) = table::find(fd).filter(|_| direct::is_on())
    {
        direct::claim(entry);
    }
    let direct = table::find(fd).filter(|entry| direct::has_own_flags(*entry));
    if let Some(entry) = direct.filter(|_| command == libc::F_SETFL) {
        return direct::set_nonblocking(entry, argument as c_int);
    }
    // SAFETY: as the program promises.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    if let Some(entry) = direct.filter(|_| command == libc::F_GETFL && result >= 0) {
        return direct::flags(entry, result);
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => lifecycle::duplicated(fd, result),
        libc::F_SETFL if result == 0 => {
            note_nonblocking(fd, argument & c_long::from(libc::O_NONBLOCK) != 0);
        }
        _ => {}
    }
    result
}

fn note_nonblocking(fd: c_int, nonblocking: bool) {
    if let Some(entry) = table::find(fd) {
        entry.connection.nonblocking.store(nonblocking.into(), Ordering::Relaxed);
    }
}

/// See ioctl(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    const ASYNCHRONOUS: c_ulong = libc::FIOASYNC as c_ulong;
    if request == ASYNCHRONOUS
        && let Some(entry) = table::find(fd)
        // SAFETY: as the program promises: the argument is the address of a number.
        && unsafe { argument.cast::<c_int>().as_ref() }.is_some_and(|is_on| *is_on != 0)
    {
        // As F_SETFL with O_ASYNC: the kernel sends signals for what it has.
        demote::both(entry, Reason::Unsupported);
    }
    if request == libc::FIONBIO as c_ulong
        && let Some(entry) = table::find(fd).filter(|entry| direct::has_own_flags(*entry))
        // SAFETY: as the program promises: the argument is the address of a number.
        && let Some(is_on) = unsafe { argument.cast::<c_int>().as_ref() }
    {
        let flags = if *is_on == 0 { 0 } else { libc::O_NONBLOCK };
        return direct::set_nonblocking(entry, flags);
    }
    // SAFETY: as the program promises.
    let code = unsafe { real::ioctl(fd, request, argument) };
    const UNREAD: c_ulong = libc::FIONREAD as c_ulong;
    const NONBLOCKING: c_ulong = libc::FIONBIO as c_ulong;
    match request {
        // SAFETY: as the program promises: the argument is the address of a number.
        UNREAD if code == 0 => add_unread(fd, unsafe { &mut *argument.cast() }),
        // SAFETY: as above.
        NONBLOCKING if code == 0 => note_nonblocking(fd, unsafe { *argument.cast::<c_int>() } != 0),
        _ => {}
    }
    code
}

/// Adds the unread bytes of a ring to those of TCP, or puts them in their place.
fn add_unread(fd: c_int, unread: &mut c_int) {
    if let Some((in_ring, tcp_too)) = table::find(fd).and_then(crate::stream::unread_in_ring) {
        let by_tcp = if tcp_too { *unread } else { 0 };
        *unread = c_int::try_from(in_ring).unwrap_or(c_int::MAX).saturating_add(by_tcp);
    }
}

/// See fdopen(3): libc reads and writes by calls of its own.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    if let Some(entry) = table::find(fd) {
        demote::both(entry, Reason::Unsupported);
    }
    // SAFETY: as the program promises.
    unsafe { real::fdopen(fd, mode) }
}

/// See fclose(3), which closes the descriptor by a call of its own.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(stream: *mut libc::FILE) -> c_int {
    if !stream.is_null() {
        // SAFETY: as the program promises.
        lifecycle::closing(unsafe { libc::fileno(stream) });
    }
    // SAFETY: as the program promises.
    unsafe { real::fclose(stream) }
}

/// See posix_spawn_file_actions_adddup2(3): the descriptor is for another program.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(
    actions: *mut libc::posix_spawn_file_actions_t,
    fd: c_int,
    to: c_int,
) -> c_int {
    if let Some(entry) = table::find(fd) {
        demote::both(entry, Reason::Handed);
    }
    // SAFETY: as the program promises.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, fd, to) }
}

/// See _exit(2), which runs no handlers: the descriptors of this process are counted here.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    lifecycle::end();
    // SAFETY: the call takes no addresses.
    unsafe { real::_exit(status) }
}

/// See _Exit(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    // SAFETY: the call takes no addresses.
    unsafe { _exit(status) }
}
