//! syscall(2): a program that makes system calls itself, by number, but through libc.

use std::ptr;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_uint, sigset_t, timespec};

use crate::{epoll, io_uring, poll, process, real, seccomp, table};

/// Calls after which the process may no longer reach the monitor, see [`users`](super::users).
const LEAVING: [c_long; 4] =
    [libc::SYS_setuid, libc::SYS_setreuid, libc::SYS_setresuid, libc::SYS_chroot];

/// Calls whose child may use the memory of this process.
const FORKS: [c_long; 3] = [libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3];

/// See syscall(2). What concerns a connection is done by the function of that name. Arguments that
/// the program did not pass are not used.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    // SECCOMP_SET_MODE_STRICT and _FILTER.
    let sets_filter = number == libc::SYS_seccomp && matches!(a, 0 | 1);
    if sets_filter || number == libc::SYS_prctl && a == c_long::from(libc::PR_SET_SECCOMP) {
        seccomp::before_filter();
    }
    if LEAVING.contains(&number) {
        super::users::leave();
    }
    if FORKS.contains(&number) {
        process::lend();
    }
    // SAFETY: as the program promises.
    let done = unsafe { of_descriptor(number, arguments) };
    // SAFETY: as the program promises.
    let result = done.unwrap_or_else(|| unsafe { real::syscall(number, a, b, c, d, e, f) });
    if number == libc::SYS_io_uring_setup && result >= 0 {
        io_uring::found();
    }
    result
}

