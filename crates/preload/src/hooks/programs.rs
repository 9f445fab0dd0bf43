//! exec(3), posix_spawn(3): another program takes the place of this one, or is started.

use std::arch::naked_asm;
use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_char, c_int, c_void, pid_t};

use crate::preloading::{self, Environment, Strings};
use crate::{lifecycle, real};

unsafe extern "C" {
    static environ: Strings;
}

/// A path of C.
///
/// # Safety
/// `path` is null or a string of C.
unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
    if path.is_null() {
        return Path::new("");
    }
    // SAFETY: as the caller promises.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// Makes a call that replaces this program.
fn replace(environment: &Environment, call: impl FnOnce(Strings) -> c_int) -> c_int {
    let closed = lifecycle::before_exec();
    lifecycle::exec_failed(&closed, call(environment.strings()))
}

/// See execve(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: as the program promises.
    let environment = unsafe { preloading::for_program(path_of(path), environment) };
    // SAFETY: as the program promises.
    replace(&environment, |environment| unsafe { real::execve(path, arguments, environment) })
}

/// See execveat(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program promises.
    let name = unsafe { path_of(path) };
    // SAFETY: as the program promises.
    let environment = unsafe {
        match name.as_os_str().is_empty() {
            true => preloading::for_file(BorrowedFd::borrow_raw(folder.max(0)), environment),
            false => preloading::for_program(&preloading::in_folder(folder, name), environment),
        }
    };
    // SAFETY: as the program promises.
    let call = |environment| unsafe { real::execveat(folder, path, arguments, environment, flags) };
    replace(&environment, call)
}

/// See exec(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as the program promises.
    unsafe { execve(path, arguments, environ) }
}

/// See exec(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvp(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as the program promises.
    unsafe { execvpe(path, arguments, environ) }
}

/// See exec(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvpe(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: as the program promises.
    let environment =
        unsafe { preloading::for_program(&preloading::in_path(path_of(path)), environment) };
    // SAFETY: as the program promises.
    replace(&environment, |environment| unsafe { real::execvpe(path, arguments, environment) })
}

/// See fexecve(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: as the program promises; a number that is no descriptor makes calls fail.
    let environment =
        unsafe { preloading::for_file(BorrowedFd::borrow_raw(fd.max(0)), environment) };
    // SAFETY: as the program promises.
    replace(&environment, |environment| unsafe { real::fexecve(fd, arguments, environment) })
}

/// Defines a variadic function that calls `$function` with the first argument, and with where the
/// next five and all others are: System V ABI for x86-64.
macro_rules! variadic {
    ($(#[$doc:meta])* $name:ident, $function:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "sub rsp, 56",
                "mov [rsp], rsi",
                "mov [rsp + 8], rdx",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "mov rsi, rsp",
                "lea rdx, [rsp + 64]",
                "call {function}",
                "add rsp, 56",
                "ret",
                function = sym $function,
            )
        }
    };
}

/// Arguments in registers that follow the first one.
type Registers = *const [*const c_char; 5];

/// The arguments of a variadic call, up to a null and with it; and where the next one is.
///
/// # Safety
/// The arguments are strings of C, and a null is among them.
unsafe fn collect(registers: Registers, stack: Strings) -> (Vec<*const c_char>, Strings) {
    let mut arguments = Vec::new();
    let mut at = 0;
    loop {
        // SAFETY: as the caller promises.
        let next = unsafe { argument(registers, stack, at) };
        at += 1;
        // SAFETY: as above.
        let argument = unsafe { *next };
        arguments.push(argument);
        if argument.is_null() {
            // SAFETY: an argument may follow, and is read only if it does.
            return (arguments, unsafe { self::argument(registers, stack, at) });
        }
    }
}

/// Where the argument with this number is.
///
/// # Safety
/// There are as many.
unsafe fn argument(registers: Registers, stack: Strings, at: usize) -> Strings {
    // SAFETY: as the caller promises.
    unsafe { if at < 5 { registers.cast::<*const c_char>().add(at) } else { stack.add(at - 5) } }
}

/// # Safety
/// As execl(3).
unsafe extern "C" fn with_list(path: *const c_char, registers: Registers, stack: Strings) -> c_int {
    // SAFETY: as the program promises.
    unsafe { execve(path, collect(registers, stack).0.as_ptr(), environ) }
}

/// # Safety
/// As execlp(3).
unsafe extern "C" fn in_path_with_list(
    path: *const c_char,
    registers: Registers,
    stack: Strings,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe { execvpe(path, collect(registers, stack).0.as_ptr(), environ) }
}

/// # Safety
/// As execle(3).
unsafe extern "C" fn with_list_and_environment(
    path: *const c_char,
    registers: Registers,
    stack: Strings,
) -> c_int {
    // SAFETY: as the program promises: the environment follows the null.
    unsafe {
        let (arguments, environment) = collect(registers, stack);
        execve(path, arguments.as_ptr(), environment.cast::<Strings>().read())
    }
}

variadic!(
    /// See exec(3).
    execl,
    with_list
);
variadic!(
    /// See exec(3).
    execlp,
    in_path_with_list
);
variadic!(
    /// See exec(3).
    execle,
    with_list_and_environment
);

/// See posix_spawn(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        let environment = preloading::for_program(path_of(path), environment);
        real::posix_spawn(child, path, actions, attributes, arguments, environment.strings())
    }
}

/// See posix_spawn(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawnp(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        let environment = preloading::for_program(&preloading::in_path(path_of(path)), environment);
        real::posix_spawnp(child, path, actions, attributes, arguments, environment.strings())
    }
}
