//! Programs that this library cannot be loaded into are started without it: see
//! [`levada_ring::elf`].

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use levada_ring::elf;
use rustix::fs::{Access, access};

use crate::settings;

/// Strings of C, to a null.
pub type Strings = *const *const c_char;

/// The environment of a program: that of the caller, or a copy without this library.
pub struct Environment {
    given: Strings,
    /// Must live until the program has started.
    _preload: Option<CString>,
    copy: Vec<*const c_char>,
}

impl Environment {
    /// For libc.
    pub fn strings(&self) -> Strings {
        if self.copy.is_empty() { self.given } else { self.copy.as_ptr() }
    }

    fn unchanged(given: Strings) -> Self {
        Self { given, _preload: None, copy: Vec::new() }
    }
}

const VARIABLE: &[u8] = b"LD_PRELOAD=";

/// The environment for a program.
///
/// # Safety
/// `environment` is null, or strings of C to a null.
pub unsafe fn for_program(program: &Path, environment: Strings) -> Environment {
    // SAFETY: as the caller promises.
    unsafe { without_library_if(environment, || elf::misfit(program).is_some()) }
}

/// The environment for the program in an open file.
///
/// # Safety
/// As [`for_program`].
pub unsafe fn for_file(program: impl AsFd, environment: Strings) -> Environment {
    // By another open file: this one may be open for execution only.
    let path = format!("/proc/self/fd/{}", program.as_fd().as_raw_fd());
    // SAFETY: as the caller promises.
    unsafe { for_program(Path::new(&path), environment) }
}

/// # Safety
/// As [`for_program`].
unsafe fn without_library_if(given: Strings, is_misfit: impl FnOnce() -> bool) -> Environment {
    if given.is_null() || settings::socket().is_none() {
        return Environment::unchanged(given);
    }
    // SAFETY: as the caller promises.
    let all = || unsafe { strings(given) };
    let preload = all().find_map(|string| string.to_bytes().strip_prefix(VARIABLE));
    let Some(preload) = preload.filter(|preload| names(preload).any(is_own)) else {
        return Environment::unchanged(given);
    };
    if !is_misfit() {
        return Environment::unchanged(given);
    }
    let others: Vec<&[u8]> = names(preload).filter(|name| !is_own(name)).collect();
    let left = [VARIABLE, &others.join(&b':')].concat();
    let left = CString::new(left).ok().filter(|_| !others.is_empty());
    let is_other = |string: &&CStr| !string.to_bytes().starts_with(VARIABLE);
    let mut copy: Vec<*const c_char> = all().filter(is_other).map(CStr::as_ptr).collect();
    copy.extend(left.as_deref().map(CStr::as_ptr));
    copy.push(std::ptr::null());
    Environment { given, _preload: left, copy }
}

/// # Safety
/// As [`for_program`], and not null.
unsafe fn strings<'a>(mut next: Strings) -> impl Iterator<Item = &'a CStr> {
    std::iter::from_fn(move || {
        // SAFETY: as the caller promises: a null comes last.
        let string = unsafe { *next };
        if string.is_null() {
            return None;
        }
        // SAFETY: as above.
        unsafe {
            next = next.add(1);
            Some(CStr::from_ptr(string))
        }
    })
}

/// The libraries in the value of LD_PRELOAD (ld.so(8)).
fn names(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b':' | b' ')).filter(|name| !name.is_empty())
}

/// Returns true for the name by which this library was loaded.
fn is_own(name: &[u8]) -> bool {
    // SAFETY: zero is a valid value of this structure.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is that of a function of this library; the result is a local.
    let code = unsafe { libc::dladdr(is_own as *const c_void, &raw mut found) };
    // SAFETY: the linker has a string of C for each library.
    code != 0 && unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes() == name
}

/// The program that execvp(3) starts for a name.
pub fn in_path(name: &Path) -> PathBuf {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return name.to_owned();
    }
    // Not by `std::env`, whose lock a thread of the parent may have had at a fork.
    // SAFETY: the name is a string of C; the value is one, or null.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    let path = match path.is_null() {
        true => c"/bin:/usr/bin",
        // SAFETY: as above.
        false => unsafe { CStr::from_ptr(path) },
    };
    let folders = path.to_bytes().split(|byte| *byte == b':');
    let mut candidates = folders.map(|folder| Path::new(OsStr::from_bytes(folder)).join(name));
    candidates.find(|path| access(path, Access::EXEC_OK).is_ok()).unwrap_or_default()
}

/// The path of a program in a folder, see execveat(2).
pub fn in_folder(folder: i32, name: &Path) -> PathBuf {
    if name.is_absolute() || folder == libc::AT_FDCWD {
        return name.to_owned();
    }
    Path::new("/proc/self/fd").join(folder.to_string()).join(name)
}
