//! Calls after which the process may no longer reach the monitor: it connects before them; and those
//! after which a new socket is another one than before.

use libc::{c_char, c_int, uid_t};

use crate::{direct, prepare, real};

/// What needs the rights of before.
pub fn leave() {
    prepare::prepare();
    // The kernel knows by whom a socket was made.
    direct::release_spares();
}

/// See setns(2). A new socket is one of the namespace that its thread is in.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setns(fd: c_int, kind: c_int) -> c_int {
    if kind == 0 || kind & libc::CLONE_NEWNET != 0 {
        direct::leave_namespace();
    }
    // SAFETY: the call takes no addresses.
    unsafe { real::setns(fd, kind) }
}

/// See unshare(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_NEWNET != 0 {
        direct::leave_namespace();
    }
    // SAFETY: the call takes no addresses.
    unsafe { real::unshare(flags) }
}

/// See setuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setuid(user: uid_t) -> c_int {
    leave();
    // SAFETY: as the program promises.
    unsafe { real::setuid(user) }
}

/// See seteuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn seteuid(user: uid_t) -> c_int {
    leave();
    // SAFETY: as the program promises.
    unsafe { real::seteuid(user) }
}

/// See setreuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setreuid(own: uid_t, effective: uid_t) -> c_int {
    leave();
    // SAFETY: as the program promises.
    unsafe { real::setreuid(own, effective) }
}

/// See setresuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setresuid(own: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    leave();
    // SAFETY: as the program promises.
    unsafe { real::setresuid(own, effective, saved) }
}

/// See chroot(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn chroot(folder: *const c_char) -> c_int {
    leave();
    // SAFETY: as the program promises.
    unsafe { real::chroot(folder) }
}