/// Makes the call by libc's function, as this library replaces it; `None` for a call that concerns
/// no connection and no epoll.
///
/// # Safety
/// As the system call demands.
unsafe fn of_descriptor(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let fd = a as c_int;
    let found = |fd: c_long| table::find(fd as c_int).is_some();
    // SAFETY: as the caller promises: numbers and addresses of these types, in this order.
    let result: isize = unsafe {
        match number {
            libc::SYS_read if found(a) => libc::read(fd, b as _, c as _),
            libc::SYS_readv if found(a) => libc::readv(fd, b as _, c as _),
            libc::SYS_preadv2 if found(a) => libc::preadv2(fd, b as _, c as _, d, f as _),
            libc::SYS_recvfrom if found(a) => {
                libc::recvfrom(fd, b as _, c as _, d as _, e as _, f as _)
            }
            libc::SYS_recvmsg if found(a) => libc::recvmsg(fd, b as _, c as _),
            libc::SYS_recvmmsg if found(a) => {
                libc::recvmmsg(fd, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_write if found(a) => libc::write(fd, b as _, c as _),
            libc::SYS_writev if found(a) => libc::writev(fd, b as _, c as _),
            libc::SYS_pwritev2 if found(a) => libc::pwritev2(fd, b as _, c as _, d, f as _),
            libc::SYS_sendto if found(a) => {
                libc::sendto(fd, b as _, c as _, d as _, e as _, f as _)
            }
            libc::SYS_sendmsg if found(a) => libc::sendmsg(fd, b as _, c as _),
            libc::SYS_sendmmsg if found(a) => libc::sendmmsg(fd, b as _, c as _, d as _) as isize,
            libc::SYS_sendfile if found(a) => libc::sendfile(fd, b as _, c as _, d as _),
            libc::SYS_splice if found(a) || found(c) => {
                libc::splice(fd, b as _, c as _, d as _, e as _, f as c_uint)
            }
            libc::SYS_shutdown if found(a) => libc::shutdown(fd, b as _) as isize,
            libc::SYS_setsockopt if found(a) => {
                libc::setsockopt(fd, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_connect if found(a) => libc::connect(fd, b as _, c as _) as isize,
            libc::SYS_bind if found(a) => libc::bind(fd, b as _, c as _) as isize,
            libc::SYS_listen if found(a) => libc::listen(fd, b as _) as isize,
            libc::SYS_accept if found(a) => libc::accept(fd, b as _, c as _) as isize,
            libc::SYS_getsockname if found(a) => libc::getsockname(fd, b as _, c as _) as isize,
            libc::SYS_getpeername if found(a) => libc::getpeername(fd, b as _, c as _) as isize,
            libc::SYS_getsockopt if found(a) => {
                libc::getsockopt(fd, b as _, c as _, d as _, e as _) as isize
            }
            // An epoll's descriptors, too.
            libc::SYS_close => libc::close(fd) as isize,
            libc::SYS_close_range => libc::close_range(a as _, b as _, c as _) as isize,
            libc::SYS_dup => libc::dup(fd) as isize,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => libc::dup2(fd, b as _) as isize,
            libc::SYS_dup3 => libc::dup3(fd, b as _, c as _) as isize,
            libc::SYS_fcntl if found(a) || epoll::is_known(fd) => {
                libc::fcntl(fd, b as _, c) as isize
            }
            libc::SYS_ioctl if found(a) => libc::ioctl(fd, b as _, c) as isize,
            libc::SYS_socket => libc::socket(fd, b as _, c as _) as isize,
            libc::SYS_accept4 => libc::accept4(fd, b as _, c as _, d as _) as isize,
            libc::SYS_setrlimit => libc::setrlimit(a as _, b as _) as isize,
            libc::SYS_prlimit64 => libc::prlimit(a as _, b as _, c as _, d as _) as isize,
            libc::SYS_setns => libc::setns(fd, b as _) as isize,
            libc::SYS_unshare => libc::unshare(a as _) as isize,
            libc::SYS_execve => libc::execve(a as _, b as _, c as _) as isize,
            _ => return of_events(number, arguments),
        }
    };
    Some(result as c_long)
}

/// As [`of_descriptor`], for poll(2), select(2) and epoll(7).
///
/// # Safety
/// As the system call demands.
unsafe fn of_events(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let fd = a as c_int;
    let known = || epoll::is_known(fd);
    // SAFETY: as the caller promises: numbers and addresses of these types, in this order.
    let result = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => libc::poll(a as _, b as _, c as _),
            libc::SYS_ppoll => timed(c, |time| libc::ppoll(a as _, b as _, time, d as _)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => libc::select(fd, b as _, c as _, d as _, e as _),
            libc::SYS_pselect6 if poll::has_rings(fd, [b as _, c as _, d as _]) => {
                // The last argument is the address of that of the mask, and of its length.
                let mask = (f as *const *const sigset_t).as_ref().map_or(ptr::null(), |mask| *mask);
                timed(e, |time| libc::pselect(fd, b as _, c as _, d as _, time, mask))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => libc::epoll_create(fd),
            libc::SYS_epoll_create1 => libc::epoll_create1(fd),
            libc::SYS_epoll_ctl if known() || table::find(c as c_int).is_some() => {
                libc::epoll_ctl(fd, b as _, c as _, d as _)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait if known() => libc::epoll_wait(fd, b as _, c as _, d as _),
            libc::SYS_epoll_pwait if known() => {
                libc::epoll_pwait(fd, b as _, c as _, d as _, e as _)
            }
            libc::SYS_epoll_pwait2 if known() => {
                libc::epoll_pwait2(fd, b as _, c as _, d as _, e as _)
            }
            _ => return None,
        }
    };
    Some(result.into())
}

/// Makes a call that waits for at most the time at this address, and writes there how much of it is
/// left, as the kernel does and functions of libc do not.
///
/// # Safety
/// The address is null or that of a time.
unsafe fn timed(address: c_long, call: impl FnOnce(*const timespec) -> c_int) -> c_int {
    let address = address as *mut timespec;
    let start = Instant::now();
    let result = call(address);
    // SAFETY: as the caller promises.
    if let Some(time) = unsafe { address.as_mut() }
        && let (Ok(seconds), Ok(nanoseconds @ ..1_000_000_000)) =
            (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec))
    {
        let left = Duration::new(seconds, nanoseconds).saturating_sub(start.elapsed());
        time.tv_sec = left.as_secs().cast_signed();
        time.tv_nsec = left.subsec_nanos().into();
    }
    result
}
