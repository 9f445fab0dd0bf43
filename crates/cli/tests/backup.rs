//! Backup and restore with real processes, while the node runs and while it does not.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Home, Node, Ran, eventually, own_loopback};
use serde_json::Value;

const CONFIG: &str = "name = \"well\"\nsession_expires = \"2h\"\n";

/// A home with each kind of data that a backup holds, and a guest.
struct Scene {
    home: Home,
    alice: Home,
    /// A node that the home has pinned.
    other: Home,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        std::fs::write(home.path().join("config.toml"), CONFIG).unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { home, alice: Home::new(), other: Home::new(), folder }
    }

    fn file(&self) -> String {
        self.folder.path().join("home.age").display().to_string()
    }

    fn backup(&self) -> Ran {
        self.home.with_passphrase("open sesame", &format!("backup {}", self.file()))
    }

    fn restore(&self, passphrase: &str) -> Ran {
        self.home.with_passphrase(passphrase, &format!("restore {}", self.file()))
    }

    /// Fills the home; returns a capability and an invitation, which a restore must not revive.
    fn fill(&self, node: &Node<'_>, other: &Node<'_>) -> (String, String) {
        node.welcome(&self.alice, "well");
        other.welcome(&self.home, "other");
        let capability = self.alice.run("request well/echo --uses 9").ok();
        echoes(&self.alice, &capability);
        (capability, node.invite(""))
    }

    /// Asserts that everything is restored, and that nothing can be used a second time.
    fn assert_restored(&self, log: &[Value], capability: &str, invitation: &str) {
        let text = std::fs::read_to_string(self.home.path().join("config.toml")).unwrap();
        assert_eq!(text, CONFIG);
        assert_eq!(self.home.run("run other/clock").code, 0, "the pin is back");
        let now = log_of(&self.home);
        assert!(log.iter().all(|entry| now.contains(entry)), "the log is back: {now:?}");
        assert!(now.len() > log.len(), "the restore is in it: {now:?}");
        self.alice.args(["connect", capability]).denied("terminated");
        Home::new().args(["join", invitation]).denied("used");
        // The guest keeps the right to request.
        self.alice.run("run well/clock").ok();
        let states = self.home.json("sessions")["sessions"].clone();
        let held = self.alice.args(["inspect", "--json", capability]).ok();
        let held: Value = serde_json::from_str(&held).unwrap();
        let row = states.as_array().unwrap().iter().find(|row| row["session"] == held["session"]);
        assert_eq!(row.unwrap()["state"], "terminated", "{states}");
    }
}

fn echoes(home: &Home, capability: &str) {
    assert_eq!(home.with_input(&format!("connect {capability}"), b"hello").ok(), "hello");
}

fn log_of(home: &Home) -> Vec<Value> {
    home.json("sessions --log --limit 10000")["log"].as_array().unwrap().clone()
}

/// The content of each file that a restore replaces.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: &str| (name.to_owned(), std::fs::read(folder.join(name)).unwrap());
    ["identity.key", "config.toml", "node.db", "known.db"].map(read).into()
}

fn left_behind(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.contains("restore") || name.contains("backup")).collect()
}

#[test]
fn an_offline_restore_brings_back_everything_and_revives_no_right() {
    let scene = Scene::new();
    let other = scene.other.up("--name other");
    let up = format!("up --http 127.0.0.1:0 --listen {}:0", own_loopback());
    let node = scene.home.up_with(&up);
    let up = format!("up --http 127.0.0.1:0 --listen {}", node.address());
    let (capability, invitation) = scene.fill(&node, &other);
    let identity = scene.home.identity();
    let log = log_of(&scene.home);
    scene.home.run("stop").ok();
    scene.backup().ok();

    // These changes are not in the backup.
    let node = scene.home.up_with(&up);
    Home::new().args(["join", &invitation]).ok();
    scene.alice.args(["revoke", &capability]).ok();
    scene.home.run("stop").ok();
    drop(node);
    std::fs::write(scene.home.path().join("config.toml"), "name = \"changed\"\n").unwrap();

    let before = content(scene.home.path());
    scene.restore("open sesam").fails(120, "passphrase");
    assert!(content(scene.home.path()) == before, "a wrong passphrase changes nothing");
    scene.restore("open sesame").ok();
    assert_eq!(scene.home.identity(), identity);
    assert!(left_behind(scene.home.path()).is_empty());

    let _node = scene.home.up_with(&up);
    scene.assert_restored(&log, &capability, &invitation);
}

