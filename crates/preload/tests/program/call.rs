//! Calls of libc and their errors.

use std::fmt;

/// What a line returned.
pub type Reply = Result<String, Failure>;

/// A call that failed, with what is known beside the error number.
#[derive(Debug)]
pub struct Failure {
    pub errno: Errno,
    pub detail: String,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self { errno, detail: String::new() }
    }
}

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errno(pub i32);

impl Errno {
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno-{}", self.0),
        }
    }
}

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

const NAMES: &[(i32, &str)] = names!(
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV
    ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY EFBIG ENOSPC ESPIPE EROFS EPIPE EDOM ERANGE ENOTSOCK EDESTADDRREQ
    EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN
    ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETIMEDOUT ECONNREFUSED
    EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ENOSYS ELOOP EOVERFLOW
);

/// The result of a call: `-1` becomes the error number.
pub fn result(returned: i64) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| Errno::last())
}

/// Calls a function of libc. Pointers among the arguments must come from live references, or be
/// null where the call permits it.
macro_rules! call {
    ($function:path: $($argument:expr),*) => {
        // SAFETY: the pointers among the arguments come from live references to memory of the
        // lengths that stand beside them, or are null where the call permits it.
        $crate::call::result(i64::try_from(unsafe { $function($($argument),*) }).unwrap())
    };
}
pub(crate) use call;
