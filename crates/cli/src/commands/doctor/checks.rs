//! The checks, one function each.

use super::Node;
use super::report::Check;
use crate::output;
use levada_core::{Clock, Identity, SystemClock, UnixTime, shell_word};
use levada_node::config::{Config, ConfigError, Http};
use levada_node::control::{self, Request};
use levada_node::home::Home;
use levada_node::known::Known;
use levada_node::offer;
use levada_node::store::{DiskState, Store, StoreError};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// What the limits of the configuration are made for.
const OPEN_FILES: u64 = 1024;
/// A clock may be behind the stored time by so much: the node stores its time every few seconds.
const SLACK: Duration = Duration::from_secs(60);
/// Files of a home that are looked at; it has fewer.
const MOST_FILES: usize = 1000;
const PORT: u16 = 5382;
const HTTP_PORT: u16 = 5383;

/// The folders are there, ours, and nobody else may write to them.
pub fn home(home: &Home) -> Check {
    let folder = home.state_folder();
    let shown = folder.display();
    let found = match std::fs::metadata(folder) {
        Ok(found) => found,
        Err(error) => return Check::wrong("home", format!("{shown}: {error}"), ""),
    };
    let word = shell_word(&folder.display().to_string()).into_owned();
    // Its owner is the user that the node runs as: files must become that user's, never the caller's.
    if let Some(name) = owned_by_another(folder, found.uid()) {
        let text = format!("{shown} belongs to another user than {name} in it");
        let remedy = format!("sudo chown -R --reference={word} {word}");
        return Check::wrong("home", text, remedy);
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        let user = user_name(found.uid());
        let remedy = format!(
            "run verbs as the home's user: `sudo -u {user} LEVADA_HOME={word} levada doctor`; or set LEVADA_HOME to \
             a folder of yours"
        );
        return Check::note("home", format!("{shown} belongs to another user"), remedy);
    }
    if found.permissions().mode() & 0o022 != 0 {
        let remedy = format!("chmod 700 {word}");
        return Check::wrong("home", format!("others may write to {shown}"), remedy);
    }
    Check::fine("home", shown)
}

/// The first file of the home that belongs to another user than the home: a verb that another user ran has left it.
fn owned_by_another(folder: &Path, owner: u32) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?.take(MOST_FILES).flatten();
    let mut others = entries.filter(|entry| entry.metadata().is_ok_and(|it| it.uid() != owner));
    others.next().map(|entry| output::plain(&entry.file_name().to_string_lossy()))
}

/// The name of a user, as sudo takes it; `#UID` for one that is not in /etc/passwd.
fn user_name(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(uid)).then(|| shell_word(name).into_owned())
    };
    users.lines().find_map(entry).unwrap_or_else(|| format!("'#{uid}'"))
}

/// The disk takes what the node writes.
pub fn disk(home: &Home) -> Check {
    match DiskState::of(home.state_folder()) {
        DiskState::Writable => Check::fine("disk", "can be written to"),
        DiskState::Full => {
            let remedy = "make room; `levada catalogue gc` deletes packages that no version needs";
            Check::wrong(
                "disk",
                "it is full: nothing new is stored, and requests are refused",
                remedy,
            )
        }
        DiskState::ReadOnly => {
            let folder = home.state_folder().display().to_string();
            let remedy = format!(
                "`findmnt -T {}` shows the mount; the kernel's log says why, if it was writable before",
                shell_word(&folder)
            );
            Check::wrong("disk", "it is read-only", remedy)
        }
    }
}

/// The remedy of an error that a database gives, `otherwise` if it has none of its own.
fn remedy<'a>(error: &StoreError, otherwise: &'a str) -> &'a str {
    match error {
        StoreError::Newer { .. } => {
            "install the version of Levada that wrote it, or a later one; a restore is not needed"
        }
        StoreError::Full { .. } => "make room on the disk",
        StoreError::ReadOnly { .. } => "mount the disk so that it can be written to",
        StoreError::InUse { .. } => "end the process that uses it",
        StoreError::File { .. } => "see that the home's user can read and write it",
        _ => otherwise,
    }
}

