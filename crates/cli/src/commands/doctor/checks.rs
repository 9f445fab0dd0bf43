//! The checks, one function each.

mod catalogue;
mod home;
mod network;

pub use catalogue::engine;
pub use home::{disk, home, key};
pub use network::{multicast, ports};

use super::node::Node;
use super::report::Check;
use crate::output;
use levada_client::home::Home;
use levada_client::known::Known;
use levada_core::{Clock, SystemClock, UnixTime, shell_word};
use levada_node::config::{Config, ConfigError};
use levada_node::control::{self, Request};
use levada_node::services;
use levada_node::store::{Store, StoreError};
use levada_node::{Overrides, UpError};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::path::Path;
use std::time::Duration;

/// Open files that a node needs with the default limits of the configuration.
const OPEN_FILES: u64 = 1024;
/// Open files that its middlebox needs besides: two for each of 1024 sessions and 256 handshakes.
const MIDDLEBOX_FILES: u64 = 2560;
/// How far the clock may be behind the stored time; the node stores the time every few seconds.
const SLACK: Duration = Duration::from_secs(60);

/// The remedy for an error of a database; `otherwise` if it has none of its own.
fn remedy<'a>(error: &StoreError, otherwise: &'a str) -> &'a str {
    match error {
        StoreError::Newer { .. } => {
            "install the version of Levada that wrote it, or a later one; a restore is not needed"
        }
        StoreError::Full { .. } => "free space on the disk",
        StoreError::ReadOnly { .. } => "mount the disk so that it can be written to",
        StoreError::InUse { .. } => "end the process that uses it",
        StoreError::File { .. } => "see that the home's user can read and write it",
        _ => otherwise,
    }
}

/// A start of the node would accept the configuration.
pub fn config(home: &Home, config: &Result<Config, ConfigError>) -> Check {
    let checked = match config {
        Ok(config) => levada_node::check(home, config, &Overrides::default()).map(drop),
        Err(error) => Err(UpError(error.to_string())),
    };
    match checked {
        Ok(()) => Check::fine("configuration", "valid"),
        Err(error) => {
            let remedy =
                "correct that; `levada up --check` checks it again, with the options of `up`";
            Check::wrong("configuration", error, remedy)
        }
    }
}

/// The programs and folders of the configured services exist.
pub fn services(config: &Config) -> Vec<Check> {
    let remedy =
        "install it, or correct that line; a start succeeds, and sessions of this service fail";
    let missing = services::missing(config, &[]).unwrap_or_default();
    let mut checks: Vec<_> =
        missing.iter().map(|error| Check::wrong("services", error, remedy)).collect();
    if checks.is_empty() {
        checks.push(Check::fine("services", "all programs and folders exist"));
    }
    checks
}

/// The limit of open files suffices.
pub fn open_files(config: &Config) -> Check {
    let needed = OPEN_FILES + config.middlebox.as_ref().map_or(0, |_| MIDDLEBOX_FILES);
    let limit = getrlimit(Resource::Nofile).current;
    match limit {
        Some(limit) if limit < needed => {
            let text = format!("at most {limit} at once, and a node may need {needed}");
            Check::wrong("open files", text, format!("ulimit -n {needed}"))
        }
        Some(limit) => Check::fine("open files", format!("up to {limit}")),
        None => Check::fine("open files", "no limit"),
    }
}

/// The clock is not behind the time that the node has stored.
pub fn clock(home: &Home, node: &Node) -> Check {
    let clock = SystemClock.now();
    let stored = match node {
        // A running node reports it in its status, and warns in its log.
        Node::Runs(status) => status["time"].as_u64().map(UnixTime),
        Node::Absent { .. } => match stored_time(home) {
            Ok(stored) => stored,
            // The check of the database reports what is wrong with it.
            Err(error) => return Check::note("clock", format!("not compared: {error}"), ""),
        },
        Node::Broken => None,
    };
    let remedy = "set the clock; if it is right now, `levada doctor --accept-clock`";
    match stored {
        Some(stored) if stored > clock.after(SLACK) => {
            let (clock, stored) = (output::time(clock), output::time(stored));
            Check::wrong("clock", format!("it shows {clock}, and was at {stored} before"), remedy)
        }
        _ if matches!(node, Node::Runs(status) if status["clock_jumped"] == true) => {
            let text = format!("it jumped to {} while the node ran", output::time(clock));
            Check::wrong("clock", text, remedy)
        }
        _ => Check::fine("clock", output::time(clock)),
    }
}

