//! The error number of this thread.

use libc::c_int;

/// The number that the last failed call left.
pub fn last() -> c_int {
    // SAFETY: the address is that of this thread's number.
    unsafe { *libc::__errno_location() }
}

/// Sets the number.
pub fn set(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
}

/// Sets the number, and is what a failed call returns.
pub fn fail(number: c_int) -> isize {
    set(number);
    -1
}
