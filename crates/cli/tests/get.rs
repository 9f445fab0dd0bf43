//! `levada get`: real processes fetch what others share, also across interruptions.

mod terminal;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use levada_capability::{Ticket, TicketTerms};
use serde_json::Value;

use crate::operations::{DISK, on_a_disk_of_its_own};
use crate::support::forward::noise;
use crate::support::{Home, Node, comes, eventually, exit_code, own_loopback, shared, signal};

/// A running `levada get --json`; killed when dropped.
pub(crate) struct Getting {
    pub(crate) child: Child,
    events: PathBuf,
}

impl Getting {
    pub(crate) fn start(home: &Home, ticket: &str, output: &Path, options: &[&str]) -> Self {
        let events = home.path().join("events");
        let words = ["get", ticket, "--json", "-o", output.to_str().unwrap()];
        let mut command = home.command(words.iter().chain(options));
        command.stdout(File::create(&events).unwrap()).stderr(Stdio::null());
        Self { child: command.spawn().unwrap(), events }
    }

    /// The events so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.events).unwrap();
        // The last line may be incomplete.
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The largest value of `key` in the events of this kind.
    pub(crate) fn most(&self, event: &str, key: &str) -> u64 {
        let values = self.events().into_iter().filter(|one| one["event"] == event);
        values.filter_map(|one| one[key].as_u64()).max().unwrap_or_default()
    }

    pub(crate) fn wait(mut self) -> (i32, Vec<Value>) {
        let ended = comes(|| self.child.try_wait().unwrap().is_some());
        assert!(ended, "`levada get` does not end: {:?}", self.events());
        (exit_code(&mut self.child), self.events())
    }
}

impl Drop for Getting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node whose address stays the same when it is started again.
pub(crate) struct Fixed {
    pub(crate) home: Home,
    line: String,
    pub(crate) film: PathBuf,
}

impl Fixed {
    pub(crate) fn new(length: usize) -> Self {
        let home = Home::new();
        let film = home.path().join("film.mkv");
        fs::write(&film, noise(1, length)).unwrap();
        let line = format!(
            "up --name well --http 127.0.0.1:0 --no-announce --listen {}:5382",
            own_loopback()
        );
        Self { home, line, film }
    }

    pub(crate) fn up(&self) -> Node<'_> {
        self.home.up_with(&self.line)
    }

    pub(crate) fn share(&self, options: &[&str]) -> String {
        let words = ["share", self.film.to_str().unwrap()];
        self.home.args(words.iter().chain(options)).ok()
    }
}

pub(crate) fn assert_same(one: &Path, other: &Path) {
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{one:?} {other:?}");
}

#[test]
fn files_and_folders_are_fetched_from_the_node_and_from_other_peers() {
    let well = Fixed::new(3_000_000);
    let photos = well.home.path().join("photos");
    fs::create_dir_all(photos.join("a")).unwrap();
    fs::write(photos.join("a/one"), noise(2, 200_000)).unwrap();
    fs::write(photos.join("two"), b"").unwrap();
    let _node = well.up();
    let ticket = well.share(&[]);
    let [alice, bob] = [Home::new(), Home::new()];
    let [first, second] = [&alice, &bob].map(|home| home.path().join("out.mkv"));
    let seeding = Getting::start(&alice, &ticket, &first, &["--seed", "10m"]);
    eventually("alice has it", || seeding.most("seeding", "seconds") == 600);
    assert_same(&well.film, &first);
    let (code, events) = Getting::start(&bob, &ticket, &second, &[]).wait();
    let complete = events.last().unwrap();
    assert_eq!((code, &complete["event"]), (0, &"complete".into()), "{events:?}");
    assert_same(&well.film, &second);
    let from_alice = complete["from_peers"][alice.identity()].as_u64().unwrap_or_default();
    assert_eq!(from_alice + complete["from_node"].as_u64().unwrap(), 3_000_000, "{complete}");
    let status = well.home.json("swarm status 1");
    assert_eq!(status["served"]["peers"][0]["identity"], alice.identity());
    signal(seeding.child.id(), "TERM");
    assert_eq!(seeding.wait().0, 128 + 15);

    let ticket = well.home.args(["share", photos.to_str().unwrap()]).ok();
    let folder = alice.path().join("pictures");
    let printed = alice.args(["get", &ticket, "-o", folder.to_str().unwrap()]).ok();
    assert_eq!(printed, folder.to_str().unwrap());
    assert_same(&photos.join("a/one"), &folder.join("a/one"));
    assert_eq!(fs::read(folder.join("two")).unwrap(), b"");
    // Only the folder is left, of all that was needed for the download.
    let left = fs::read_dir(alice.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_str().unwrap().starts_with("pictures")).collect();
    assert_eq!(left, ["pictures"]);
}

