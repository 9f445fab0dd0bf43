//! The rules of ARCHITECTURE.md about crates: permitted imports, no I/O in some, no unsafe code in
//! most.

mod imports;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands for all crates in the rows above.
const ABOVE: &str = "*";

/// For each crate, the crates of this workspace that it may import.
const MAY_IMPORT: &[(&str, &str)] = &[
    ("core", ""),
    ("capability", "core"),
    ("channel", "core"),
    ("transport", ""),
    ("ring", ""),
    ("monitor", "ring"),
    // A shared library of its own: no crate imports it.
    ("preload", "ring"),
    ("session", "core channel transport"),
    ("contexts", "core channel transport session"),
    ("discovery", "core"),
    ("swarm", "core session"),
    ("database", ""),
    ("home", "core capability database"),
    ("service", "core capability session contexts"),
    (
        "client",
        "core capability channel transport session contexts discovery database home service",
    ),
    ("catalogue", "core capability database"),
    (
        "services",
        "core capability channel transport session contexts home catalogue service client swarm",
    ),
    ("config", "core home catalogue service services"),
    ("node", ABOVE),
    ("cli", ABOVE),
    // For tests: permitted as a dev-dependency only.
    ("faultfs", ""),
    // A model without a product: nothing imports it.
    ("formal", ""),
    // Experiments: nothing imports them.
    ("lab", ""),
    ("harness", ""),
    (
        "experiments",
        "core catalogue channel transport ring session contexts swarm home service services client config node lab harness",
    ),
];

/// For each room (top-level module) of `services`, the rooms that it may import.
const ROOMS: &[(&str, &[&str])] = &[
    ("brokering", &[]),
    // Long packages are shared.
    ("catalogue", &["swarm"]),
    ("clock", &[]),
    // Windows are shown by programs (xpra), which `exec::program` starts and ends.
    ("desktop", &["exec"]),
    ("echo", &[]),
    ("exec", &[]),
    ("forward", &[]),
    // The local origin listens as `forward` does, also at Unix sockets.
    ("http", &["forward"]),
    // A middlebox reads the heads that `http` writes.
    ("middlebox", &["http"]),
    ("swarm", &[]),
];

/// Modules of `services` that name every room.
const OF_ALL_ROOMS: &[&str] = &["lib", "registry"];

/// Crates with lints of their own, which require a SAFETY comment at each block: for system calls
/// that no library wraps, memory that another process writes, and a table of C functions.
const WITH_UNSAFE: &[&str] = &["transport", "ring", "preload", "faultfs"];
/// Files of the command line that may import the server (`node`): those of verbs that run a node,
/// or work on its files while no node runs. All other verbs are clients.
const VERBS_WITH_NODE: &[&str] = &[
    "up",
    "share",
    "doctor",
    // `access test` and `access explain` read a configuration as a node does.
    "access/explain",
    "access/lines",
    "access/test",
    "backup",
    "restore",
    "id/rotate",
    // `catalogue serve` runs a node.
    "catalogue/maintenance",
    // While no node runs, verbs of the catalogue open it themselves, after an interrupted restore
    // was completed.
    "catalogue/own_store",
];

/// Crates that do no I/O, and must not import [`IO`].
const WITHOUT_IO: &[&str] = &["core", "capability", "channel"];
const IO: &[&str] = &["tokio", "socket2", "rusqlite", "rustix"];

