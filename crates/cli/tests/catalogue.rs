//! The catalogue between real processes: of a home without a node, of a running node, and of another's.

mod http_flood;
mod import;
mod remote;
mod secure;
mod server;
mod web;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{self, Home, Node, eventually};
use serde_json::Value;

/// An original's folder.
const RETHINK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalogue/tests/rethink/objects");

/// An object's files in the folder of a home.
fn files(home: &Home, name: &str, code: &[u8]) -> (String, String) {
    let path = |end: &str| home.path().join(format!("{name}.{end}"));
    let (descriptor, package) = (path("json"), path("js"));
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

/// A catalogue on free ports of loopback, alone.
fn serve<'a>(home: &'a Home, options: &str) -> Node<'a> {
    home.up_with(&format!("catalogue serve --listen 127.0.0.1:0 --http 127.0.0.1:0 {options}"))
}

/// As [`serve`], or a node, that may have so many files open.
fn serve_with_files<'a>(home: &'a Home, files: u32, line: &str) -> Node<'a> {
    home.up_with_files(files, &format!("{line} --listen 127.0.0.1:0 --http 127.0.0.1:0"))
}

/// Everything that one may do with a catalogue of one's own.
fn use_it(home: &Home) {
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
    home.run("catalogue get hyperty/Nobody").fails(1, "there is no hyperty/Nobody");
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
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["schema"], 1, "{line}");
    }
}

#[test]
fn a_home_without_a_node_has_its_catalogue_to_itself() {
    let home = Home::new();
    use_it(&home);
    // The node that is started later keeps it.
    let node = home.up("");
    let listed = home.json("catalogue ls hyperty");
    assert_eq!(listed["objects"][0]["version"], "1.1.0");
    drop(node);
    // Damage is found, and told of by the exit code.
    let blobs = home.path().join("catalogue/blobs");
    let blob = first_file(&blobs);
    fs::write(&blob, "something else").unwrap();
    let verified = home.run("catalogue verify");
    assert_eq!(verified.code, 1);
    assert!(verified.stdout.contains("is damaged"), "{}", verified.stdout);
}

/// A blob: a file two folders down.
fn first_file(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    files.map(|entry| entry.unwrap().path()).find(|path| path.is_file()).unwrap()
}

#[test]
fn a_running_node_does_the_same_for_its_owner_and_serves_it_by_http() {
    let home = Home::new();
    let node = serve(&home, "--name shelf");
    assert_eq!(home.json("status")["services"], serde_json::json!(["catalogue"]));
    home.run("up").fails(120, "uses this home");
    use_it(&home);
    let newest = || node.http("/v1/objects/hyperty/Connector/latest/meta").1;
    eventually("the index has it", || newest().contains("\"1.1.0\""));
    let (status, body) = node.http("/v1/objects/hyperty/Connector/latest");
    assert_eq!((status, body.contains("about Connector")), (200, true));
    assert_eq!(node.http("/v1/objects/hyperty/Nobody").0, 404);
    // A stranger reads by HTTP what is open, and checks it as well.
    let stranger = Home::new();
    let place = format!("http://{}", node.http_address());
    let target = stranger.path().join("got.js").display().to_string();
    let words =
        ["catalogue", "get", "hyperty/Connector@^1", "--from", &place, "--package", &target];
    let owner = home.identity();
    let signed = [&words[..], &["--signed-by", &owner]].concat();
    assert!(stranger.args(&signed).ok().contains("about Connector"));
    assert_eq!(fs::read(&target).unwrap(), b"code of hyperty/Connector@1.1.0");
    let again = stranger.args(&signed);
    assert!(again.stderr.contains("has not changed"), "{}", again.stderr);
    let me = stranger.identity();
    stranger.args([&words[..], &["--signed-by", &me]].concat()).denied("not signed");
    let words = ["catalogue", "get", "hyperty/Nobody", "--from", &place];
    stranger.args(words).fails(1, "no hyperty");
    stranger
        .args(["catalogue", "get", "hyperty/a", "--from", "http://127.0.0.1:1"])
        .fails(122, "unreachable");
    assert_eq!(node.http("/healthz"), (200, "ok\n".into()));
    assert_eq!(node.http("/readyz").0, 200);
    let (_, metrics) = node.http("/metrics");
    assert!(metrics.contains("levada_catalogue_objects{kind=\"hyperty\"} 1"), "{metrics}");
    assert!(metrics.contains("levada_connections 0") && metrics.ends_with("# EOF\n"), "{metrics}");
    // Its own service is in it, signed with its own key.
    let name = format!("service/{}.catalogue", home.identity());
    let own = home.json(&format!("catalogue get {name} --signed-by {}", home.identity()));
    assert_eq!(own["descriptor"]["nodeName"], "shelf");
    assert_eq!(own["publisher"], home.identity());
}

#[test]
fn what_was_published_survives_a_node_that_is_killed() {
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
fn commands_of_one_home_wait_for_each_other() {
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
fn what_clients_of_the_original_will_not_see_is_said_when_it_is_published() {
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
        let said: Value = serde_json::from_str(&ran.ok()).unwrap();
        assert_eq!(said["warnings"].as_array().unwrap().len(), usize::from(!warning.is_empty()));
        assert_eq!((&said["dry_run"], &said["changed"]), (&true.into(), &true.into()));
        assert_eq!(said["signed_by"][0], home.identity());
    }
    assert_eq!(home.run("catalogue ls").ok(), "");
    // A service is not meant for them.
    let quiet = home.args(["catalogue", "publish", "service/A@1.0.0", &descriptor]);
    assert!(!quiet.stderr.contains("warning"), "{quiet:?}");
    quiet.ok();
    let words = ["catalogue", "publish", "dataschema/A@1.0.0", &descriptor, "--json"];
    let publish = |more: &[&str]| home.args([&words[..], &package, more].concat());
    let said: Value = serde_json::from_str(&publish(&[]).ok()).unwrap();
    assert_eq!((&said["changed"], &said["object"]), (&true.into(), &"dataschema/A".into()));
    let again: Value = serde_json::from_str(&publish(&[]).ok()).unwrap();
    assert_eq!((&again["changed"], &again["revision"]), (&false.into(), &said["revision"]));
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
fn what_cannot_be_published_is_refused_in_words() {
    let home = Home::new();
    let bad = home.path().join("bad.json");
    let path = bad.display().to_string();
    for (text, says) in
        [("[1]", "not an object"), ("{", "well-formed"), ("{\"a\":1,\"a\":2}", "twice")]
    {
        fs::write(&bad, text).unwrap();
        home.args(["catalogue", "publish", "hyperty/x@1.0.0", &path]).fails(2, says);
    }
    home.args(["catalogue", "publish", "hyperty/x@1", &path]).fails(2, "no version");
    home.args(["catalogue", "publish", "thing/x@1.0.0", &path]).fails(2, "no type");
    home.args(["catalogue", "publish", "hyperty/../x@1.0.0", &path]).fails(2, "name");
    home.args(["catalogue", "publish", "hyperty/x@1.0.0", "/nowhere.json"]).fails(120, "/nowhere");
    assert_eq!(home.run("catalogue ls").ok(), "");
}
