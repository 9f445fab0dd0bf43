//! liburing's functions that set up io_uring, which make their system call by machine code of their
//! own.
//!
//! A program that has liburing as a shared library calls these instead. One that is linked with it
//! statically is found at times, see [`io_uring`].

use std::ffi::CStr;
use std::sync::atomic::AtomicPtr;

use libc::{c_int, c_uint, c_void, size_t};

use crate::{io_uring, real};

/// Calls a function of liburing, and notes its success.
///
/// # Safety
/// `call` calls a function of the type that liburing declares for `name`.
unsafe fn set_up(
    next: &AtomicPtr<c_void>,
    name: &CStr,
    call: impl FnOnce(*mut c_void) -> c_int,
) -> c_int {
    let function = real::find_optional(next, name);
    if function.is_null() {
        return -libc::ENOSYS;
    }
    let code = call(function);
    if code >= 0 {
        io_uring::found();
    }
    code
}

/// See io_uring_queue_init(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_queue_init(
    entries: c_uint,
    ring: *mut c_void,
    flags: c_uint,
) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_uint, *mut c_void, c_uint) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let call = |function| {
        // SAFETY: the type is that of liburing; the arguments are the program's.
        unsafe { std::mem::transmute::<*mut c_void, Function>(function)(entries, ring, flags) }
    };
    // SAFETY: as above.
    unsafe { set_up(&NEXT, c"io_uring_queue_init", call) }
}

/// See io_uring_queue_init_params(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_uint, *mut c_void, *mut c_void) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let call = |function| {
        // SAFETY: the type is that of liburing; the arguments are the program's.
        unsafe { std::mem::transmute::<*mut c_void, Function>(function)(entries, ring, parameters) }
    };
    // SAFETY: as above.
    unsafe { set_up(&NEXT, c"io_uring_queue_init_params", call) }
}

/// See io_uring_queue_init_mem(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_uring_queue_init_mem(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
    memory: *mut c_void,
    size: size_t,
) -> c_int {
    type Function =
        unsafe extern "C-unwind" fn(c_uint, *mut c_void, *mut c_void, *mut c_void, size_t) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let call = |function| {
        // SAFETY: the type is that of liburing; the arguments are the program's.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
        // SAFETY: as above.
        unsafe { function(entries, ring, parameters, memory, size) }
    };
    // SAFETY: as above.
    unsafe { set_up(&NEXT, c"io_uring_queue_init_mem", call) }
}
