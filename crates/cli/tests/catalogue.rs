//! The catalogue: of a home without a node, of a running node, and of a remote node.

mod http_flood;
mod import;
mod missing;
mod nodes;
mod remote;
mod secure;
mod server;
#[cfg(feature = "engine-tests")]
mod shared;
mod swarm;
mod target;
mod web;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{self, Home, Node, eventually};
use serde_json::Value;

/// A folder of objects as reTHINK's catalogue reads it.
const RETHINK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalogue/tests/rethink/objects");

/// Writes descriptor and package of an object to the home's folder: their paths.
fn files(home: &Home, name: &str, code: &[u8]) -> (String, String) {
    let path = |end: &str| home.path().join(format!("{name}.{end}"));
    let descriptor = path("json");
    let package = path("js");
    fs::write(&descriptor, format!("{{\"objectName\":\"{name}\",\"note\":\"about {name}\"}}"))
        .unwrap();
    fs::write(&package, code).unwrap();
    (descriptor.display().to_string(), package.display().to_string())
}

fn publish(home: &Home, object: &str, more: &[&str]) -> support::Ran {
    let name = object.split(['/', '@']).nth(1).unwrap();
    let (descriptor, package) = files(home, name, format!("code of {object}").as_bytes());
    let words = ["catalogue", "publish", object, &descriptor, "--package", &package];
    home.args([&words[..], more].concat())
}

/// Starts `levada catalogue serve` on free ports of loopback.
fn serve<'a>(home: &'a Home, options: &str) -> Node<'a> {
    home.up_with(&format!("catalogue serve --listen 127.0.0.1:0 --http 127.0.0.1:0 {options}"))
}

/// As [`serve`], for the command `line` and a process that may open at most `files` files.
fn serve_with_files<'a>(home: &'a Home, files: u32, line: &str) -> Node<'a> {
    home.up_with_files(files, &format!("{line} --listen 127.0.0.1:0 --http 127.0.0.1:0"))
}

/// Uses every verb of the catalogue as its owner.
fn use_every_verb(home: &Home) {
    let ran = publish(home, "hyperty/Connector@1.0.0", &[]);
    assert!(ran.stderr.contains("published hyperty/Connector@1.0.0"), "{}", ran.stderr);
    ran.ok();
    let again = publish(home, "hyperty/Connector@1.0.0", &[]);
    assert!(again.stderr.contains("already"), "{}", again.stderr);
    again.ok();
    let (descriptor, _) = files(home, "other", b"");
    let words = ["catalogue", "publish", "hyperty/Connector@1.0.0", &descriptor];
    home.args(words).fails(1, "never changes");
    publish(home, "hyperty/Connector@1.1.0", &[]).ok();
    publish(home, "runtime/Browser@2.0.0", &["--unsigned"]).ok();

    let target = home.path().join("fetched.js");
    let fetched = target.display().to_string();
    let _ = fs::remove_file(&target);
    let words = ["catalogue", "get", "hyperty/Connector@<1.1", "--package", &fetched, "--json"];
    let got: Value = serde_json::from_str(&home.args(words).ok()).unwrap();
    assert_eq!(got["version"], "1.0.0");
    assert_eq!(got["descriptor"]["objectName"], "Connector");
    assert_eq!(got["signed_by"][0], home.identity());
    assert_eq!(fs::read(&target).unwrap(), b"code of hyperty/Connector@1.0.0");
    let again = home.args(words);
    assert!(again.stderr.contains("has not changed"), "{}", again.stderr);
    let words = ["catalogue", "get", "hyperty/Connector", "--package", &fetched];
    assert!(home.args(words).ok().contains("about Connector"));
    assert_eq!(fs::read(&target).unwrap(), b"code of hyperty/Connector@1.1.0");

    let me = home.identity();
    home.run(&format!("catalogue get hyperty/Connector --signed-by {me}")).ok();
    home.run(&format!("catalogue get runtime/Browser --signed-by {me}")).denied("not signed");
    home.run("catalogue get hyperty/Missing").fails(1, "there is no hyperty/Missing");
    home.run("catalogue get hyperty/Connector@>=9").fails(1, "has no version");

    home.run("catalogue yank hyperty/Connector@1.1.0").ok();
    let newest = home.json("catalogue get hyperty/Connector");
    assert_eq!(newest["version"], "1.0.0");
    home.run("catalogue yank hyperty/Connector@1.1.0 --undo").ok();
    let found = home.json("catalogue search about conn");
    assert_eq!(found["objects"][0]["object"], "hyperty/Connector");
    let listed = home.json("catalogue ls runtime");
    assert_eq!(listed["objects"].as_array().unwrap().len(), 1);
    let versions = home.json("catalogue ls hyperty/Connector");
    assert_eq!(versions["objects"].as_array().unwrap().len(), 2);
    let changes = home.run("catalogue watch --after 0 --once --type hyperty").ok();
    let events: Vec<_> = changes.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(events, ["published", "published", "yanked", "unyanked"]);
    let log = home.json("catalogue log --limit 1");
    assert_eq!(log["log"][0]["action"], "unyank");
    home.run("catalogue gc --grace 1h").ok();
    let verified = home.json("catalogue verify");
    assert_eq!(verified["findings"].as_array().unwrap().len(), 0);
    assert_eq!(verified["packages"], 3);
    let reading = [
        "ls",
        "ls hyperty/Connector",
        "search about",
        "log",
        "verify",
        "gc",
        "get runtime/Browser",
    ];
    for line in reading {
        let printed = home.run(&format!("catalogue {line} --json")).ok();
        assert_eq!(printed.lines().count(), 1, "{line}: {printed}");
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["schema"], 2, "{line}");
    }
}

