//! Whether a file system accepts writes.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, open, statvfs};
use rustix::io::Errno;

/// The length of a probe, in bytes: about what one transaction writes.
const PROBE: usize = 64 * 1024;
/// The probe's file name on a file system without `O_TMPFILE`.
const PROBE_FILE: &str = ".probe";

/// Whether a file system accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// Writes succeed.
    Writable,
    /// No space is left, or a quota is used up.
    Full,
    /// It is mounted read-only.
    ReadOnly,
}

impl DiskState {
    /// The state of the file system of `folder`, found by writing 64 KiB there to an unnamed or
    /// temporary file. Other errors, such as missing permissions, count as [`Self::Writable`].
    pub fn of(folder: &Path) -> Self {
        match probe(folder).map_err(|error| error.kind()) {
            Err(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Self::Full,
            Err(ErrorKind::ReadOnlyFilesystem) => Self::ReadOnly,
            _ => Self::Writable,
        }
    }

    /// The state as one word, as in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
        }
    }
}

impl fmt::Display for DiskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the file system of `folder` is mounted read-only.
pub(crate) fn is_read_only(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn probe(folder: &Path) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let opened = open(folder, flags, Mode::RUSR | Mode::WUSR);
    match opened {
        Ok(file) => File::from(file).write_all(&[0xa5; PROBE]),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            probe_by_name(&folder.join(PROBE_FILE))
        }
        Err(error) => Err(error.into()),
    }
}

fn probe_by_name(path: &Path) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let written = file.write_all(&[0xa5; PROBE]);
    fs::remove_file(path)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(DiskState::of(folder.path()), DiskState::Writable);
        probe_by_name(&folder.path().join(PROBE_FILE)).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // A missing folder is not a state of the disk.
        assert_eq!(DiskState::of(&folder.path().join("none")), DiskState::Writable);
        // Writes to /dev/full fail with ENOSPC (full(4)).
        let full = File::options().write(true).open("/dev/full").unwrap().write_all(b"a");
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
