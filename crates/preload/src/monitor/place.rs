//! Where the monitor listens, and whether it can be trusted with sockets of this process.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};

use crate::settings;

/// Connects to the monitor. Nothing was sent yet. If another user may have made the socket, calls
/// `warn` with its path and the reason.
///
/// # Errors
/// Those of connect(2), and `ACCESS` if another user may have made the socket.
pub fn connect(warn: Option<fn(&str, &str)>) -> Result<OwnedFd, Errno> {
    let refuse = |path, fault| {
        warn.iter().for_each(|warn| warn(path, fault));
        Err(Errno::ACCESS)
    };
    let path = settings::socket().ok_or(Errno::NOENT)?;
    if let Some(fault) = fault_of_folder(Path::new(path)) {
        return refuse(path, fault);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    // The path may have changed since: the kernel says who listens.
    if user_of(&socket) != Some(rustix::process::geteuid().as_raw()) {
        return refuse(path, "another user listens there");
    }
    Ok(socket)
}

/// The user of the process that listens, from the time when it began to.
fn user_of(socket: &OwnedFd) -> Option<u32> {
    // By libc: a process of another namespace has the number 0, which rustix's type does not
    // permit.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the stated length.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    (code == 0).then_some(credentials.uid)
}

/// What is wrong with the folder of the socket. `None` also if there is none, or it cannot be
/// examined: then the socket cannot be reached either.
fn fault_of_folder(path: &Path) -> Option<&'static str> {
    let folder = fs::symlink_metadata(path.parent()?).ok()?;
    let user = rustix::process::geteuid().as_raw();
    if !folder.is_dir() {
        Some("its folder is a symbolic link")
    } else if folder.uid() != user && folder.uid() != 0 {
        Some("its folder belongs to another user")
    } else if folder.mode() & 0o077 != 0 {
        Some("others may use its folder (chmod 700)")
    } else {
        None
    }
}

/// Says on standard error why all connections stay on TCP.
pub fn warn(path: &str, fault: &str) {
    let line = format!("levada: fast sockets stay on TCP: {path} is not safe: {fault}\n");
    // Not by `eprint`, which locks, and panics if it cannot write.
    // SAFETY: the descriptor is used for this call only; it fails if there is none.
    let stderr = unsafe { BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(stderr, line.as_bytes());
}