#[test]
fn names_modes_times_and_links_are_kept() {
    let home = Home::new();
    let _node = home.up("");
    let folder = home.path().join("photos");
    fs::create_dir_all(folder.join("a/empty")).unwrap();
    let name = OsStr::from_bytes(b"caf\xe9");
    fs::write(folder.join(name), "bytes").unwrap();
    symlink("..", folder.join("outside")).unwrap();
    symlink("../caf", folder.join("a/inside")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(folder.join(name)).unwrap().set_modified(old).unwrap();
    fs::set_permissions(folder.join(name), Permissions::from_mode(0o640)).unwrap();
    let alice = Home::new();
    let get = |ticket: &str, to: &str| {
        let to = alice.path().join(to);
        alice.args(["get", ticket, "-o", to.to_str().unwrap()]).ok();
        to
    };
    let shared = home.args(["share", folder.to_str().unwrap()]);
    assert!(shared.stderr.contains("photos/outside: left out, it is a link"), "{}", shared.stderr);
    let target = get(&shared.ok(), "all");
    let metadata = fs::metadata(target.join(name)).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.modified().unwrap()), (0o640, old));
    assert_eq!(fs::read_link(target.join("a/inside")).unwrap(), Path::new("../caf"));
    assert!(target.join("a/empty").is_dir());
    assert!(fs::symlink_metadata(target.join("outside")).is_err());

    let shared = ["share", folder.to_str().unwrap(), "--no-times", "--no-modes"];
    let target = get(&home.args(shared).ok(), "some");
    let metadata = fs::metadata(target.join(name)).unwrap();
    assert_ne!(metadata.mode() & 0o777, 0o640);
    assert!(metadata.modified().unwrap() > old);

    // A file alone: one whose name is not UTF-8, and one whose name is as long as can be.
    let long = OsString::from("x".repeat(255));
    for name in [name, &long] {
        let path = home.path().join(name);
        fs::write(&path, name.as_bytes()).unwrap();
        let ticket = home.args([OsStr::new("share"), path.as_os_str()]).ok();
        let mut get = alice.command(["get", &ticket]);
        assert!(get.current_dir(alice.path()).output().unwrap().status.success());
        assert_eq!(fs::read(alice.path().join(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn downloads_resume_after_either_side_was_killed() {
    const LENGTH: u64 = 6_000_000;
    let well = Fixed::new(LENGTH as usize);
    let node = well.up();
    let ticket = well.share(&["--chunk", "16Ki", "--upload-limit", "1M"]);
    let alice = Home::new();
    let target = alice.path().join("out.mkv");
    let getting = Getting::start(&alice, &ticket, &target, &[]);
    eventually("a part is there", || getting.most("progress", "have") > LENGTH / 6);
    let seen = getting.most("progress", "have");
    drop(getting);
    assert!(!target.exists());
    node.kill();
    let node = well.up();
    let getting = Getting::start(&alice, &ticket, &target, &[]);
    eventually("it has resumed", || !getting.events().is_empty());
    let resumed = getting.most("started", "have");
    // What was not on disk: at most one percent, and the chunk that completes it.
    assert!(resumed + LENGTH / 100 + 16_384 >= seen, "{resumed} of {seen}");
    eventually("more is there", || getting.most("progress", "received") > LENGTH / 10);
    node.kill();
    let _node = well.up();
    let (code, events) = getting.wait();
    assert_eq!(code, 0, "{events:?}");
    assert_same(&well.film, &target);
}

#[test]
fn what_cannot_be_fetched_is_said() {
    let well = Fixed::new(1_000_000);
    let node = well.up();
    let [alice, bob] = [Home::new(), Home::new()];
    let target = alice.path().join("out");
    let get =
        |home: &Home, ticket: &str| home.args(["get", ticket, "-o", target.to_str().unwrap()]);
    get(&alice, "lvtkt1abc").fails(2, "not a ticket");
    let bound = well.share(&["--to", &bob.identity()]);
    get(&alice, &bound).denied("another identity");
    let ticket = well.share(&["--peers", "1"]);
    fs::write(&target, b"mine").unwrap();
    get(&alice, &ticket).fails(120, "exists");
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    fs::remove_file(&target).unwrap();
    get(&bob, &ticket).denied("used up");
    // The first and the last chunk change.
    let mut changed = fs::read(&well.film).unwrap();
    changed[0] ^= 1;
    changed[999_999] ^= 1;
    fs::write(&well.film, changed).unwrap();
    get(&alice, &ticket).fails(1, "0 to 65535, 983040 to 999999");
    assert!(!target.exists());
    assert!(well.home.run("swarm ls").ok().contains("damaged"));
    drop(node);
    let node = well.up();
    eventually("it is served again", || get(&alice, &ticket).stderr.contains("983040 to 999999"));
    drop(node);
    // Of another length: with as many chunks, and with fewer.
    for length in [999_999, 5] {
        File::options().write(true).open(&well.film).unwrap().set_len(length).unwrap();
        let _node = well.up();
        eventually("the node says so", || get(&alice, &ticket).stderr.contains("does not serve"));
        eventually("the owner sees why", || {
            let said = well.home.run("swarm status 1").stderr;
            said.contains("not served: ") && said.contains("film.mkv has changed")
        });
    }
    let _node = well.up();
    well.home.args(["swarm", "stop", "1"]).ok();
    get(&alice, &ticket).denied("revoked");
}

/// The ticket says what the content is; the node does not.
#[test]
fn a_ticket_that_was_altered_gives_nothing() {
    let well = Fixed::new(1_000_000);
    let _node = well.up();
    let ticket = well.share(&[]);
    let alice = Home::new();
    let target = alice.path().join("out");
    let altered = |change: fn(&mut TicketTerms)| {
        let ticket = Ticket::from_text(&ticket).unwrap();
        let mut terms = *ticket.terms();
        change(&mut terms);
        let secret = ticket.secret().clone();
        let addresses = ticket.addresses().to_vec();
        Ticket::new(ticket.node(), secret, terms, addresses).unwrap().to_text()
    };
    for (change, code, said) in [
        ((|terms| terms.length = 0) as fn(&mut TicketTerms), 120, "names no content"),
        (|terms| terms.length -= 1, 123, "not of this content"),
        (|terms| terms.length *= 2, 123, "not of this content"),
        (|terms| terms.root[0] ^= 1, 123, "another node, identity or share"),
    ] {
        let output = target.to_str().unwrap();
        alice.args(["get", &altered(change), "-o", output]).fails(code, said);
        assert!(!target.exists());
        for part in ["out.part", "out.part.levada"] {
            let _ = fs::remove_file(alice.path().join(part));
        }
    }
}

#[test]
fn without_a_node_a_share_lasts_until_it_is_interrupted() {
    let well = Fixed::new(100_000);
    let config =
        format!("listen = \"{}:5382\"\nhttp = \"127.0.0.1:0\"\nannounce = false\n", own_loopback());
    fs::write(well.home.path().join("config.toml"), config).unwrap();
    let printed = well.home.path().join("ticket");
    let mut command = well.home.command(["share", well.film.to_str().unwrap()]);
    command.stdout(File::create(&printed).unwrap()).stderr(Stdio::null());
    let mut sharing = command.spawn().unwrap();
    let ticket = || fs::read_to_string(&printed).unwrap().trim().to_owned();
    eventually("the ticket is printed", || !ticket().is_empty());
    let alice = Home::new();
    let target = alice.path().join("out");
    alice.args(["get", &ticket(), "-o", target.to_str().unwrap()]).ok();
    assert_same(&well.film, &target);
    signal(sharing.id(), "INT");
    assert_eq!(exit_code(&mut sharing), 0);
    let hashes = || fs::read_dir(well.home.path().join("shares")).unwrap().count();
    assert_eq!(hashes(), 0);
    let node = well.home.up("");
    assert_eq!(well.home.json("swarm ls")["shares"], serde_json::json!([]));
    drop(node);
    // Also if it is killed: the next start of the node notices.
    fs::remove_file(&printed).unwrap();
    let mut sharing = command.stdout(File::create(&printed).unwrap()).spawn().unwrap();
    eventually("the ticket is printed", || !ticket().is_empty());
    sharing.kill().unwrap();
    sharing.wait().unwrap();
    let _node = well.home.up("");
    eventually("it has ended", || well.home.json("swarm ls")["shares"] == serde_json::json!([]));
    eventually("its hashes are gone", || hashes() == 0);
}

#[test]
fn a_download_goes_on_once_a_full_disk_has_space() {
    let Some(folder) = std::env::var_os(DISK) else {
        let _permit = shared();
        let folder = tempfile::tempdir().unwrap();
        if !on_a_disk_of_its_own(folder.path(), "size=12m") {
            eprintln!("skipped: this machine gives no mount namespace");
        }
        return;
    };
    let folder = Path::new(&folder);
    let well = Fixed::new(6_000_000);
    let _node = well.up();
    let ticket = well.share(&[]);
    let filler = folder.join("filler");
    fs::write(&filler, vec![0; 8 << 20]).unwrap();
    let alice = Home::new();
    let target = folder.join("film");
    let get = || alice.args(["get", &ticket, "-o", target.to_str().unwrap()]);
    get().fails(120, "film.part needs 6.0 MB more, and 4.");
    assert!(!target.exists());
    fs::remove_file(&filler).unwrap();
    get().ok();
    assert_same(&well.film, &target);
    fs::remove_file(&target).unwrap();

    // A folder does not need twice its size; when its name is taken meanwhile, or the disk is full,
    // nothing is fetched again.
    let photos = well.home.path().join("photos");
    fs::create_dir_all(photos.join("a")).unwrap();
    (0..8).for_each(|n| fs::write(photos.join(format!("a/{n}")), noise(n, 900_000)).unwrap());
    let ticket = well.home.args(["share", photos.to_str().unwrap(), "--upload-limit", "1M"]).ok();
    let target = folder.join("photos");
    let getting = || Getting::start(&alice, &ticket, &target, &[]);
    let first = getting();
    eventually("it has begun", || first.most("progress", "have") > 0);
    fs::create_dir(&target).unwrap();
    let (code, events) = first.wait();
    assert_eq!(code, 120, "{events:?}");
    assert!(fs::read_dir(&target).unwrap().next().is_none());
    fs::remove_dir(&target).unwrap();
    fs::write(&filler, vec![0; 12 << 20]).unwrap_err();
    assert_eq!(getting().wait().0, 120);
    fs::remove_file(&filler).unwrap();
    let (code, events) = getting().wait();
    let complete = events.last().unwrap();
    assert_eq!((code, &complete["from_node"]), (0, &0.into()), "{events:?}");
    (0..8).for_each(|n| {
        assert_same(&photos.join(format!("a/{n}")), &target.join(format!("a/{n}")));
    });
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn a_mediated_share_outlives_its_source() {
    let well = Fixed::new(3_000_000);
    let _node = well.up();
    let ticket = well.share(&["--mode", "mediated", "--cache", "512Ki", "--wait", "2"]);
    let homes = [Home::new(), Home::new(), Home::new()];
    let [alice, bob, carol] = &homes;
    let target = |home: &Home| home.path().join("out.mkv");
    let providing =
        [alice, bob].map(|home| Getting::start(home, &ticket, &target(home), &["--seed", "10m"]));
    for (getting, home) in providing.iter().zip([alice, bob]) {
        eventually("it is complete", || getting.most("seeding", "seconds") == 600);
        assert_same(&well.film, &target(home));
    }
    let kept = well.home.path().join("kept");
    fs::copy(&well.film, &kept).unwrap();
    File::create(&well.film).unwrap();
    // One of the providers is killed: the other has all.
    let [killed, _other] = providing;
    drop(killed);
    let (code, events) = Getting::start(carol, &ticket, &target(carol), &[]).wait();
    let complete = events.last().unwrap();
    assert_eq!((code, &complete["event"]), (0, &"complete".into()), "{events:?}");
    assert_eq!(complete["from_node"], 3_000_000);
    assert_same(&kept, &target(carol));
    let status = well.home.json("swarm status 1");
    let served = &status["served"];
    assert_eq!((&served["read"], &served["read_again"]), (&46.into(), &0.into()), "{status}");
    assert!(served["fetched"].as_u64().unwrap() >= 38, "{status}");
    assert_eq!(status["settings"]["mediated"]["replicas"], 2);
    let shown = well.home.args(["swarm", "status", "1"]).ok();
    assert!(shown.contains("mediated"), "{shown}");
}