#[test]
fn a_catalogue_is_usable_without_a_node() {
    let home = Home::new();
    use_every_verb(&home);
    // A node that is started later serves the same catalogue.
    let node = home.up("");
    let listed = home.json("catalogue ls hyperty");
    assert_eq!(listed["objects"][0]["version"], "1.1.0");
    drop(node);
    // `verify` reports a damaged package by its exit code.
    let blobs = home.path().join("catalogue/blobs");
    let blob = first_file(&blobs);
    fs::write(&blob, "something else").unwrap();
    let verified = home.run("catalogue verify");
    assert_eq!(verified.code, 1);
    assert!(verified.stdout.contains("is damaged"), "{}", verified.stdout);
}

/// The first file in the folders below `folder`.
fn first_file(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    files.map(|entry| entry.unwrap().path()).find(|path| path.is_file()).unwrap()
}

#[test]
fn a_running_node_serves_its_catalogue_to_its_owner_and_by_http() {
    let home = Home::new();
    let node = serve(&home, "--name shelf");
    assert_eq!(home.json("status")["services"], serde_json::json!(["catalogue"]));
    home.run("up").fails(120, "uses this home");
    use_every_verb(&home);
    let newest = || node.http("/v1/objects/hyperty/Connector/latest/meta").1;
    eventually("the index has it", || newest().contains("\"1.1.0\""));
    let (status, body) = node.http("/v1/objects/hyperty/Connector/latest");
    assert_eq!((status, body.contains("about Connector")), (200, true));
    assert_eq!(node.http("/v1/objects/hyperty/Missing").0, 404);
    // An unauthorised client reads by HTTP, and checks the signatures.
    let outsider = Home::new();
    let place = format!("http://{}", node.http_address());
    let target = outsider.path().join("got.js").display().to_string();
    let words =
        ["catalogue", "get", "hyperty/Connector@^1", "--from", &place, "--package", &target];
    let owner = home.identity();
    let signed = [&words[..], &["--signed-by", &owner]].concat();
    assert!(outsider.args(&signed).ok().contains("about Connector"));
    assert_eq!(fs::read(&target).unwrap(), b"code of hyperty/Connector@1.1.0");
    let again = outsider.args(&signed);
    assert!(again.stderr.contains("has not changed"), "{}", again.stderr);
    let me = outsider.identity();
    outsider.args([&words[..], &["--signed-by", &me]].concat()).denied("not signed");
    let words = ["catalogue", "get", "hyperty/Missing", "--from", &place];
    outsider.args(words).fails(1, "no hyperty");
    outsider
        .args(["catalogue", "get", "hyperty/a", "--from", "http://127.0.0.1:1"])
        .fails(122, "unreachable");
    assert_eq!(node.http("/healthz"), (200, "ok\n".into()));
    assert_eq!(node.http("/readyz").0, 200);
    let (_, metrics) = node.http("/metrics");
    assert!(metrics.contains("levada_catalogue_objects{kind=\"hyperty\"} 1"), "{metrics}");
    assert!(metrics.contains("levada_connections 0") && metrics.ends_with("# EOF\n"), "{metrics}");
    // The node has published its own service, signed with its own key.
    let name = format!("service/{}.catalogue", home.identity());
    let own = home.json(&format!("catalogue get {name} --signed-by {}", home.identity()));
    assert_eq!(own["descriptor"]["nodeName"], "shelf");
    assert_eq!(own["publisher"], home.identity());
}

