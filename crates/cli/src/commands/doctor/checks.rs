//! The checks, one function each.

mod catalogue;
mod groups;
mod home;
mod network;
pub mod permission;

pub use catalogue::{catalogue, engine};
pub use groups::groups;
pub use home::{disk, home, interrupted, key};
pub use network::{multicast, ports};

use super::node::Node;
use super::report::Check;
use crate::failure::Failure;
use crate::{log, output};
use levada_client::control::{self, Request};
use levada_config::{Config, ConfigError};
use levada_core::{Clock, SystemClock, UnixTime, shell_word};
use levada_home::Home;
use levada_home::known::Known;
use levada_node::check::Problems;
use levada_node::store::StoreError;
use levada_node::{Overrides, UpError, check};
use rustix::process::{Resource, getrlimit};
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
        StoreError::File { .. } => "make it a regular file that the home's user can read and write",
        _ => otherwise,
    }
}

/// A start of the node would accept the configuration. Returns what its services lack on this
/// machine, too.
pub fn config(home: &Home, config: &Result<Config, ConfigError>) -> (Check, Option<Problems>) {
    let name = "configuration";
    let missing = permission::to_read(&home.config_file())
        .or_else(|| permission::to_use_database(&home.known_db()));
    if let Some(missing) = missing {
        return (Check::wrong(name, missing.text, missing.remedy), None);
    }
    let checked = match config {
        Ok(config) => check(home, config, &Overrides::default()),
        Err(error) => Err(UpError(error.to_string())),
    };
    match checked {
        Ok(problems) => (Check::fine(name, "valid"), Some(problems)),
        Err(error) => {
            let remedy = "correct that: `levada up` does not start before, and `levada up --check` \
                          checks it again";
            (Check::wrong(name, error, remedy), None)
        }
    }
}

/// The programs and folders of the configured services exist, and rules name services.
pub fn services(problems: Option<Problems>) -> Vec<Check> {
    let name = "services";
    let Some(Problems { missing, rules }) = problems else {
        return vec![Check::note(name, "not checked: see the configuration", "")];
    };
    let remedy = "install it, make it executable (`chmod +x`), or correct that line; the node \
                  starts, and sessions that need it fail";
    let mut checks: Vec<_> =
        missing.iter().map(|error| Check::wrong(name, error, remedy)).collect();
    if checks.is_empty() {
        checks.push(Check::fine(name, "all programs and folders exist"));
    }
    let remedy = "correct that line: for this service, the rule has no effect";
    checks.extend(rules.iter().map(|note| Check::note("rules", note, remedy)));
    checks
}

/// The checks of what a configuration names, which has an error.
pub fn not_checked(names: &[&'static str]) -> impl Iterator<Item = Check> {
    names.iter().map(|name| Check::note(name, "not checked: see the configuration", ""))
}

/// The filters of the log can be read: of the configuration, and in the environment of this
/// command.
pub fn log(config: &Config) -> Vec<Check> {
    let name = "log";
    let configured = log::check_configured(config).err().map(|error| {
        let remedy = "correct that line; `levada up` does not start before, unless -v or RUST_LOG \
                      replaces it";
        Check::wrong(name, error.text(), remedy)
    });
    let variable = log::check_variable().err().map(|error| {
        let remedy = "correct it, or `unset RUST_LOG`; `levada up` does not start with it";
        Check::wrong(name, error.text(), remedy)
    });
    let wrong: Vec<_> = configured.into_iter().chain(variable).collect();
    match wrong.is_empty() {
        true => vec![Check::fine(name, format!("filter `{}`", output::plain(&config.log)))],
        false => wrong,
    }
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
            let clock = output::time(clock);
            let stored = output::time(stored);
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
    Ok(check::database(home)?.map(|database| database.time()))
}

/// The clock was not accepted.
pub fn not_accepted(error: &Failure) -> Check {
    let remedy = "correct what the other checks report, then `levada doctor --accept-clock` again";
    Check::wrong("clock", format!("not accepted: {}", error.text()), remedy)
}

/// The node's database is intact.
pub async fn node_database(home: &Home, node: &Node) -> Check {
    let name = "database";
    let remedy = format!(
        "{}; then `levada restore FILE` replaces this home's state by that of a backup",
        copy_first(home)
    );
    if !matches!(node, Node::Runs(_))
        && let Some(missing) = permission::to_use_database(&home.node_db())
    {
        return Check::wrong(name, missing.text, missing.remedy);
    }
    match node {
        Node::Runs(_) => match control::call(home, &Request::Integrity).await {
            Ok(_) => Check::fine(name, "intact"),
            Err(error) => Check::wrong(name, error, remedy),
        },
        Node::Absent { .. } if !home.node_db().exists() => {
            Check::fine(name, "none yet; the first `levada up` creates it")
        }
        Node::Absent { .. } => database(name, &remedy, || match check::database(home)? {
            Some(database) => database.integrity_check(),
            None => Ok(()),
        }),
        Node::Broken => Check::note(name, "not checked: see the node", ""),
    }
}

/// The database of known names is intact.
pub fn known_database(home: &Home) -> Check {
    if !home.known_db().exists() {
        return Check::fine("names", "none yet");
    }
    if let Some(missing) = permission::to_use_database(&home.known_db()) {
        return Check::wrong("names", missing.text, missing.remedy);
    }
    let remedy = format!(
        "{}; then `levada restore FILE` replaces this home's state by that of a backup, or \
         `mv {1} {1}.damaged` sets this file aside: the names must be pinned again then",
        copy_first(home),
        shell_word(&home.known_db().display().to_string())
    );
    database("names", &remedy, || Known::examine(&home.known_db())?.0.integrity_check())
}

/// The command that keeps the present state, before another one replaces it.
fn copy_first(home: &Home) -> String {
    let folder = home.state_folder().display().to_string();
    format!(
        "stop the node, and keep a copy: `cp -a {} {}`",
        shell_word(&folder),
        shell_word(&format!("{folder}.copy"))
    )
}

fn database(
    name: &'static str,
    otherwise: &str,
    check: impl FnOnce() -> Result<(), StoreError>,
) -> Check {
    match check() {
        Ok(()) => Check::fine(name, "intact"),
        Err(error) => Check::wrong(name, &error, remedy(&error, otherwise)),
    }
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
