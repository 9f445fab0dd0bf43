//! Whether a disk takes what is written.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, open, statvfs};
use rustix::io::Errno;

/// A transaction needs about as much, in bytes.
const PROBE: usize = 64 * 1024;
/// The file that is written where the file system has none without a name.
const PROBE_FILE: &str = ".probe";

/// What a disk does with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// It takes it.
    Writable,
    /// It has no room.
    Full,
    /// It is mounted to be read only.
    ReadOnly,
}

impl Disk {
    /// The disk of `folder`: a few pages are written there, and gone when this returns. What else stands against that, such
    /// as permissions, is not the disk's.
    pub fn of(folder: &Path) -> Self {
        match probe(folder).map_err(|error| error.kind()) {
            Err(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Self::Full,
            Err(ErrorKind::ReadOnlyFilesystem) => Self::ReadOnly,
            _ => Self::Writable,
        }
    }

    /// One or two words, as `--json` has them.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
        }
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the file system of `folder` is mounted to be read only.
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
        assert_eq!(Disk::of(folder.path()), Disk::Writable);
        probe_by_name(&folder.path().join(PROBE_FILE)).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // Nothing is known of a disk that is not there.
        assert_eq!(Disk::of(&folder.path().join("none")), Disk::Writable);
        // A disk on which there is never any room.
        let full = File::options().write(true).open("/dev/full").unwrap().write_all(b"a");
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
