//! Completions: the scripts of bash, zsh and fish complete the names of a home, without its node.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Home, in_full};

/// Takes the line to complete as `$1`, and prints the candidates.
const BASH: &str = r#"
source "$SCRIPT"
COMP_LINE=$1
COMP_POINT=${#1}
COMP_WORDS=($1)
[[ $1 == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_levada
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The same without the completion system of zsh, which needs a terminal.
const ZSH: &str = r#"
compdef() { :; }
_files() { print -r -- FILES; }
compadd() { print -rl -- "${(P@)@[-1]}"; }
source "$SCRIPT"
words=(${(z)1})
[[ $1 == *' ' ]] && words+=("")
CURRENT=$#words
_levada
"#;

const FISH: &str = r#"source "$SCRIPT"; complete -C "$argv[1]""#;

/// A home that has seen two nodes: `well` has services, and `cellar` none that are known.
struct Scene {
    home: Home,
    path: String,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let other = Home::new();
        let node = other.up("--demo --name well");
        node.welcome(&home, "well");
        let cellar = levada_core::Identity::from_bytes([5; 32]).to_string();
        home.args(["peers", "add", "cellar", &cellar]).ok();
        drop(node);
        let folder = Path::new(env!("CARGO_BIN_EXE_levada")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        Self { home, path }
    }

    /// The candidates that `shell` shows for `line`, without descriptions.
    fn complete(&self, shell: &[&str], line: &str) -> Vec<String> {
        let script = self.home.path().join(shell[0]);
        fs::write(&script, self.home.args(["completions", shell[0]]).ok()).unwrap();
        let output = Command::new(shell[0])
            .args(&shell[1..])
            .arg(line)
            .env("LEVADA_HOME", self.home.path())
            .env("HOME", self.home.path())
            .env("PATH", &self.path)
            .env("SCRIPT", &script)
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let values = text.lines().map(|line| line.split('\t').next().unwrap().to_owned());
        values.filter(|value| !value.is_empty()).collect()
    }
}

fn names_are_completed(shell: &[&str]) {
    let scene = Scene::new();
    let complete = |line: &str| {
        let mut found = scene.complete(shell, line);
        found.sort();
        found
    };
    assert_eq!(complete("levada quer"), ["query"]);
    assert_eq!(complete("levada run we"), ["well/clock", "well/echo", "well/exec"]);
    assert_eq!(complete("levada run well/c"), ["well/clock"]);
    assert_eq!(complete("levada run c"), ["cellar/"]);
    assert_eq!(complete("levada peers forget "), ["cellar", "well"]);
    assert_eq!(complete("levada catalogue get hyp"), ["hyperty/"]);
    assert_eq!(complete("levada sessions --lo"), ["--log"]);
}

#[test]
fn bash_completes_names() {
    names_are_completed(&["bash", "--norc", "-c", BASH, "bash"]);
    let scene = Scene::new();
    let bash = ["bash", "--norc", "-c", BASH, "bash"];
    // Readline replaces only what follows `=`.
    let found = scene.complete(&bash, "levada request well/exec --for=ce");
    assert_eq!(found, ["cellar"]);
}

#[test]
fn zsh_completes_names() {
    if is_installed("zsh") {
        names_are_completed(&["zsh", "-f", "-c", ZSH, "zsh"]);
    }
}

#[test]
fn fish_completes_names() {
    if is_installed("fish") {
        names_are_completed(&["fish", "--no-config", "-c", FISH]);
    }
}

/// Returns true if a shell is installed; `scripts/test --all` installs all.
fn is_installed(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok();
    assert!(found || !in_full(), "{shell} is missing");
    found
}

#[test]
fn the_running_node_gives_sessions_shares_and_tickets() {
    let home = Home::new();
    let node = home.up("--demo --name well");
    home.run("request well/clock").ok();
    let file = home.path().join("notes.txt");
    fs::write(&file, "notes").unwrap();
    home.args(["share", file.to_str().unwrap()]).ok();
    let session = home.json("sessions")["sessions"][0]["session"].as_str().unwrap().to_owned();
    let complete = |line: &str| {
        let words = ["complete", "--"].into_iter().chain(line.split(' '));
        home.args(words).ok()
    };
    assert!(complete("revoke ").lines().any(|line| line.starts_with(&session)));
    assert_eq!(complete("swarm stop "), "1\tnotes.txt");
    let share = &home.json("swarm ls")["shares"][0];
    let ticket = share["tickets"][0]["ticket"].as_str().unwrap();
    assert_eq!(complete("swarm revoke "), format!("{ticket}\tnotes.txt"));
    assert_eq!(complete("invite --service cl"), "clock");
    drop(node);
    // Without the node, nothing is listed, and nothing fails.
    assert_eq!(complete("swarm stop "), "");
}
