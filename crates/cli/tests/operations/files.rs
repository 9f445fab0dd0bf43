//! Files of a home and of its catalogue that a start refuses: `levada up --check` and
//! `levada doctor` name them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::doctor::{check, without_privileges};
use super::start::{FREE, configure, listing, refused, refused_by};
use crate::support::Home;

#[test]
fn an_unusable_catalogue_is_found_before_a_start() {
    let home = Home::new();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    for folder in [file.clone(), file.join("below")] {
        configure(&home, &format!("{FREE}[catalogue]\nfolder = '{}'\n", folder.display()));
        refused(&home, "catalogue", "catalogue.db: Not a directory");
    }
    configure(&home, &format!("{FREE}catalogue = true\n"));
    let folder = home.path().join("catalogue");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("blobs"), "").unwrap();
    refused(&home, "catalogue", "blobs: File exists");
    fs::remove_file(folder.join("blobs")).unwrap();
    let database = folder.join("catalogue.db");
    fs::remove_file(&database).unwrap();
    fs::create_dir(&database).unwrap();
    refused(&home, "catalogue", "not a regular file");
    fs::remove_dir(&database).unwrap();
    fs::write(&database, [7; 8192]).unwrap();
    refused(&home, "catalogue", "not a Levada database of this kind");
    fs::remove_file(&database).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o500)).unwrap();
    let run = |line: &str| without_privileges(&home, line);
    refused_by(&home, run, "catalogue", "catalogue.db: Permission denied");
}

#[test]
fn an_unusable_key_is_found_before_a_start() {
    let home = Home::new();
    configure(&home, FREE);
    home.identity();
    let key = home.path().join("identity.key");
    let next = home.path().join("identity.key.next");
    let good = fs::read(&key).unwrap();
    let private = |path: &Path, content: &[u8]| {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    };
    private(&next, b"garbage");
    refused(&home, "rotation", "identity.key.next has no valid key");
    private(&next, &good);
    refused(&home, "rotation", "the same key as");
    fs::remove_file(&next).unwrap();

    private(&key, b"garbage");
    refused(&home, "key", "identity.key has no valid key");
    fs::remove_file(&key).unwrap();
    assert!(Command::new("mkfifo").arg(&key).status().unwrap().success());
    refused(&home, "key", "is not a regular file: rename it");
    fs::remove_file(&key).unwrap();
    private(&key, &good);
    fs::set_permissions(&key, Permissions::from_mode(0o000)).unwrap();
    let run = |line: &str| without_privileges(&home, line);
    refused_by(&home, run, "key", "identity.key: Permission denied");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn an_interrupted_rotation_is_named_and_left_to_a_start() {
    let home = Home::new();
    drop(home.up("--name well"));
    let other = Home::new();
    let new = other.identity();
    let next = home.path().join("identity.key.next");
    fs::copy(other.path().join("identity.key"), &next).unwrap();
    let before = listing(home.path());
    let checked = home.run("up --check --listen 127.0.0.1:0 --http 127.0.0.1:0");
    assert!(checked.stderr.contains("an interrupted rotation of the key"), "{checked:?}");
    checked.ok();
    let found = check(&home.run("doctor"), "rotation");
    assert!(found.starts_with("note") && found.contains("completes it"), "{found}");
    assert!(listing(home.path()) == before);
    drop(home.up("--name well"));
    assert!(!next.exists());
    assert_eq!(home.identity(), new);
}

#[test]
fn an_unusable_database_is_found_before_a_start() {
    let home = Home::new();
    configure(&home, FREE);
    drop(home.up("--name well"));
    let database = home.path().join("node.db");
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(home.path().join(format!("node.db{end}")));
    }
    let good = fs::read(&database).unwrap();
    fs::write(&database, [7; 8192]).unwrap();
    refused(&home, "database", "node.db: not a Levada database of this kind");
    fs::remove_file(&database).unwrap();
    fs::create_dir(&database).unwrap();
    refused(&home, "database", "node.db: not a regular file");
    fs::remove_dir(&database).unwrap();
    fs::write(&database, good).unwrap();
    for mode in [0o000, 0o400] {
        fs::set_permissions(&database, Permissions::from_mode(mode)).unwrap();
        let run = |line: &str| without_privileges(&home, line);
        refused_by(&home, run, "database", "node.db: Permission denied");
    }
}

#[test]
fn other_files_in_the_place_of_those_of_the_home_are_found_before_a_start() {
    let home = Home::new();
    configure(&home, FREE);
    let run = home.path().join("run");
    fs::write(&run, "").unwrap();
    refused(&home, "home", "cannot create the folder");
    fs::remove_file(&run).unwrap();
    fs::create_dir_all(run.join("control.sock")).unwrap();
    fs::set_permissions(&run, Permissions::from_mode(0o700)).unwrap();
    refused(&home, "node", "control.sock: Is a directory");
    fs::remove_dir(run.join("control.sock")).unwrap();
    let lock = home.path().join("node.lock");
    let _ = fs::remove_file(&lock);
    fs::create_dir(&lock).unwrap();
    refused(&home, "node", "node.lock: Is a directory");
    fs::remove_dir(&lock).unwrap();
    let config = home.path().join("config.toml");
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    refused(&home, "configuration", "config.toml: not a regular file");
}

#[test]
fn an_unusable_backup_of_an_interrupted_restore_replaces_nothing() {
    let home = Home::new();
    configure(&home, FREE);
    let identity = home.identity();
    let pending = home.path().join("restore.pending");
    fs::create_dir(&pending).unwrap();
    fs::write(pending.join("identity.key"), "garbage").unwrap();
    fs::set_permissions(pending.join("identity.key"), Permissions::from_mode(0o600)).unwrap();
    refused(&home, "restore", "identity.key has no valid key");
    assert_eq!(home.identity(), identity);
}
