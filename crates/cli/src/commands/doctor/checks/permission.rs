//! Permissions that this user lacks on files of the home, and the commands that give them.

use std::fs::{Metadata, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use levada_core::shell_word;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

/// A missing permission.
pub struct Missing {
    /// The file and the missing permission.
    pub text: String,
    /// The command that gives it. It changes no content.
    pub remedy: String,
}

/// The permission that this user lacks to read the file `path`, if it exists.
pub fn to_read(path: &Path) -> Option<Missing> {
    of_file(path, Access::READ_OK, "read", "u+r")
}

/// The permission that this user lacks to read and write the file `path`, or to create it.
pub fn to_use(path: &Path) -> Option<Missing> {
    of_file(path, Access::READ_OK | Access::WRITE_OK, "read and write", "u+rw")
}

/// The permission that this user lacks to use the database `path` and the files next to it, or to
/// create them.
pub fn to_use_database(path: &Path) -> Option<Missing> {
    let next_to = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let files = [path.to_owned(), next_to("-wal"), next_to("-shm")];
    files.iter().find_map(|file| to_use(file))
}

fn of_file(path: &Path, access: Access, verb: &str, mode: &str) -> Option<Missing> {
    let folder = path.parent()?;
    let rights = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    missing(folder, rights, "read, write and enter the folder", "u+rwx")
        .or_else(|| missing(path, access, verb, mode))
}

fn missing(path: &Path, access: Access, verb: &str, mode: &str) -> Option<Missing> {
    // The effective user, with which files are opened.
    let denied = accessat(CWD, path, access, AtFlags::EACCESS);
    if !matches!(denied, Err(Errno::ACCESS | Errno::PERM)) {
        return None;
    }
    let text = format!("this user has no permission to {verb} {}", path.display());
    Some(Missing { text, remedy: remedy(path, mode) })
}

/// A file of another user is given to the owner of its folder, as which the node runs.
fn remedy(path: &Path, mode: &str) -> String {
    let quoted = shell_word(&path.display().to_string()).into_owned();
    let user = rustix::process::geteuid().as_raw();
    let owner = |path: &Path| metadata(path).ok().as_ref().map(Metadata::uid);
    let folder = path.parent().unwrap_or(path);
    match (owner(path), owner(folder)) {
        (Some(file), _) if file == user => format!("chmod {mode} {quoted}"),
        (_, Some(above)) if above == user => format!("sudo chown {user} {quoted}"),
        _ => format!("run this verb as the owner of {quoted}, or `sudo chown {user} {quoted}`"),
    }
}
