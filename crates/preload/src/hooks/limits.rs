//! setrlimit(2), prlimit(2), and filters of system calls by prctl(2).

use libc::{c_int, c_long, c_uint, pid_t, rlimit};

use crate::{real, seccomp, tcp_only};

const DESCRIPTORS: c_uint = libc::RLIMIT_NOFILE;

/// See setrlimit(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: as the program promises.
    changed(resource, unsafe { real::setrlimit(resource, limit) })
}

/// See setrlimit(2): the same function, by the name that programs with large files use.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: as the program promises; limits have 64 bits here either way.
    unsafe { setrlimit(resource, limit) }
}

/// See prlimit(2). The process may be another one: then nothing has changed here.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prlimit(
    process: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: as the program promises.
    changed(resource, unsafe { real::prlimit(process, resource, new, old) })
}

/// See prlimit(2): the same function, by the name that programs with large files use.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prlimit64(
    process: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: as the program promises; limits have 64 bits here either way.
    unsafe { prlimit(process, resource, new, old) }
}

fn changed(resource: c_uint, code: c_int) -> c_int {
    if resource == DESCRIPTORS && code == 0 {
        tcp_only::limit_changed();
    }
    code
}

/// See prctl(2). Its arguments are numbers or addresses, and may be missing.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        seccomp::before_filter();
    }
    // SAFETY: as the program promises.
    unsafe { real::prctl(option, a, b, c, d) }
}
