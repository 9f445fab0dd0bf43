//! Functions of libc that must be entered as the program has called them: a variadic one, whose
//! arguments this library does not know, `dlopen`, which looks where its caller is, and `vfork`, which
//! returns twice.
//!
//! Each calls a function of this library with its first arguments, and then jumps to the function
//! of libc, with all registers of arguments and the stack as they were.

use std::arch::naked_asm;
use std::sync::atomic::AtomicPtr;

use levada_ring::records::Reason;
use libc::{c_char, c_int, c_void};

use crate::{demote, process, real, table, tcp_only};

/// Defines a function that calls `$before` and jumps to the address that it returns: System V ABI
/// for x86-64, where `al` has the number of vector registers of a variadic call.
macro_rules! jump_after {
    ($(#[$doc:meta])* $name:ident, $before:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192",
                "mov [rbp - 8], rax",
                "mov [rbp - 16], rdi",
                "mov [rbp - 24], rsi",
                "mov [rbp - 32], rdx",
                "mov [rbp - 40], rcx",
                "mov [rbp - 48], r8",
                "mov [rbp - 56], r9",
                "movups [rbp - 80], xmm0",
                "movups [rbp - 96], xmm1",
                "movups [rbp - 112], xmm2",
                "movups [rbp - 128], xmm3",
                "movups [rbp - 144], xmm4",
                "movups [rbp - 160], xmm5",
                "movups [rbp - 176], xmm6",
                "movups [rbp - 192], xmm7",
                "call {before}",
                "mov r11, rax",
                "mov rax, [rbp - 8]",
                "mov rdi, [rbp - 16]",
                "mov rsi, [rbp - 24]",
                "mov rdx, [rbp - 32]",
                "mov rcx, [rbp - 40]",
                "mov r8, [rbp - 48]",
                "mov r9, [rbp - 56]",
                "movups xmm0, [rbp - 80]",
                "movups xmm1, [rbp - 96]",
                "movups xmm2, [rbp - 112]",
                "movups xmm3, [rbp - 128]",
                "movups xmm4, [rbp - 144]",
                "movups xmm5, [rbp - 160]",
                "movups xmm6, [rbp - 176]",
                "movups xmm7, [rbp - 192]",
                "leave",
                "jmp r11",
                before = sym $before,
            )
        }
    };
}

/// libc writes to this descriptor by calls of its own: the connection goes back to TCP.
fn leave_to_libc(fd: c_int) {
    if let Some(entry) = table::find(fd) {
        demote::both(entry, Reason::Unsupported);
    }
}

extern "C" fn before_dprintf(fd: c_int) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    leave_to_libc(fd);
    real::find(&NEXT, c"dprintf")
}

extern "C" fn before_dprintf_chk(fd: c_int) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    leave_to_libc(fd);
    real::find(&NEXT, c"__dprintf_chk")
}

extern "C" fn before_vdprintf(fd: c_int) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    leave_to_libc(fd);
    real::find(&NEXT, c"vdprintf")
}

extern "C" fn before_vdprintf_chk(fd: c_int) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    leave_to_libc(fd);
    real::find(&NEXT, c"__vdprintf_chk")
}

/// The functions of a library that is opened so are those of libc, whatever this library replaces.
fn bypass() {
    tcp_only::enter(Reason::Unsupported);
}

extern "C" fn before_dlopen(_file: *const c_char, mode: c_int) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    if mode & libc::RTLD_DEEPBIND != 0 {
        bypass();
    }
    real::find(&NEXT, c"dlopen")
}

extern "C" fn before_dlmopen() -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    bypass();
    real::find(&NEXT, c"dlmopen")
}

extern "C" fn before_vfork() -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    process::lend();
    real::find(&NEXT, c"vfork")
}

extern "C" fn before_clone(
    _run: *const c_void,
    _stack: *const c_void,
    flags: c_int,
) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    if flags & libc::CLONE_VM != 0 && flags & libc::CLONE_THREAD == 0 {
        process::lend();
    }
    real::find(&NEXT, c"clone")
}

jump_after!(
    /// See dprintf(3).
    dprintf,
    before_dprintf
);
jump_after!(
    /// See dprintf(3), with the format checked (`_FORTIFY_SOURCE`).
    __dprintf_chk,
    before_dprintf_chk
);
jump_after!(
    /// See vdprintf(3).
    vdprintf,
    before_vdprintf
);
jump_after!(
    /// See vdprintf(3), with the format checked.
    __vdprintf_chk,
    before_vdprintf_chk
);
jump_after!(
    /// See dlopen(3). Its caller decides where it looks for libraries (DT_RUNPATH, `$ORIGIN`).
    dlopen,
    before_dlopen
);
jump_after!(
    /// See dlmopen(3).
    dlmopen,
    before_dlmopen
);
jump_after!(
    /// See vfork(2): the child uses the memory of this process.
    vfork,
    before_vfork
);
jump_after!(
    /// See clone(2), whose child may use the memory of this process.
    clone,
    before_clone
);
