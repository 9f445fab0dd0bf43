//! The socket of the monitor: one for each path, held by the process that has the lock beside it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::packet::show_senders;

/// How long the lock is waited for while no monitor accepts connections: the one that has it is
/// starting or ending.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause until the lock is tried again.
const PAUSE: Duration = Duration::from_millis(10);
/// Connections that wait to be accepted. The kernel limits it, too (net.core.somaxconn).
const BACKLOG: i32 = 1024;

/// Why a monitor cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another monitor accepts connections at the path.
    #[error("a monitor is running already")]
    Running,
    /// Another user could replace the socket.
    #[error("the folder {folder} of the monitor's socket is not safe: {reason}")]
    Unsafe {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A system call failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A listening socket, and the lock of its path.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    lock: PathBuf,
    /// The kernel releases it when the process ends, even by `kill -9`.
    _locked: File,
}

impl Listener {
    /// Listens at `path`. Creates its folder, readable by its owner only, if it is missing; a
    /// socket that was left there is replaced.
    ///
    /// # Errors
    /// [`ListenError::Running`] if another monitor listens there.
    pub fn bind(path: &Path) -> Result<Self, ListenError> {
        prepare_folder(path)?;
        let lock = beside(path, ".lock");
        let locked = lock_unless_running(&lock, path)?;
        remove_socket(path)?;
        let socket = open_socket(path).map_err(failed("listen at", path))?;
        show_senders(&socket).map_err(failed("listen at", path))?;
        Ok(Self { socket, path: path.to_owned(), lock, _locked: locked })
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// Those of accept4(2).
    pub fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        loop {
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(connection) => return Ok(Some(connection)),
                Err(Errno::AGAIN) => return Ok(None),
                // The peer has closed it already.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the socket's file, unless a connection waits: then everything stays as it is, and
    /// the connection is returned.
    pub fn close_unless_connected(&self) -> Option<OwnedFd> {
        let aside = beside(&self.path, ".ending");
        // A client that comes now finds no socket, and starts a monitor, which waits for the lock.
        if fs::rename(&self.path, &aside).is_err() {
            return self.accept().ok().flatten();
        }
        match self.accept() {
            Ok(Some(connection)) => {
                let _ = fs::rename(&aside, &self.path);
                Some(connection)
            }
            _ => {
                let _ = fs::remove_file(&aside);
                None
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    /// Removes the files. The lock is released after that: no other monitor can have created a
    /// socket before.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.lock);
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_owned();
    move |source| ListenError::Io { action, path, source }
}

/// Creates the folder of a socket if it is missing, and refuses one that others can use: in a
/// shared folder such as /tmp, another user may have created it.
///
/// # Errors
/// [`ListenError::Unsafe`] if another user could replace the socket.
pub fn prepare_folder(socket: &Path) -> Result<(), ListenError> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let create = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    create.map_err(failed("create the folder", folder))?;
    let found = fs::symlink_metadata(folder).map_err(failed("examine", folder))?;
    let refuse = |reason| Err(ListenError::Unsafe { folder: folder.to_owned(), reason });
    if !found.is_dir() {
        return refuse("it is a symbolic link");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return refuse("it belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return refuse("others may use it (chmod 700)");
    }
    Ok(())
}

/// Takes the lock. Of several monitors that start at the same time, one gets it; the others see it
/// listen.
fn lock_unless_running(lock: &Path, path: &Path) -> Result<File, ListenError> {
    let start = Instant::now();
    loop {
        match try_lock(lock) {
            Ok(Some(locked)) => return Ok(locked),
            Ok(None) if is_listening(path) => return Err(ListenError::Running),
            Ok(None) if start.elapsed() < LOCK_TIMEOUT => sleep(PAUSE),
            Ok(None) => {
                let source = io::Error::from(io::ErrorKind::TimedOut);
                return Err(failed("lock", lock)(source));
            }
            Err(error) => return Err(failed("lock", lock)(error)),
        }
    }
}

/// `None` if another process has the lock, or has just removed its file.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let same = |other: &fs::Metadata| -> io::Result<bool> {
        let own = file.metadata()?;
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    };
    match fs::symlink_metadata(path) {
        Ok(other) if same(&other)? => Ok(Some(file)),
        _ => Ok(None),
    }
}

fn is_listening(path: &Path) -> bool {
    let connected = || -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    // `AGAIN`: the queue of waiting connections is full.
    matches!(connected(), Ok(()) | Err(Errno::AGAIN))
}

/// Removes a socket that a killed monitor has left. Another file stays: the path may be wrong.
fn remove_socket(path: &Path) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            fs::remove_file(path).map_err(failed("remove", path))
        }
        Ok(_) => {
            let folder = path.parent().unwrap_or(path).to_owned();
            Err(ListenError::Unsafe { folder, reason: "a file that is no socket has its name" })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("examine", path)(error)),
    }
}

fn open_socket(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    #[test]
    fn a_second_listener_finds_the_first() {
        let folder = folder();
        let path = folder.path().join("new/fast.sock");
        let first = Listener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path), Err(ListenError::Running)));
        drop(first);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        Listener::bind(&path).unwrap();
    }

    #[test]
    fn of_many_listeners_that_start_together_one_remains() {
        let folder = folder();
        let path = folder.path().join("fast.sock");
        // A socket that a killed monitor has left.
        drop(open_socket(&path).unwrap());
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Listener::bind(&path))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        for result in results.iter().filter(|result| result.is_err()) {
            assert!(matches!(result, Err(ListenError::Running)), "{result:?}");
        }
        assert!(is_listening(&path));
    }

    #[test]
    fn folders_and_files_that_may_be_of_others_are_refused() {
        let folder = folder();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let link = folder.path().join("link");
        symlink(folder.path(), &link).unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "kept").unwrap();
        for path in [open.join("a"), link.join("a"), file.clone()] {
            assert!(matches!(Listener::bind(&path), Err(ListenError::Unsafe { .. })), "{path:?}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"kept");
    }

    #[test]
    fn a_connection_that_comes_at_the_end_keeps_the_listener() {
        let folder = folder();
        let path = folder.path().join("fast.sock");
        let listener = Listener::bind(&path).unwrap();
        assert!(is_listening(&path));
        assert!(listener.close_unless_connected().is_some());
        assert!(is_listening(&path));
        assert!(listener.accept().unwrap().is_some());
        assert!(listener.close_unless_connected().is_none());
        assert!(!is_listening(&path));
    }
}
