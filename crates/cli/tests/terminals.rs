//! Output on a terminal: tables that fit, colours, manual pages, and shells that get a terminal.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use levada_core::Identity;

use crate::support::terminal::on_terminal;
use crate::support::{Home, Ran, eventually};

/// A home with three names and their keys.
fn home_with_names() -> Home {
    let home = Home::new();
    for (name, byte) in [("alpha", 1), ("a-rather-long-name", 2), ("bob", 3)] {
        let key = key(byte);
        home.args(["peers", "add", name, &format!("{key}@192.0.2.1:5382")]).ok();
    }
    home
}

fn key(byte: u8) -> String {
    Identity::from_bytes([byte; 32]).to_string()
}

fn plain(home: &Home, columns: u16, line: &str) -> Vec<String> {
    let ran = on_terminal(home, columns, &[("NO_COLOR", "1")], line);
    ran.ok().lines().map(str::to_owned).collect()
}

#[test]
fn a_table_fits_the_terminal_and_has_whole_keys_elsewhere() {
    let home = home_with_names();
    let piped = home.run("peers ls").ok();
    assert!(piped.contains(&key(1)) && piped.contains("192.0.2.1:5382"), "{piped}");
    for columns in [80, 60, 40] {
        let lines = plain(&home, columns, "peers ls");
        assert!(lines.iter().all(|line| line.chars().count() <= columns.into()), "{lines:?}");
        let text = lines.join("\n");
        assert!(text.contains(&key(1)[..10]) && !text.contains(&key(1)), "{text}");
    }
    let wide = plain(&home, 40, "peers ls --wide").join("\n");
    assert_eq!(wide, piped);
    assert_eq!(home.run("peers ls --wide").ok(), piped);
}

#[test]
fn headings_are_bold_unless_colours_are_not_wanted() {
    let home = home_with_names();
    let shown = |environment: &[(&str, &str)]| on_terminal(&home, 80, environment, "peers ls").ok();
    assert!(shown(&[]).starts_with("\u{1b}[1mname "), "{:?}", shown(&[]));
    for environment in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(!shown(&[environment]).contains('\u{1b}'), "{environment:?}");
    }
    assert!(shown(&[("NO_COLOR", "")]).contains('\u{1b}'));
    let json = on_terminal(&home, 40, &[], "peers ls --json").ok();
    assert!(json.contains(&key(1)) && !json.contains('\u{1b}'), "{json}");
}

#[test]
fn states_that_matter_have_a_colour() {
    let home = Home::new();
    let node = home.up("--demo --name well");
    home.run("request well/clock").ok();
    let shown = on_terminal(&home, 80, &[], "sessions").ok();
    assert!(shown.contains("\u{1b}[33mready\u{1b}[0m"), "{shown:?}");
    drop(node);
}

#[test]
fn an_abbreviated_key_stands_for_the_only_one_that_begins_so() {
    let home = home_with_names();
    let capability = home.run("request alpha/clock");
    assert_ne!(capability.code, 0);
    let short = &key(3)[..10];
    let again = home.args(["peers", "add", "carol", short]);
    again.fails(121, "is known here as `bob`");
    let note = home.args(["peers", "add", "bob", &format!("{short}@192.0.2.9:1")]);
    assert!(note.stderr.contains(&format!("note: {short} is bob ({})", key(3))), "{note:?}");
    assert!(home.run("peers ls").ok().contains("192.0.2.9:1"));
    home.args(["peers", "add", "dora", "lvzzzzzzzz"]).fails(2, "not an identity");
}

#[test]
fn an_ambiguous_abbreviation_is_refused_with_the_candidates() {
    let home = Home::new();
    let mut bytes = [9; 32];
    let first = Identity::from_bytes(bytes).to_string();
    bytes[31] = 8;
    let second = Identity::from_bytes(bytes).to_string();
    home.args(["peers", "add", "one", &first]).ok();
    home.args(["peers", "add", "two", &second]).ok();
    let short = &first[..10];
    let ran = home.args(["query", short]);
    assert!(ran.stderr.contains(&format!("one ({first})")), "{ran:?}");
    ran.fails(2, &format!("two ({second})"));
    // A name that looks like the beginning of another key is ambiguous, too.
    home.args(["peers", "rename", "one", "three"]).ok();
    home.args(["peers", "add", &first[..12], &key(1)]).ok();
    home.args(["query", &first[..12]]).fails(2, "begin with");
    let shown = plain(&home, 80, "peers ls").join("\n");
    let unique = first.len() - 12;
    assert!(shown.contains(&first[..unique.min(20)]), "{shown}");
}

#[test]
fn the_log_of_a_node_has_the_name_of_a_peer_before_its_key() {
    let home = Home::new();
    let guest = Home::new();
    let node = home.up("--demo --name well");
    let code = node.invite("--name alice");
    let joined = guest.args(["join", &code, "--as", "well"]);
    assert!(joined.stderr.contains(&format!("well ({}) is known here", home.identity())));
    guest.run("run well/clock").ok();
    let line = format!("name=\"alice\" peer={}", guest.identity());
    eventually("the log names the guest", || node.log().contains(&line));
}

/// Runs `levada man run` on a terminal with only these programs and this pager.
fn manual(home: &Home, programs: &Path, pager: &str) -> Ran {
    let path = programs.to_str().unwrap();
    on_terminal(home, 80, &[("PATH", path), ("PAGER", pager)], "man run")
}

#[test]
fn a_manual_page_is_shown_by_man_or_a_pager_or_alone() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path();
    symlink("/bin/sh", programs.join("sh")).unwrap();
    symlink("/bin/cat", programs.join("cat")).unwrap();
    let alone = manual(&home, programs, "").ok();
    assert!(alone.contains("Usage: levada run") && !alone.contains(".TH"), "{alone}");
    let paged = manual(&home, programs, "echo paged; cat").ok();
    assert!(paged.starts_with("paged\n") && paged.contains("Usage: levada run"), "{paged}");
    let man = programs.join("man");
    fs::write(&man, "#!/bin/sh\necho man \"$@\"\nexec cat\n").unwrap();
    fs::set_permissions(&man, fs::Permissions::from_mode(0o755)).unwrap();
    let by_man = manual(&home, programs, "exit 1").ok();
    assert!(by_man.starts_with("man -l -\n") && by_man.contains(".TH levada-run"), "{by_man}");
    assert!(home.run("man run").ok().contains(".TH levada-run"));
}
