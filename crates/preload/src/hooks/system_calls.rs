//! syscall(2): a program that makes system calls itself, by number, but through libc.

use libc::{c_int, c_long, c_uint};

use crate::{epoll, io_uring, real, table};

/// See syscall(2). What concerns a connection is done by the function of that name. Arguments that the program did not pass are not used.
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
    // SAFETY: as the program promises.
    let done = unsafe { of_descriptor(number, arguments) };
    // SAFETY: as the program promises.
    let result = done.unwrap_or_else(|| unsafe { real::syscall(number, a, b, c, d, e, f) });
    if number == libc::SYS_io_uring_setup && result >= 0 {
        io_uring::found();
    }
    result
}

/// Makes the call by libc's function, as this library replaces it; `None` for a call that concerns no connection.
///
/// # Safety
/// As the system call demands.
unsafe fn of_descriptor(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let fd = a as c_int;
    match number {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_shutdown
        | libc::SYS_setsockopt
        | libc::SYS_connect
        | libc::SYS_close
        | libc::SYS_dup
        | libc::SYS_fcntl
        | libc::SYS_ioctl => {
            table::find(fd)?;
        }
        libc::SYS_dup3 => {
            table::find(fd).or_else(|| table::find(b as c_int))?;
        }
        libc::SYS_splice => {
            table::find(fd).or_else(|| table::find(c as c_int))?;
        }
        libc::SYS_epoll_ctl => {
            table::find(c as c_int)?;
        }
        libc::SYS_epoll_pwait => {
            epoll::is_known(fd).then_some(())?;
        }
        libc::SYS_socket | libc::SYS_accept4 | libc::SYS_ppoll => {}
        _ => return None,
    }
    // SAFETY: as the caller promises: numbers and addresses of these types, in this order.
    let result: isize = unsafe {
        match number {
            libc::SYS_read => libc::read(fd, b as _, c as _),
            libc::SYS_readv => libc::readv(fd, b as _, c as _),
            libc::SYS_recvfrom => libc::recvfrom(fd, b as _, c as _, d as _, e as _, f as _),
            libc::SYS_recvmsg => libc::recvmsg(fd, b as _, c as _),
            libc::SYS_recvmmsg => libc::recvmmsg(fd, b as _, c as _, d as _, e as _) as isize,
            libc::SYS_write => libc::write(fd, b as _, c as _),
            libc::SYS_writev => libc::writev(fd, b as _, c as _),
            libc::SYS_sendto => libc::sendto(fd, b as _, c as _, d as _, e as _, f as _),
            libc::SYS_sendmsg => libc::sendmsg(fd, b as _, c as _),
            libc::SYS_sendmmsg => libc::sendmmsg(fd, b as _, c as _, d as _) as isize,
            libc::SYS_sendfile => libc::sendfile(fd, b as _, c as _, d as _),
            libc::SYS_shutdown => libc::shutdown(fd, b as _) as isize,
            libc::SYS_setsockopt => libc::setsockopt(fd, b as _, c as _, d as _, e as _) as isize,
            libc::SYS_connect => libc::connect(fd, b as _, c as _) as isize,
            libc::SYS_close => libc::close(fd) as isize,
            libc::SYS_dup => libc::dup(fd) as isize,
            libc::SYS_dup3 => libc::dup3(fd, b as _, c as _) as isize,
            libc::SYS_fcntl => libc::fcntl(fd, b as _, c) as isize,
            libc::SYS_ioctl => libc::ioctl(fd, b as _, c) as isize,
            libc::SYS_splice => libc::splice(fd, b as _, c as _, d as _, e as _, f as c_uint),
            libc::SYS_socket => libc::socket(fd, b as _, c as _) as isize,
            libc::SYS_accept4 => libc::accept4(fd, b as _, c as _, d as _) as isize,
            libc::SYS_epoll_ctl => libc::epoll_ctl(fd, b as _, c as _, d as _) as isize,
            libc::SYS_epoll_pwait => libc::epoll_pwait(fd, b as _, c as _, d as _, e as _) as isize,
            _ => libc::ppoll(a as _, b as _, c as _, d as _) as isize,
        }
    };
    Some(result as c_long)
}