/// The time in the database; the caller holds the home's lock.
fn stored_time(home: &Home) -> Result<Option<UnixTime>, StoreError> {
    if !home.node_db().exists() {
        return Ok(None);
    }
    let store = Store::open(&home.node_db())?;
    // The result is the later of the argument and the stored time.
    Ok(Some(store.now_at_least(UnixTime(0))?.time))
}

/// The node's database is intact.
pub async fn node_database(home: &Home, node: &Node) -> Check {
    let name = "database";
    let remedy = "copy the home elsewhere; then `levada restore FILE` brings a backup back";
    match node {
        Node::Runs(_) => match control::call(home, &Request::Integrity).await {
            Ok(_) => Check::fine(name, "intact"),
            Err(error) => Check::wrong(name, error, remedy),
        },
        Node::Absent { .. } if !home.node_db().exists() => {
            Check::fine(name, "none yet; the first `levada up` creates it")
        }
        Node::Absent { .. } => {
            let file = home.node_db();
            database(name, &file, remedy, || Store::open(&file)?.integrity_check())
        }
        Node::Broken => Check::note(name, "not checked: another process uses it", ""),
    }
}

/// The database of known names is intact.
pub fn known_database(home: &Home) -> Check {
    let file = home.known_db();
    if !file.exists() {
        return Check::fine("names", "none yet");
    }
    let remedy =
        "copy the home elsewhere; then `levada restore FILE` brings a backup back, with its names";
    database("names", &file, remedy, || Known::open(&file)?.integrity_check())
}

fn database(
    name: &'static str,
    file: &Path,
    otherwise: &str,
    check: impl FnOnce() -> Result<(), StoreError>,
) -> Check {
    if let Some(check) = permission(name, file) {
        return check;
    }
    match check() {
        Ok(()) => Check::fine(name, "intact"),
        Err(error) => Check::wrong(name, &error, remedy(&error, otherwise)),
    }
}

/// The home's user may read and write a file and its folder. SQLite names no reason where they may not.
fn permission(name: &'static str, file: &Path) -> Option<Check> {
    let folder = file.parent()?;
    let denied = |path: &Path, needed: Access| access(path, needed) == Err(Errno::ACCESS);
    let (path, mode) = if denied(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        (folder, "u+rwx")
    } else if denied(file, Access::READ_OK | Access::WRITE_OK) {
        (file, "u+rw")
    } else {
        return None;
    };
    let text = format!("this user may not read and write {}", path.display());
    let path = path.display().to_string();
    Some(Check::wrong(name, text, format!("chmod {mode} {}", shell_word(&path))))
}

/// The forwards of the configuration are open.
pub fn forwards(node: &Node) -> Vec<Check> {
    let Node::Runs(status) = node else { return Vec::new() };
    let forwards = status["forwards"].as_array().map(Vec::as_slice).unwrap_or_default();
    let check = |forward: &serde_json::Value| {
        let text = |key: &str| output::plain(forward[key].as_str().unwrap_or_default());
        let what = format!("forward {} to {}", text("service"), text("target"));
        match forward["state"].as_str() {
            Some("open") => Check::fine("forwards", format!("{what} is open")),
            state => {
                let state = output::plain(state.unwrap_or_default());
                let remedy = "the node retries automatically; a refused forward needs a right from the other node";
                Check::note("forwards", format!("{what} is {state}: {}", text("text")), remedy)
            }
        }
    };
    forwards.iter().map(check).collect()
}

/// The processor has instructions for AES.
pub fn aes() -> Check {
    if has_aes() {
        return Check::fine("processor", "has AES instructions");
    }
    let text = "has no AES instructions: channels are several times slower";
    Check::note("processor", text, "in a virtual machine, expose the host's processor features")
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}
