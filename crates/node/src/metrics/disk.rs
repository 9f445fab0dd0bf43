//! The space of a node's disk, and the length of its database.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use rustix::fs::statvfs;

/// The disk of a home at one time, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The space that is free for the node's user.
    pub(super) free: u64,
    /// The size of the file system.
    pub(super) size: u64,
    /// The length of `node.db` with its log.
    pub(super) database: u64,
}

impl Disk {
    /// The file system of `database`, and that file's length. It may wait for the disk. `None` if
    /// the file system gives no numbers.
    pub(crate) fn of(database: &Path) -> Option<Self> {
        let found = statvfs(database).ok()?;
        let mut log = OsString::from(database);
        log.push("-wal");
        Some(Self {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            size: found.f_blocks.saturating_mul(found.f_frsize),
            database: length(database) + length(Path::new(&log)),
        })
    }
}

/// The length of a file; 0 if there is none.
fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |found| found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_database_counts_and_a_missing_file_has_no_values() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.db");
        assert_eq!(Disk::of(&file), None);
        fs::write(&file, [0; 100]).unwrap();
        assert_eq!(Disk::of(&file).unwrap().database, 100);
        fs::write(folder.path().join("node.db-wal"), [0; 20]).unwrap();
        let disk = Disk::of(&file).unwrap();
        assert_eq!(disk.database, 120);
        assert!(disk.free <= disk.size && disk.size > 0, "{disk:?}");
    }
}