/// The key can be read, by us alone.
pub fn key(home: &Home) -> Check {
    match home.existing_key() {
        Ok(Some(key)) => Check::fine("key", key.identity()),
        Ok(None) => Check::fine("key", "none yet; it is made on first use"),
        Err(error) => Check::wrong("key", error, ""),
    }
}

/// The configuration can be used: each name in it is known here.
pub fn config(home: &Home, config: &Result<Config, ConfigError>) -> Check {
    match config {
        Ok(config) => match unknown_name(home, config) {
            None => Check::fine("configuration", "can be read"),
            Some(error) => Check::wrong("configuration", error, ""),
        },
        Err(error) => Check::wrong("configuration", error, "correct that line"),
    }
}

/// Programs and folders that services name are there.
pub fn services(config: &Config) -> Vec<Check> {
    let remedy = "install it, or correct that line; the node runs without it";
    let missing = offer::missing(config, &[]).unwrap_or_default();
    let mut checks: Vec<_> =
        missing.iter().map(|error| Check::wrong("services", error, remedy)).collect();
    if checks.is_empty() {
        checks.push(Check::fine("services", "what they name is there"));
    }
    checks
}

fn unknown_name(home: &Home, config: &Config) -> Option<ConfigError> {
    let mut all = config.allow.iter().map(|entry| &entry.identity).chain(&config.block).peekable();
    all.peek()?;
    let known = Known::open(&home.known_db()).ok()?;
    all.find_map(|who| who.identity(&known).err())
}

/// The ports are free, or our node has them.
pub fn ports(config: &Config, node: &Node) -> Vec<Check> {
    if let Node::Runs(status) = node {
        let list = status["listening"].as_array().map(Vec::as_slice).unwrap_or_default();
        let list: Vec<&str> = list.iter().filter_map(|address| address.as_str()).collect();
        return vec![Check::fine("ports", format!("the node listens on {}", list.join(", ")))];
    }
    let mut checks = Vec::new();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    match &config.listen {
        Some(list) => checks.extend(list.iter().map(|address| port(*address, true))),
        None => checks.push(port(any, false)),
    }
    match config.http {
        Http::At(address) => checks.push(port(address, true)),
        Http::Standard => {
            checks.push(port(SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT)), false))
        }
        Http::Off => {}
    }
    checks
}

fn port(address: SocketAddr, configured: bool) -> Check {
    let error = match TcpListener::bind(address) {
        Ok(_) => return Check::fine("ports", format!("{address} is free")),
        Err(error) => error,
    };
    let text = format!("{address}: {error}");
    match error.kind() {
        io::ErrorKind::AddrInUse if !configured => {
            Check::note("ports", text, "the node takes a free port, and announces it")
        }
        io::ErrorKind::AddrInUse => {
            let remedy = format!("`ss -ltnp 'sport = {}'` shows who has it", address.port());
            Check::wrong("ports", text, remedy)
        }
        _ => Check::wrong("ports", text, "give an address of this machine, and a port you may use"),
    }
}

/// Nodes can be found by name here, and so is ours.
pub async fn multicast(config: &Config, node: &Node) -> Check {
    let name = "multicast";
    let usable = match levada_discovery::usable_interfaces() {
        Ok(usable) => usable,
        Err(error) => {
            let remedy = "none is needed by those who write IDENTITY@host:port";
            return Check::note(name, error, remedy);
        }
    };
    let names: Vec<String> =
        usable.iter().map(|interface| output::plain(&interface.name)).collect();
    let names = names.join(", ");
    if config.announce && is_deaf(node).await {
        let text = format!("the node does not hear its own announcement on {names}");
        let remedy = "wait if it has just started; else look for --no-announce, or for a \
                      firewall that drops UDP port 5353";
        return Check::note(name, text, remedy);
    }
    if usable.iter().all(|interface| interface.is_loopback) {
        let remedy = "join nodes of other machines by invitation, or write IDENTITY@host:port";
        return Check::note(
            name,
            format!("names are found on this machine only ({names})"),
            remedy,
        );
    }
    Check::fine(name, format!("names are announced and found on {names}"))
}

