//! Where the monitor of a user listens.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The environment variable for another path of the monitor's socket.
pub const SOCKET_VARIABLE: &str = "LEVADA_FAST_SOCKET";

const NAME: &str = "levada/fast.sock";

/// The path of the monitor's socket: `LEVADA_FAST_SOCKET`; otherwise in the user's runtime folder
/// (`XDG_RUNTIME_DIR`, or `/run/user/UID`); otherwise in `/tmp/levada-UID`. It does not depend on
/// `LEVADA_HOME`: processes of two homes can have fast sockets to each other.
///
/// # Errors
/// If the variable has a relative path and the current folder is unknown.
pub fn socket_path() -> std::io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    locate(std::env::var_os(SOCKET_VARIABLE), std::env::var_os("XDG_RUNTIME_DIR"), user)
}

fn locate(
    socket: Option<OsString>,
    runtime: Option<OsString>,
    user: u32,
) -> std::io::Result<PathBuf> {
    if let Some(path) = socket.filter(|path| !path.is_empty()) {
        return std::path::absolute(path);
    }
    // After `sudo`, the variable may name the folder of another user.
    let is_own = |folder: &PathBuf| {
        folder.is_absolute()
            && folder.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user)
    };
    let session = Path::new("/run/user").join(user.to_string());
    let candidates = [runtime.map(PathBuf::from), Some(session)];
    let folder = candidates.into_iter().flatten().find(is_own);
    let shared = || PathBuf::from(format!("/tmp/levada-{user}/fast.sock"));
    Ok(folder.map_or_else(shared, |folder| folder.join(NAME)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_in_a_folder_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let runtime = Some(folder.path().as_os_str().to_owned());
        let path = locate(None, runtime.clone(), own).unwrap();
        assert_eq!(path, folder.path().join("levada/fast.sock"));
        // No user has this number, so that none of the folders is that user's.
        let other = locate(None, runtime.clone(), 4_000_000_001).unwrap();
        assert_eq!(other, Path::new("/tmp/levada-4000000001/fast.sock"));
        assert_eq!(locate(Some("/a/b".into()), runtime, own).unwrap(), Path::new("/a/b"));
    }
}
