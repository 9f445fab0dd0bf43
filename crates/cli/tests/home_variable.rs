//! `LEVADA_HOME`, and the report of a new identity.

use crate::support::{Home, Ran};

#[test]
fn a_new_identity_is_reported_once_with_its_absolute_folder() {
    let home = Home::new();
    let folder = home.path().canonicalize().unwrap();
    let id = || {
        let mut command = home.command(["id"]);
        command.current_dir(&folder).env("LEVADA_HOME", "relative");
        Ran::from(command.output().unwrap())
    };
    let first = id();
    let identity = first.stdout.trim_end();
    let made = folder.join("relative");
    let note = format!("note: made the new identity {identity} in {}\n", made.display());
    assert_eq!(first.stderr, note);
    let second = id();
    assert_eq!(second.stderr, "");
    assert_eq!(second.stdout, first.stdout);
}

#[test]
fn an_empty_variable_is_an_error_of_usage_and_makes_nothing() {
    let home = Home::new();
    let mut command = home.command(["id"]);
    command.env("LEVADA_HOME", "").env("HOME", home.path());
    command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
    Ran::from(command.output().unwrap()).fails(2, "LEVADA_HOME is empty");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn status_names_the_nodes_of_other_homes() {
    let other = Home::new();
    let node = other.up("--name other");
    let status = other.json("status");
    assert_eq!(status["home"], other.path().to_str().unwrap());
    let line = format!(
        "other (process {}) runs here: LEVADA_HOME={} levada status",
        node.process(),
        other.path().display()
    );
    Home::new().run("status").fails(120, &line);
}
