//! Limits of processes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files of this process and its children to the maximum.
pub fn allow_sockets() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
