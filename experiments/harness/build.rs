//! Embeds the commit and hashes of the working tree, and the profile: a copied binary runs outside
//! the checkout, where git cannot tell them.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Kinds of tracked files that affect no measurement: rows, figures and documents.
const LEFT_OUT: [&str; 3] = [".jsonl", ".svg", ".md"];
/// The start of the hash FNV-1a.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
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
    embed_hashes(&sources);
    println!("cargo:rustc-env=LEVADA_PROFILE={}", profile().unwrap_or_default());
    println!("cargo:rustc-env=LEVADA_COMMIT={commit}{}", if changed { "+" } else { "" });
}

/// Embeds a hash of each part of the sources, as they are on disk; empty outside a checkout.
fn embed_hashes(sources: &str) {
    let parts = [("CRATES", "crates/"), ("EXPERIMENTS", "experiments/"), ("LOCK", "Cargo.lock")];
    for (name, begins) in parts {
        let mut hash = FNV_START;
        let paths = sources.lines().filter(|path| path.starts_with(begins) && !is_left_out(path));
        for path in paths {
            let content = fs::read(format!("../../{path}")).unwrap_or_default();
            hash = path.bytes().chain(content).fold(hash, mix);
        }
        let text = if sources.is_empty() { String::new() } else { format!("{hash:016x}") };
        println!("cargo:rustc-env=LEVADA_{name}={text}");
    }
}

/// One step of the hash FNV-1a.
fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// The name of the profile's folder, which is above that of the build script: `debug`, `dist`.
fn profile() -> Option<String> {
    let output = env::var_os("OUT_DIR")?;
    let folder = Path::new(&output).ancestors().nth(3)?.file_name()?;
    Some(folder.to_string_lossy().into_owned())
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
