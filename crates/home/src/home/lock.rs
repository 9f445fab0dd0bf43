//! The lock of a home's state: one process at a time holds it.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::HomeError;

/// Maximum number of bytes that are read: more than a process number and the longest socket path.
const MAX_FILE: u64 = 256;

/// A home's lock, released when dropped. Its file stays, so that no process can lock a removed
/// file.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// A home's lock for a command that only reads, released when dropped.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Later commands must not try the socket of this process.
        let _ = self.file.set_len(0);
    }
}

/// Takes the lock, and writes the number of this process and its socket into the file.
pub(super) fn acquire(path: &Path, socket: &Path) -> Result<Lock, HomeError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(HomeError::io("open", path))?;
    lock(&file, path)?;
    let mut note = format!("{}\n", std::process::id()).into_bytes();
    note.extend_from_slice(socket.as_os_str().as_bytes());
    file.set_len(0).and_then(|()| file.write_all(&note)).map_err(HomeError::io("write", path))?;
    Ok(Lock { file })
}

/// Takes the lock if its file exists, and does not write to it.
pub(super) fn hold(path: &Path) -> Result<Option<Held>, HomeError> {
    // As for the lock itself, so that a file that cannot be written to is found.
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => {
            lock(&file, path)?;
            Ok(Some(Held { _file: file }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HomeError::io("open", path)(error)),
    }
}

fn lock(file: &File, path: &Path) -> Result<(), HomeError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let process = read(file).and_then(|(process, _)| process);
            Err(HomeError::Locked { path: path.to_owned(), process })
        }
        Err(error) => Err(HomeError::io("lock", path)(error.into())),
    }
}

/// The socket in the lock file: that of the process that holds the lock, or held it last and did
/// not release it.
pub(super) fn socket_of_owner(path: &Path) -> Option<PathBuf> {
    read(&File::open(path).ok()?)?.1
}

fn read(file: &File) -> Option<(Option<u32>, Option<PathBuf>)> {
    let mut note = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut note).ok()?;
    let (process, socket) = match note.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&note[..end], &note[end + 1..]),
        None => (note.as_slice(), &[][..]),
    };
    let process = std::str::from_utf8(process).ok().and_then(|digits| digits.parse().ok());
    let socket = std::ffi::OsString::from_vec(socket.to_vec());
    Some((process, (!socket.is_empty()).then(|| PathBuf::from(socket))))
}
