//! The catalogue between real processes: of a home without a node, of a running node, and of another's.

#![allow(clippy::unwrap_used)] // What a test cannot do, it fails with.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use support::{Home, Node, eventually};

/// What a guest may do at the hub beside reading.
const RULES: &str = "name = 'catalogue'\ntype = 'catalogue'\nrules = ['write hyperty/acme.*', 'yank hyperty/acme.*', 'write service/*', 'yank service/*']\n";

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

/// A node whose catalogue others may write to, as [`RULES`] say.
fn hub<'a>(home: &'a Home, options: &str) -> Node<'a> {
    let file = home.path().join("service.toml");
    fs::write(&file, RULES).unwrap();
    home.up(&format!("--name hub --service {} {options}", file.display()))
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
    let node = home.up_with("catalogue serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --name shelf");
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
    let place = format!("http://{}", home.json("status")["http"].as_str().unwrap());
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
    let node = home.up_with("catalogue serve --listen 127.0.0.1:0 --http 127.0.0.1:0");
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
fn others_read_and_write_what_the_configuration_and_their_capability_allow() {
    let (home, alice, bob) = (Home::new(), Home::new(), Home::new());
    let node = hub(&home, "");
    node.welcome(&alice, "hub");
    let at = ["--at", "hub/catalogue"];
    publish(&alice, "hyperty/acme.one@1.0.0", &at).ok();
    publish(&alice, "hyperty/acme.two@1.0.0", &at).ok();
    publish(&alice, "hyperty/other@1.0.0", &at).denied("no right to write hyperty/other");
    let one = home.json("catalogue get hyperty/acme.one");
    assert_eq!(one["publisher"], alice.identity());
    assert_eq!(one["signed_by"][0], alice.identity());
    alice.run("catalogue verify --at hub/catalogue").denied("no right");
    alice.run("catalogue gc --at hub/catalogue").denied("no right");

    // A stranger gets nothing without a capability, and with one what stands in it.
    let there = format!("{}/catalogue", node.at());
    bob.args(["catalogue", "ls", "--at", &there]).denied("may not request");
    let whole = alice.args(["request", "hub/catalogue", "--uses", "9"]).ok();
    let to = bob.identity();
    let grant = |rules: &[&str]| {
        let words = ["grant", &whole, "--to", &to, "--rights", "x", "--"];
        alice.args([&words[..], rules].concat()).ok()
    };
    let narrow = grant(&["read hyperty/acme.one", "yank hyperty/acme.one"]);
    let listed: Value =
        serde_json::from_str(&bob.args(["catalogue", "ls", "--json", "--at", &narrow]).ok())
            .unwrap();
    let objects = listed["objects"].as_array().unwrap();
    assert_eq!(objects.len(), 1, "{listed}");
    assert_eq!(objects[0]["object"], "hyperty/acme.one");
    bob.args(["catalogue", "get", "hyperty/acme.two", "--at", &narrow]).denied("no right to read");
    publish(&bob, "hyperty/acme.one@2.0.0", &["--at", &narrow]).denied("no right to write");
    bob.args(["catalogue", "yank", "hyperty/acme.one@1.0.0", "--at", &narrow]).ok();
    // No link gives more than the configuration.
    let wide = grant(&["write runtime/*"]);
    bob.args(["catalogue", "ls", "--at", &wide]).denied("more than this service gives");
    alice.args(["request", "hub/catalogue", "--", "own */*"]).denied("is no rule");
}

#[test]
fn changes_reach_those_who_watch_from_afar() {
    let (home, alice) = (Home::new(), Home::new());
    let node = hub(&home, "");
    node.welcome(&alice, "hub");
    let words = "catalogue watch --type hyperty --json --at hub/catalogue --after 0";
    let mut command = alice.command(words.split(' '));
    let mut watcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    for number in 0..3 {
        let object = format!("hyperty/thing{number}@1.0.0");
        publish(&home, &object, &[]).ok();
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["object"], format!("hyperty/thing{number}"));
        assert_eq!(line["event"], "published");
    }
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn a_long_package_comes_back_whole_and_a_cut_download_goes_on() {
    let (home, alice) = (Home::new(), Home::new());
    let node = hub(&home, "");
    node.welcome(&alice, "hub");
    let code: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    let (descriptor, package) = files(&alice, "acme.long", &code);
    let object = "hyperty/acme.long@1.0.0";
    let words = ["catalogue", "publish", object, &descriptor, "--package", &package];
    let ran = alice.args([&words[..], &["--at", "hub/catalogue"]].concat());
    // No bar where there is no terminal.
    assert!(!ran.stderr.contains('['), "{}", ran.stderr);
    ran.ok();
    let about = alice.json("catalogue get hyperty/acme.long --at hub/catalogue");
    let digest = about["package"]["digest"].as_str().unwrap();
    let target = alice.path().join("got.js");
    let digits = &digest["sha256:".len()..][..16];
    let part = alice.path().join(format!("got.js.{digits}.part"));
    // As if it had been cut off in the middle; and once with something wrong.
    for (beginning, code_of_it) in [(&code[..2_000_000], 0), (&[1; 2_000_000][..], 123)] {
        let _ = fs::remove_file(&target);
        fs::write(&part, beginning).unwrap();
        let path = target.display().to_string();
        let words = ["catalogue", "get", object, "--package", &path, "--at", "hub/catalogue"];
        assert_eq!(alice.args(words).code, code_of_it);
        assert!(!part.exists());
        assert_eq!(target.exists(), code_of_it == 0);
    }
    let path = target.display().to_string();
    let words = ["catalogue", "get", object, "--package", &path, "--at", "hub/catalogue"];
    alice.args(words).ok();
    assert!(fs::read(&target).unwrap() == code);
}