/// Whether our node runs and cannot be found.
async fn is_deaf(node: &Node) -> bool {
    let Node::Runs(status) = node else { return false };
    let identity = status["identity"].as_str().and_then(|text| text.parse::<Identity>().ok());
    match identity {
        Some(identity) => !matches!(levada_discovery::find(&identity).await, Ok(Some(_))),
        None => false,
    }
}

/// Enough files can be open at once.
pub fn open_files() -> Check {
    let limit = getrlimit(Resource::Nofile).current;
    match limit {
        Some(limit) if limit < OPEN_FILES => {
            let text = format!("at most {limit} at once, and a node may need {OPEN_FILES}");
            Check::wrong("open files", text, format!("ulimit -n {OPEN_FILES}"))
        }
        Some(limit) => Check::fine("open files", format!("up to {limit}")),
        None => Check::fine("open files", "no limit"),
    }
}

/// The clock agrees with the time that the node has seen.
pub fn clock(home: &Home, node: &Node) -> Check {
    let clock = SystemClock.now();
    let stored = match node {
        // A node that runs tells in its status, and warns in its log.
        Node::Runs(status) => status["time"].as_u64().map(UnixTime),
        Node::Absent { .. } => match stored_time(home) {
            Ok(stored) => stored,
            // The check of the database says what is wrong with it.
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

/// The time in the database; the lock is ours.
fn stored_time(home: &Home) -> Result<Option<UnixTime>, StoreError> {
    if !home.node_db().exists() {
        return Ok(None);
    }
    let store = Store::open(&home.node_db())?;
    // Asked at the beginning of time, the answer is what is stored.
    Ok(Some(store.now_at_least(UnixTime(0))?.time))
}

/// The node's database holds together.
pub async fn node_database(home: &Home, node: &Node) -> Check {
    let name = "database";
    let remedy = "`levada restore` brings the last backup back";
    match node {
        Node::Runs(_) => match control::call(home, &Request::Integrity).await {
            Ok(_) => Check::fine(name, "holds together"),
            Err(error) => Check::wrong(name, error, remedy),
        },
        Node::Absent { .. } if !home.node_db().exists() => {
            Check::fine(name, "none yet; the first `levada up` makes it")
        }
        Node::Absent { .. } => {
            database(name, remedy, || Store::open(&home.node_db())?.integrity_check())
        }
        Node::Broken => Check::note(name, "not looked at: a process holds it", ""),
    }
}

/// The database of known names holds together.
pub fn known_database(home: &Home) -> Check {
    if !home.known_db().exists() {
        return Check::fine("names", "none yet");
    }
    let remedy = "`levada restore`, or move the file away: the names must be pinned again then";
    database("names", remedy, || Known::open(&home.known_db())?.integrity_check())
}

fn database(
    name: &'static str,
    otherwise: &str,
    check: impl FnOnce() -> Result<(), StoreError>,
) -> Check {
    match check() {
        Ok(()) => Check::fine(name, "holds together"),
        Err(error) => Check::wrong(name, &error, remedy(&error, otherwise)),
    }
}

/// The forwards of the configuration carry connections.
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
                let remedy = "the node tries again by itself; a refused one needs a right from the other node";
                Check::note("forwards", format!("{what} is {state}: {}", text("text")), remedy)
            }
        }
    };
    forwards.iter().map(check).collect()
}

/// Records are sealed by the processor.
pub fn aes() -> Check {
    if has_aes() {
        return Check::fine("processor", "has instructions for AES");
    }
    let text = "has no instructions for AES: channels work at a fraction of the speed";
    Check::note("processor", text, "in a virtual machine, pass the host's processor through")
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