#[test]
fn an_online_restore_restarts_the_running_node() {
    let scene = Scene::new();
    let other = scene.other.up("--name other");
    let node = scene.home.up("");
    let (capability, invitation) = scene.fill(&node, &other);
    let identity = scene.home.identity();
    let log = log_of(&scene.home);
    scene.backup().ok();
    scene.backup().fails(120, "--force");

    Home::new().args(["join", &invitation]).ok();
    echoes(&scene.alice, &capability);
    std::fs::write(scene.home.path().join("config.toml"), "name = \"changed\"\n").unwrap();
    let mut command = scene.alice.command(["connect", &capability]);
    let mut running = command.stdin(Stdio::piped()).spawn().unwrap();
    // Waiting for a child closes its input, which would end the session.
    let _input = running.stdin.take();
    eventually("the session runs", || scene.home.json("status")["running_sessions"] == 1);
    // The audit log is written after the end of a session.
    eventually("two sessions have ended, and the third has started", || {
        let log = log_of(&scene.home);
        let times = |outcome| log.iter().filter(|entry| entry["outcome"] == outcome).count();
        times("ended") == 2 && times("started") == 3
    });

    let key = "identity.key";
    let config = "config.toml";
    let read = |name| std::fs::read(scene.home.path().join(name)).unwrap();
    let before = (read(key), read(config), log_of(&scene.home));
    scene.restore("open sesam").fails(120, "passphrase");
    assert!((read(key), read(config), log_of(&scene.home)) == before, "nothing has changed");
    assert!(running.try_wait().unwrap().is_none(), "the session goes on");

    scene.restore("open sesame").ok();
    assert_ne!(running.wait().unwrap().code(), Some(0), "the running session has ended");
    let status = scene.home.json("status");
    assert_eq!(status["identity"], identity);
    assert_eq!(status["process"], node.process());
    assert_eq!(status["name"], "well");
    scene.assert_restored(&log, &capability, &invitation);
    assert!(left_behind(scene.home.path()).is_empty());
}

#[test]
fn restoring_another_identity_into_a_running_node_needs_force() {
    let scene = Scene::new();
    let identity = scene.home.identity();
    scene.backup().ok();
    let other = scene.other.up("--name other");
    let before = scene.other.identity();
    let line = format!("restore {}", scene.file());
    scene.other.with_passphrase("open sesame", &line).fails(120, "--force");
    assert_eq!(scene.other.json("status")["identity"], before);
    scene.other.with_passphrase("open sesame", &format!("{line} --force")).ok();
    assert_eq!(scene.other.json("status")["identity"], identity);
    assert_eq!(scene.other.json("status")["process"], other.process());
    scene.other.run("run other/clock").ok();
}

fn publish(home: &Home, object: &str) -> Ran {
    // Each object has its own files, because some are published at the same time.
    let name = object.replace(['/', '@'], "-");
    let path = |end: &str| home.path().join(format!("{name}.{end}"));
    std::fs::write(path("json"), "{}").unwrap();
    std::fs::write(path("js"), format!("code of {object}")).unwrap();
    let [descriptor, package] = ["json", "js"].map(|end| path(end).display().to_string());
    home.args(["catalogue", "publish", object, &descriptor, "--package", &package])
}

/// Asserts that the catalogue verifies, has the objects from before the backup, and does not have
/// `later`.
fn assert_catalogue(home: &Home, later: &str) {
    assert_eq!(home.json("catalogue verify")["findings"].as_array().unwrap().len(), 0);
    let versions = home.json("catalogue ls hyperty/One")["objects"].take();
    let yanked: Vec<_> = versions.as_array().unwrap().iter().map(|one| &one["yanked"]).collect();
    assert_eq!(yanked, [false, true]);
    let target = home.path().join("got.js");
    let path = target.display().to_string();
    home.args(["catalogue", "get", "hyperty/One", "--package", &path]).ok();
    assert_eq!(std::fs::read(&target).unwrap(), b"code of hyperty/One@1.0.0");
    home.run(&format!("catalogue get {later}")).fails(1, "there is no");
}