#[test]
fn an_imported_folder_comes_out_again_as_it_was_shown() {
    let (home, other) = (Home::new(), Home::new());
    let objects = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalogue/tests/original/objects");
    let ran = home.args(["catalogue", "import", objects]);
    assert!(ran.stderr.contains("skipped") && ran.stderr.contains("BadJson"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    ran.ok();
    // Once more, nothing is new.
    let again = home.args(["catalogue", "import", objects]);
    assert!(again.stderr.contains("published 0"), "{}", again.stderr);
    let export = other.path().join("export").display().to_string();
    home.args(["catalogue", "export", &export]).ok();
    home.args(["catalogue", "export", &export]).fails(120, "is not empty");
    other.args(["catalogue", "import", &export]).ok();
    let node = home.up_with("catalogue serve --listen 127.0.0.1:0 --http 127.0.0.1:0");
    let copied = other.up_with("catalogue serve --listen 127.0.0.1:0 --http 127.0.0.1:0");
    for path in [
        "/.well-known/hyperty",
        "/.well-known/hyperty/Connector",
        "/.well-known/sourcepackage/Connector",
    ] {
        assert_eq!(node.http(path), copied.http(path), "{path}");
        assert_eq!(node.http(path).0, 200, "{path}");
    }
    home.args(["catalogue", "import", "/nowhere"]).fails(120, "/nowhere");
}

#[test]
fn an_export_has_every_version_and_comes_back_as_it_was() {
    let (home, other) = (Home::new(), Home::new());
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        publish(&home, &format!("hyperty/One@{version}"), &[]).ok();
    }
    publish(&home, "service/Two@1.0.0", &["--unsigned"]).ok();
    home.run("catalogue yank hyperty/One@2.0.0").ok();
    home.run("catalogue yank service/Two@1.0.0").ok();
    let export = home.path().join("export");
    let folder = export.display().to_string();
    let ran = home.args(["catalogue", "export", &folder]);
    assert!(ran.stderr.contains("versions written: 4"), "{}", ran.stderr);
    ran.ok();
    for _ in 0..2 {
        other.args(["catalogue", "import", &folder]).ok();
    }
    let versions = |home: &Home, object: &str| {
        let listed = home.json(&format!("catalogue ls {object}"))["objects"].take();
        let mut listed = listed.as_array().unwrap().clone();
        for one in &mut listed {
            // Of the catalogue, not of the version.
            for key in ["published", "revision"] {
                one[key].take();
            }
        }
        listed
    };
    for (object, count) in [("hyperty/One", 3), ("service/Two", 1)] {
        let found = versions(&home, object);
        assert_eq!(found.len(), count);
        assert_eq!(found, versions(&other, object));
    }
    assert_eq!(versions(&other, "hyperty/One")[2]["yanked"], true);
    let me = home.identity();
    let target = other.path().join("got.js").display().to_string();
    let words = ["catalogue", "get", "hyperty/One", "--signed-by", &me, "--package", &target];
    other.args(words).ok();
    assert_eq!(fs::read(&target).unwrap(), b"code of hyperty/One@1.1.0");
    // What was changed on its way is left out.
    let third = Home::new();
    fs::write(export.join("hyperty/One/1.1.0/descriptor.json"), "{}").unwrap();
    let ran = third.args(["catalogue", "import", &folder]);
    assert!(ran.stderr.contains("published 3, there already 0, skipped 1"), "{}", ran.stderr);
    ran.ok();
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
fn ls_shows_what_is_on_the_network_and_what_is_in_catalogues() {
    let (home, well, alice) = (Home::new(), Home::new(), Home::new());
    let node = hub(&home, "--no-announce");
    node.welcome(&well, "hub");
    node.welcome(&alice, "hub");
    fs::write(well.path().join("config.toml"), "publish_in = ['hub/catalogue']\n").unwrap();
    fs::write(alice.path().join("config.toml"), "catalogues = ['hub/catalogue']\n").unwrap();
    let away = well.up("--name well --no-announce");
    let services = |home: &Home| {
        let listed = home.json("ls");
        let published = listed["published"].as_array().unwrap().clone();
        let it = published.into_iter().find(|node| node["identity"] == well.identity());
        it.map(|node| (node["catalogue"].clone(), node["services"].as_array().unwrap().len()))
    };
    eventually("it is published", || services(&alice) == Some(("hub/catalogue".into(), 2)));
    drop(away);
    // It is gone from the network, and the catalogue still knows of it.
    assert!(alice.sees(&well.identity()).is_null());
    // A catalogue that does not answer in two seconds is left out.
    eventually("the table has it", || {
        let table = alice.run("ls --type echo").ok();
        let line = table.lines().find(|line| line.starts_with("well"));
        line.is_some_and(|line| line.contains("published") && line.ends_with("hub/catalogue"))
    });
    // What a node does not offer any more, it takes back.
    let config = "publish_in = ['hub/catalogue']\n[[service]]\nname = 'only'\ntype = 'echo'\n";
    fs::write(well.path().join("config.toml"), config).unwrap();
    let _back = well.up("--name well --no-announce");
    eventually("the others are gone", || services(&alice) == Some(("hub/catalogue".into(), 1)));
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