/// Crates whose files may import each other in cycles.
const WITH_CYCLES: &[&str] = &["preload"];

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
    assert_eq!(dependencies.len(), MAY_IMPORT.len(), "every member is in the table");
    for (row, (member, allowed)) in MAY_IMPORT.iter().enumerate() {
        for dependency in &dependencies[*member] {
            let Some(import) = dependency.strip_prefix("levada-") else { continue };
            let fits = match *allowed {
                ABOVE => MAY_IMPORT[..row].iter().any(|(above, _)| *above == import),
                names => names.split(' ').any(|name| name == import),
            };
            assert!(fits, "{member} must not import {import}");
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
fn every_crate_takes_the_shared_lints_except_those_with_unsafe_code() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    for (member, _) in MAY_IMPORT.iter().filter(|(member, _)| !WITH_UNSAFE.contains(member)) {
        let folder = match *member {
            "experiments" => "experiments".to_owned(),
            "formal" => "formal".to_owned(),
            "lab" | "harness" => format!("experiments/{member}"),
            _ => format!("crates/{member}"),
        };
        let path = root().join(folder).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{}", path.display());
    }
}

/// The Rust files below `folder`, with their paths relative to it.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(folder).unwrap().to_owned(), text));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// The room that a file of `services` belongs to.
fn room_of(path: &Path) -> String {
    let first = path.components().next().unwrap();
    Path::new(&first).with_extension("").to_string_lossy().into_owned()
}

/// The top-level modules that `text` names after `crate::`, in imports and elsewhere, nested lists
/// included.
fn imported_rooms(text: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut rooms = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let Some(list) = rest.trim_start().strip_prefix('{') else {
            rooms.push(word(rest));
            continue;
        };
        let mut depth = 0;
        let items = list.split(|c: char| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth < 0 || (depth == 0 && c == ',')
        });
        rooms.extend(items.take_while(|item| !item.contains(';')).map(word));
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

#[test]
fn rooms_of_services_import_only_the_rooms_in_the_table() {
    let table: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let mut seen = std::collections::BTreeSet::new();
    for (path, text) in sources(&root().join("crates/services/src")) {
        let room = room_of(&path);
        if OF_ALL_ROOMS.contains(&room.as_str()) {
            continue;
        }
        let allowed = table.get(room.as_str());
        let allowed = allowed.unwrap_or_else(|| panic!("{room} stands in the table"));
        for import in imported_rooms(&text) {
            let fits = import == room || allowed.contains(&import.as_str());
            assert!(fits, "{}: {room} must not import {import}", path.display());
        }
        seen.insert(room);
    }
    assert!(seen.iter().map(String::as_str).eq(table.keys().copied()), "{seen:?}");
}

#[test]
fn imports_of_rooms_are_found_in_every_form() {
    let text = "use crate::exec::program;\nuse crate::{desktop::{a, b}, forward};\n\
                fn f() { crate::echo::g(1, 2); }\nuse crate::{\n    clock,\n};\n";
    assert_eq!(imported_rooms(text), ["exec", "desktop", "forward", "echo", "clock"]);
}

#[test]
fn only_verbs_that_run_a_node_import_it() {
    for (path, text) in sources(&root().join("crates/cli/src")) {
        let imports = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains("levada_node::") && !code.contains('"')
        });
        let is_allowed = VERBS_WITH_NODE.iter().any(|verb| {
            let verb = Path::new("commands").join(verb);
            path == verb.with_extension("rs") || path.starts_with(&verb)
        });
        assert!(is_allowed || !imports, "{} must not import `node`", path.display());
    }
}

#[test]
fn x11_is_used_by_the_room_desktop_only() {
    for (path, text) in sources(&root().join("crates/services/src")) {
        assert!(room_of(&path) == "desktop" || !text.contains("x11rb"), "{}", path.display());
    }
    let dependencies = dependencies();
    let users = dependencies.iter().filter(|(_, of)| of.iter().any(|name| name == "x11rb"));
    let users: Vec<&str> = users.map(|(member, _)| member.as_str()).collect();
    // Experiments take pictures of screens.
    assert!(users.iter().all(|member| ["services", "experiments"].contains(member)), "{users:?}");
}

#[test]
fn files_do_not_import_each_other_in_cycles() {
    let mut found = Vec::new();
    for (member, _) in MAY_IMPORT.iter().filter(|(member, _)| !WITH_CYCLES.contains(member)) {
        let folder = root().join("crates").join(member).join("src");
        if !folder.exists() {
            continue;
        }
        for cycle in imports::cycles(&imports::of_crate(&folder)) {
            let names: Vec<String> = cycle.iter().map(|module| module.join("/")).collect();
            found.push(format!("{member}: {}", names.join(", ")));
        }
    }
    assert!(found.is_empty(), "these files import each other:\n{}", found.join("\n"));
}

#[test]
fn only_the_drivers_of_contexts_do_io() {
    for (path, text) in sources(&root().join("crates/contexts/src")) {
        let is_driver = path.starts_with("driver") || path == Path::new("driver.rs");
        let does_io = IO.iter().any(|name| text.contains(&format!("{name}::")));
        assert!(is_driver || !does_io, "{} must not do I/O", path.display());
    }
}
