//! Who may import whom, and what no crate may do: the rules of ARCHITECTURE.md, held by a test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// For each crate, the crates of this workspace that it may import.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("capability", &["core"]),
    ("channel", &["core"]),
    ("transport", &["core"]),
    ("session", &["core", "channel", "transport"]),
    ("discovery", &["core"]),
    ("database", &[]),
    ("catalogue", &["core", "capability", "database"]),
    ("services", &["core", "capability", "catalogue", "session"]),
    (
        "node",
        &[
            "core",
            "capability",
            "channel",
            "transport",
            "session",
            "discovery",
            "database",
            "catalogue",
            "services",
        ],
    ),
    (
        "cli",
        &[
            "core",
            "capability",
            "channel",
            "transport",
            "session",
            "discovery",
            "database",
            "catalogue",
            "services",
            "node",
        ],
    ),
    // Tests only: nothing may import it but as a dev-dependency.
    ("faultfs", &[]),
    // Experiments may import anything; nothing imports them.
    ("lab", &[]),
    ("harness", &[]),
    (
        "experiments",
        &[
            "core",
            "catalogue",
            "channel",
            "transport",
            "session",
            "services",
            "node",
            "lab",
            "harness",
        ],
    ),
];

/// With lints of their own, which ask for a SAFETY comment at each block: system calls that no library wraps, and a
/// table of C functions.
const WITH_UNSAFE: &[&str] = &["transport", "faultfs"];
/// Crates that do no I/O, and what they must therefore not import.
const WITHOUT_IO: &[&str] = &["core", "capability", "channel"];
const IO: &[&str] = &["tokio", "socket2", "rusqlite", "rustix"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The normal and build dependencies of each member.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().unwrap();
            let normal = all.iter().filter(|dependency| dependency["kind"] != "dev");
            (name(package).replace("levada-", ""), normal.map(name).collect())
        })
        .collect()
}

#[test]
fn imports_follow_the_table() {
    let dependencies = dependencies();
    assert_eq!(dependencies.len(), MAY_IMPORT.len(), "every member stands in the table");
    for (member, allowed) in MAY_IMPORT {
        for dependency in &dependencies[*member] {
            let Some(import) = dependency.strip_prefix("levada-") else { continue };
            assert!(allowed.contains(&import), "{member} must not import {import}");
        }
    }
}

#[test]
fn crates_without_io_import_nothing_that_does_io() {
    let dependencies = dependencies();
    for member in WITHOUT_IO {
        for dependency in &dependencies[*member] {
            assert!(!IO.contains(&dependency.as_str()), "{member} must not import {dependency}");
        }
    }
}

#[test]
fn every_member_but_those_named_takes_the_shared_lints_which_forbid_unsafe() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    for (member, _) in MAY_IMPORT.iter().filter(|(member, _)| !WITH_UNSAFE.contains(member)) {
        let folder = match *member {
            "experiments" => "experiments".to_owned(),
            "lab" | "harness" => format!("experiments/{member}"),
            _ => format!("crates/{member}"),
        };
        let path = root().join(folder).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{}", path.display());
    }
}
