//! Starts programs for services and verbs, ends all their descendants, and keeps the end of their
//! output.
//!
//! Each run has a supervisor process (`supervisor.rs`), and a control group where one can be
//! created (`cgroup.rs`).

mod cgroup;
mod descendants;
mod fd_passing;
mod group;
mod launch;
mod start;
mod supervisor;
mod tail;
#[cfg(test)]
mod tests;

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use tokio::io::AsyncRead;

pub use group::Group;
pub use launch::Launch;
pub use supervisor::{ARGUMENT, WITH_CGROUP, supervise};
pub use tail::Tail;

/// An output of a program.
pub(crate) type Output = Box<dyn AsyncRead + Send + Unpin>;

/// The executable file of a program: an absolute path, or a name that is looked up in this
/// process's PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let executable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| executable(path));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|path| executable(path))
}