#[test]
fn a_backup_holds_the_catalogue_while_objects_are_published() {
    let scene = Scene::new();
    publish(&scene.home, "hyperty/One@1.0.0").ok();
    publish(&scene.home, "hyperty/One@1.1.0").ok();
    scene.home.run("catalogue yank hyperty/One@1.1.0").ok();
    let node = scene.home.up("");
    std::thread::scope(|scope| {
        let home = &scene.home;
        scope.spawn(move || {
            for number in 0..10 {
                publish(home, &format!("runtime/Busy@1.0.{number}")).ok();
            }
        });
        scene.backup().ok();
    });
    publish(&scene.home, "hyperty/Later@1.0.0").ok();
    let changes = scene.home.run("catalogue watch --after 0 --once").ok();
    let last = changes.lines().last().unwrap().split(' ').next().unwrap();
    let watch = format!("catalogue watch --once --after {last}");
    scene.home.run(&watch).ok();

    scene.restore("open sesame").ok();
    assert_eq!(scene.home.json("status")["process"], node.process());
    assert_catalogue(&scene.home, "hyperty/Later");
    // A client that follows the changes would miss some: its request is refused.
    scene.home.run(&watch).fails(1, "read everything again");
    publish(&scene.home, "hyperty/Later@1.0.0").ok();
    let catalogue = scene.home.path().join("catalogue");
    assert!([scene.home.path(), &catalogue].iter().all(|folder| left_behind(folder).is_empty()));
    drop(node);

    // Without a node, into a home with another catalogue, to the folder that the configuration
    // names.
    let config = "[catalogue]\nfolder = '/CATALOGUE'\n";
    let place = scene.folder.path().join("elsewhere");
    let config = config.replace("/CATALOGUE", &place.display().to_string());
    std::fs::write(scene.home.path().join("config.toml"), config).unwrap();
    std::fs::rename(&catalogue, &place).unwrap();
    let again = scene.folder.path().join("again.age").display().to_string();
    scene.home.with_passphrase("open sesame", &format!("backup {again}")).ok();
    std::fs::remove_dir_all(&place).unwrap();
    let other = Home::new();
    publish(&other, "hyperty/Other@1.0.0").ok();
    let line = format!("restore {again} --force");
    other.with_passphrase("open sesame", &line).ok();
    assert_catalogue(&other, "hyperty/Other");
    assert!(place.join("catalogue.db").is_file());
}

#[test]
fn restoring_a_backup_without_a_catalogue_keeps_the_existing_one() {
    let scene = Scene::new();
    scene.home.identity();
    scene.backup().ok();
    let other = Home::new();
    publish(&other, "hyperty/One@1.0.0").ok();
    let line = format!("restore {} --force", scene.file());
    other.with_passphrase("open sesame", &line).ok();
    assert_eq!(other.json("catalogue get hyperty/One")["version"], "1.0.0");
}

/// Decrypts with age, which reads the passphrase from its terminal.
fn age(file: &str, to: &Path) {
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    let mut child = pty_process::blocking::Command::new("age")
        .args(["--decrypt", "--output"])
        .args([to.as_os_str(), file.as_ref()])
        .spawn(inside)
        .unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 256];
    while !seen.contains("assphrase") {
        let length = terminal.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    terminal.write_all(b"open sesame\n").unwrap();
    assert!(child.wait().unwrap().success(), "{seen}");
}

#[test]
fn age_and_tar_open_a_backup() {
    let scene = Scene::new();
    scene.home.identity();
    let node = scene.home.up("");
    scene.backup().ok();
    let tar = scene.folder.path().join("home.tar");
    age(&scene.file(), &tar);
    let unpack = |arguments: &[&str]| {
        let mut command = Command::new("tar");
        command.args(arguments).arg(&tar).current_dir(scene.folder.path());
        Ran::from(command.output().unwrap()).ok()
    };
    let names = unpack(&["-tf"]);
    for name in ["identity.key", "config.toml", "node.db", "known.db"] {
        assert!(names.lines().any(|line| line.trim_start_matches("./") == name), "{names}");
    }
    unpack(&["-xf"]);
    let key = std::fs::read(scene.folder.path().join("identity.key")).unwrap();
    assert_eq!(key, std::fs::read(scene.home.path().join("identity.key")).unwrap());
    drop(node);
}
