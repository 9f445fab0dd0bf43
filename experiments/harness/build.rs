//! Embeds the commit of the working tree: a copied binary runs outside the checkout, where git
//! cannot tell it.

use std::process::Command;

/// Kinds of tracked files that affect no measurement: rows, figures and documents.
const LEFT_OUT: [&str; 3] = [".jsonl", ".svg", ".md"];
/// What is built, from the root of the workspace.
const SOURCES: [&str; 5] = ["crates", "experiments", "proto", "Cargo.toml", "Cargo.lock"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The log of HEAD grows with each commit, checkout and rebase.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    let sources = of_sources(&["ls-files", "--full-name"]);
    for path in sources.lines().filter(|path| !is_left_out(path)) {
        println!("cargo:rerun-if-changed=../../{path}");
    }
    let status = of_sources(&["status", "--porcelain", "--untracked-files=no"]);
    let changed = status.lines().any(|line| !is_left_out(line));
    println!("cargo:rustc-env=LEVADA_COMMIT={commit}{}", if changed { "+" } else { "" });
}

fn is_left_out(path: &str) -> bool {
    LEFT_OUT.iter().any(|ending| path.ends_with(ending))
}

/// The output of a command of git about the sources; empty outside a checkout.
fn of_sources(words: &[&str]) -> String {
    let at_root = ["-C", "../.."];
    git(&[&at_root[..], words, &["--"], &SOURCES].concat()).unwrap_or_default()
}

/// The output of a command of git, run in the folder of this package; None if it fails.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
