//! The unconnected sockets whose duplicates are the descriptors of accepted connections.
//!
//! A duplicate takes a tenth of the time that a socket takes to make and close. What bypasses this
//! library finds a socket that is not connected: ENOTCONN, and no bytes of another connection.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, socklen_t};
use rustix::io::Errno;

use crate::{errno, private, real, tcp};

/// The socket of one listener, and what its accepted connections inherit.
pub struct Stock {
    home: AtomicI32,
    /// The listener's family: AF_INET or AF_INET6.
    pub domain: c_int,
}

/// Options that accepted connections inherit from their listener.
const INHERITED: [(c_int, c_int); 9] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
];

impl Stock {
    /// For a listener. `None` if the kernel does not say of which family it is.
    pub fn of(listener: c_int) -> Option<Self> {
        let domain = tcp::option(listener, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
        Some(Self { home: AtomicI32::new(-1), domain })
    }

    /// A descriptor for an accepted connection of `listener`, with the lowest free number. The
    /// second part is true if it shares its socket with others.
    pub fn descriptor(
        &'static self,
        listener: c_int,
        is_inheritable: bool,
    ) -> Result<(c_int, bool), Errno> {
        let duplicate = || {
            let command = match is_inheritable {
                true => libc::F_DUPFD,
                false => libc::F_DUPFD_CLOEXEC,
            };
            private::with(&self.home, |socket| {
                // SAFETY: the command takes a number.
                let fd = unsafe { real::fcntl64(socket.as_raw_fd(), command, FIRST.into()) };
                if fd < 0 { Err(Errno::from_raw_os_error(errno::last())) } else { Ok(fd) }
            })
        };
        let made = match duplicate() {
            Some(made) => made,
            None => {
                let socket = socket_like(self.domain, listener)?;
                match private::keep_in(&self.home, socket) {
                    Ok(()) => duplicate().unwrap_or(Err(Errno::MFILE)),
                    Err(_) => Err(Errno::MFILE),
                }
            }
        };
        match made {
            Ok(made) => Ok((made, true)),
            Err(Errno::MFILE) => {
                // The number of the stock is one more for the program.
                self.release();
                let socket = socket_like(self.domain, listener)?;
                if is_inheritable {
                    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty())?;
                }
                Ok((socket.into_raw_fd(), false))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the socket back. Returns true if there was one.
    pub fn release(&self) -> bool {
        let was_there = self.home.load(Ordering::Relaxed) >= 0;
        private::forget(&self.home);
        was_there
    }
}

/// Libc reads and writes standard input, output and errors by calls of its own.
const FIRST: c_int = libc::STDERR_FILENO + 1;

/// An unconnected socket with what it inherits from `model`.
pub fn socket_like(domain: c_int, model: c_int) -> Result<OwnedFd, Errno> {
    let socket = socket(domain)?;
    INHERITED.iter().for_each(|option| inherit(*option, model, socket.as_raw_fd()));
    Ok(socket)
}

/// An unconnected socket.
pub fn socket(domain: c_int) -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no addresses.
    let fd = unsafe { real::socket(domain, kind, 0) };
    if fd < 0 {
        return Err(Errno::from_raw_os_error(errno::last()));
    }
    // SAFETY: the descriptor was made above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn inherit((level, name): (c_int, c_int), from: c_int, to: c_int) {
    let mut value = [0_u8; 16];
    let mut length = value.len() as socklen_t;
    // SAFETY: the buffer has the stated length.
    unsafe {
        if real::getsockopt(from, level, name, value.as_mut_ptr().cast(), &raw mut length) == 0 {
            real::setsockopt(to, level, name, value.as_ptr().cast(), length);
        }
    }
}
