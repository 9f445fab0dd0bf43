//! Calls after which the process may no longer reach the monitor: it connects before them.

use libc::{c_char, c_int, uid_t};

use crate::{prepare, real};

/// See setuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setuid(user: uid_t) -> c_int {
    prepare::prepare();
    // SAFETY: as the program promises.
    unsafe { real::setuid(user) }
}

/// See seteuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn seteuid(user: uid_t) -> c_int {
    prepare::prepare();
    // SAFETY: as the program promises.
    unsafe { real::seteuid(user) }
}

/// See setreuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setreuid(own: uid_t, effective: uid_t) -> c_int {
    prepare::prepare();
    // SAFETY: as the program promises.
    unsafe { real::setreuid(own, effective) }
}

/// See setresuid(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setresuid(own: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    prepare::prepare();
    // SAFETY: as the program promises.
    unsafe { real::setresuid(own, effective, saved) }
}

/// See chroot(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn chroot(folder: *const c_char) -> c_int {
    prepare::prepare();
    // SAFETY: as the program promises.
    unsafe { real::chroot(folder) }
}