#[test]
fn published_objects_survive_a_killed_node() {
    let home = Home::new();
    let node = serve(&home, "");
    publish(&home, "hyperty/One@1.0.0", &[]).ok();
    node.kill();
    let found = home.json("catalogue get hyperty/One");
    assert_eq!(found["version"], "1.0.0");
    let verified = home.json("catalogue verify");
    assert_eq!(verified["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn a_node_without_a_catalogue_says_how_to_get_one() {
    let home = Home::new();
    let _node = home.up("");
    home.run("catalogue ls").fails(120, "catalogue = true");
}

#[test]
fn simultaneous_commands_of_one_home_wait_for_each_other() {
    let home = Home::new();
    let objects = ["hyperty/one@1.0.0", "hyperty/two@1.0.0", "hyperty/three@1.0.0"];
    std::thread::scope(|scope| {
        for object in objects {
            let home = &home;
            scope.spawn(move || publish(home, object, &[]).ok());
        }
    });
    assert_eq!(home.json("catalogue ls")["objects"].as_array().unwrap().len(), objects.len());
}

#[test]
fn publish_warns_of_objects_that_rethink_clients_cannot_read() {
    let home = Home::new();
    let file = home.path().join("descriptor.json");
    let descriptor = file.display().to_string();
    let code = home.path().join("code.js");
    fs::write(&code, "code").unwrap();
    let package = ["--package", code.to_str().unwrap()];
    let mandatory =
        r#""cguid": "1", "type": "t", "version": "1.0", "language": "json", "description": "d""#;
    for (text, options, warning) in [
        (format!(r#"{{"objectName": "A", {mandatory}}}"#), &[][..], "no package"),
        (r#"{"objectName": "A"}"#.to_owned(), &package, "is missing"),
        (format!(r#"{{"objectName": "B", {mandatory}}}"#), &package, "`objectName`"),
        (format!(r#"{{"objectName": "A", {mandatory}}}"#), &package, ""),
    ] {
        fs::write(&file, &text).unwrap();
        let words =
            ["catalogue", "publish", "dataschema/A@1.0.0", &descriptor, "--dry-run", "--json"];
        let ran = home.args([&words[..], options].concat());
        assert_eq!(ran.stderr.contains("warning"), !warning.is_empty(), "{ran:?}");
        assert!(ran.stderr.contains(warning) && ran.stderr.contains("would publish"), "{ran:?}");
        let printed: Value = serde_json::from_str(&ran.ok()).unwrap();
        assert_eq!(printed["warnings"].as_array().unwrap().len(), usize::from(!warning.is_empty()));
        assert_eq!((&printed["dry_run"], &printed["changed"]), (&true.into(), &true.into()));
        assert_eq!(printed["signed_by"][0], home.identity());
    }
    home.run("catalogue ls").fails(120, "has no catalogue");
    // reTHINK clients do not read services: no warning.
    let quiet = home.args(["catalogue", "publish", "service/A@1.0.0", &descriptor]);
    assert!(!quiet.stderr.contains("warning"), "{quiet:?}");
    quiet.ok();
    let words = ["catalogue", "publish", "dataschema/A@1.0.0", &descriptor, "--json"];
    let publish = |more: &[&str]| home.args([&words[..], &package, more].concat());
    let printed: Value = serde_json::from_str(&publish(&[]).ok()).unwrap();
    assert_eq!((&printed["changed"], &printed["object"]), (&true.into(), &"dataschema/A".into()));
    let again: Value = serde_json::from_str(&publish(&[]).ok()).unwrap();
    assert_eq!((&again["changed"], &again["revision"]), (&false.into(), &printed["revision"]));
    publish(&["--unsigned", "--dry-run"]).fails(1, "other content");
    let yanked = home.json("catalogue yank dataschema/A@1.0.0");
    assert_eq!((&yanked["yanked"], &yanked["changed"]), (&true.into(), &true.into()));
    let back = home.json("catalogue yank dataschema/A@1.0.0 --undo");
    assert_eq!((&back["yanked"], &back["changed"]), (&false.into(), &true.into()));
    let export = home.path().join("export").display().to_string();
    let written = home.json(&format!("catalogue export {export}"));
    assert_eq!((&written["versions"], &written["packages"]), (&2.into(), &1.into()));
}

#[test]
fn an_invalid_object_is_refused_with_a_reason() {
    let home = Home::new();
    let bad = home.path().join("bad.json");
    let path = bad.display().to_string();
    for (text, says) in
        [("[1]", "not an object"), ("{", "well-formed"), ("{\"a\":1,\"a\":2}", "twice")]
    {
        fs::write(&bad, text).unwrap();
        home.args(["catalogue", "publish", "hyperty/x@1.0.0", &path]).fails(2, says);
    }
    home.args(["catalogue", "publish", "hyperty/x@one", &path]).fails(2, "not a version");
    home.args(["catalogue", "publish", "thing/x@1.0.0", &path]).fails(2, "unknown type");
    home.args(["catalogue", "publish", "hyperty/../x@1.0.0", &path]).fails(2, "name");
    home.args(["catalogue", "publish", "hyperty/x@1.0.0", "/nowhere.json"]).fails(120, "/nowhere");
    home.run("catalogue ls").fails(120, "has no catalogue");
}
