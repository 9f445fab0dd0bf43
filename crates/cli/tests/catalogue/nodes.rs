//! A catalogue on several nodes: a command goes on at the next node if one fails. The nodes have
//! the content of one export, which suffices for readers; `levada-catalogue` tests the log that
//! nodes share.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::{files, first_file, publish};
use crate::support::forward::noise;
use crate::support::{Home, Node, Ran, eventually, own_loopback, own_name};

const RULES: &str = "[[service]]\nname = 'catalogue'\ntype = 'catalogue'\nrules = ['write hyperty/acme.*', \
    'write service/*', 'yank service/*']\n";
const BOTH: &str = "one/catalogue,two/catalogue";
const OBJECT: &str = "hyperty/acme.one@1.0.0";
const CODE: &[u8] = b"code of hyperty/acme.one@1.0.0";

/// A home with the content of one export, made by [`export`].
fn copy(folder: &str) -> Home {
    let home = Home::new();
    home.args(["catalogue", "import", folder]).ok();
    home
}

/// The folder of an export in `home`, with [`OBJECT`].
fn export(home: &Home) -> String {
    publish(home, OBJECT, &[]).ok();
    let folder = home.path().join("export").display().to_string();
    home.args(["catalogue", "export", &folder]).ok();
    folder
}

/// A node whose address stays the same when it is started again.
fn hub<'a>(home: &'a Home, name: &str, config: &str) -> Node<'a> {
    fs::write(home.path().join("config.toml"), format!("{RULES}{config}")).unwrap();
    let address = own_loopback();
    home.up_with(&format!("up --name {name} --no-announce --listen {address}:5382"))
}

/// Runs `levada catalogue WORDS --at BOTH`.
fn at_both(home: &Home, words: &[&str]) -> Ran {
    home.args([&["catalogue"], words, &["--at", BOTH]].concat())
}

/// Repeats a command, which must succeed each time, until the random order has made it report
/// `text`. Returns the standard output, which is the same each time.
#[track_caller]
fn succeeds_until(text: &str, mut run: impl FnMut() -> Ran) -> String {
    let mut first = None;
    eventually(text, || {
        let ran = run();
        let has_text = ran.stderr.contains(text);
        let output = ran.ok();
        assert_eq!(*first.get_or_insert_with(|| output.clone()), output);
        has_text
    });
    first.unwrap()
}

/// Repeats a command until it fails with `code`, and returns its standard error. An attempt that
/// succeeds has asked the other node.
#[track_caller]
fn fails_at_last(code: i32, mut run: impl FnMut() -> Ran) -> String {
    let mut text = String::new();
    eventually("it fails", || {
        let ran = run();
        assert!([0, code].contains(&ran.code), "{ran:?}");
        text = ran.stderr;
        ran.code == code
    });
    text
}

#[test]
fn reads_spread_over_the_nodes_and_go_on_when_one_is_stopped() {
    let source = Home::new();
    let alice = Home::new();
    let folder = export(&source);
    let homes = [copy(&folder), copy(&folder)];
    let [one, two] = [hub(&homes[0], "one", ""), hub(&homes[1], "two", "")];
    one.welcome(&alice, "one");
    two.welcome(&alice, "two");
    // Each node publishes its own services in its catalogue, which tells the nodes apart.
    let mut seen = BTreeSet::new();
    eventually("both nodes are asked", || {
        seen.insert(at_both(&alice, &["ls", "service"]).ok());
        seen.len() == 2
    });
    let target = alice.path().join("got.js");
    let path = target.display().to_string();
    let signer = source.identity();
    let get = || {
        let _ = fs::remove_file(&target);
        let ran = at_both(&alice, &["get", OBJECT, "--package", &path, "--signed-by", &signer]);
        assert!(ran.code != 0 || fs::read(&target).unwrap() == CODE, "{ran:?}");
        ran
    };
    assert!(get().ok().contains("about acme.one"));

    one.kill();
    let got = succeeds_until("note: one/catalogue: unreachable", get);
    assert!(got.contains("about acme.one"));
    let searched = || at_both(&alice, &["search", "acme"]);
    assert!(succeeds_until("asking two/catalogue", searched).contains("acme.one"));
    let listed = || at_both(&alice, &["ls", "hyperty"]);
    assert!(succeeds_until("asking two/catalogue", listed).contains("acme.one"));
    let watched = || at_both(&alice, &["watch", "--after", "0", "--once", "--type", "hyperty"]);
    assert!(succeeds_until("asking two/catalogue", watched).contains("acme.one"));
    // The option can be repeated.
    let words = ["catalogue", "get", OBJECT, "--at", "one/catalogue", "--at", "two/catalogue"];
    succeeds_until("asking two/catalogue", || alice.args(words));
    let exported = alice.path().join("exported");
    let words = ["export", exported.to_str().unwrap()];
    succeeds_until("asking two/catalogue", || {
        let _ = fs::remove_dir_all(&exported);
        at_both(&alice, &words)
    });
    // What concerns the disk of a node needs one.
    at_both(&alice, &["verify"]).fails(2, "what one node stores");

    two.kill();
    let failed = get();
    assert!(failed.stderr.contains("asking"), "{failed:?}");
    let last = failed.stderr.lines().last().unwrap().to_owned();
    for node in ["one", "two"] {
        assert!(last.contains(&format!("{node}/catalogue: unreachable")), "{failed:?}");
    }
    failed.fails(122, "levada: ");
}

/// A command of `home` that follows the changes at `at`.
fn watch(home: &Home, at: &str) -> Child {
    let words = ["catalogue", "watch", "--after", "0", "--type", "hyperty", "--json", "--at", at];
    let errors = fs::File::create(home.path().join("watch.err")).unwrap();
    home.command(words).stdout(Stdio::piped()).stderr(errors).spawn().unwrap()
}

fn end(mut watcher: Child) {
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn a_node_that_is_busy_is_passed_over_and_one_that_denies_is_not() {
    let source = Home::new();
    let alice = Home::new();
    let bob = Home::new();
    let folder = export(&source);
    let homes = [copy(&folder), copy(&folder)];
    let one = hub(&homes[0], "one", "[limits]\nsessions_per_requester = 1\n");
    let two = hub(&homes[1], "two", "");
    one.welcome(&alice, "one");
    two.welcome(&alice, "two");
    let watcher = watch(&alice, "one/catalogue");
    let sessions = || homes[0].json("status")["running_sessions"].clone();
    eventually("the session of the watch runs", || sessions() == 1);
    alice.args(["catalogue", "get", OBJECT, "--at", "one/catalogue"]).fails(122, "the maximum");
    let get = || at_both(&alice, &["get", OBJECT]);
    let got = succeeds_until("the maximum", get);
    assert!(got.contains("about acme.one"));
    end(watcher);
    eventually("the session has ended", || sessions() == 0);

    // Bob may request at the second node only.
    one.welcome(&bob, "one");
    let name = own_name("two");
    bob.args(["peers", "add", &name, &two.at()]).ok();
    let list = format!("one/catalogue,{name}/catalogue");
    let get = || bob.args(["catalogue", "get", OBJECT, "--at", &list]);
    let denied = fails_at_last(121, get);
    assert!(denied.contains(&format!("{name}/catalogue: denied")), "{denied}");
    // A name that is new here is refused whatever the order is.
    bob.args(["peers", "forget", &name]).ok();
    get().fails(2, &format!("`{name}`"));
}

#[test]
fn a_version_that_one_node_lacks_is_read_at_the_next_one() {
    let source = Home::new();
    let alice = Home::new();
    let folder = export(&source);
    let homes = [copy(&folder), copy(&folder)];
    publish(&homes[1], "hyperty/acme.new@1.0.0", &[]).ok();
    // The package of this version is damaged at the first node.
    fs::write(first_file(&homes[0].path().join("catalogue/blobs")), vec![b'x'; CODE.len()])
        .unwrap();
    let [one, two] = [hub(&homes[0], "one", ""), hub(&homes[1], "two", "")];
    one.welcome(&alice, "one");
    two.welcome(&alice, "two");
    let note = "note: one/catalogue: there is no hyperty/acme.new";
    succeeds_until(note, || at_both(&alice, &["get", "hyperty/acme.new"]));
    succeeds_until("note: one/catalogue: ", || at_both(&alice, &["ls", "hyperty/acme.new"]));
    let target = alice.path().join("got.js");
    let path = target.display().to_string();
    succeeds_until("note: one/catalogue: protocol: the received package has the digest", || {
        let _ = fs::remove_file(&target);
        let ran = at_both(&alice, &["get", OBJECT, "--package", &path]);
        assert_eq!(fs::read(&target).unwrap(), CODE);
        ran
    });
    let missing = at_both(&alice, &["get", "hyperty/acme.missing"]);
    for node in ["one", "two"] {
        let text = format!("{node}/catalogue: there is no hyperty/acme.missing");
        assert!(missing.stderr.contains(&text), "{missing:?}");
    }
    assert_eq!(missing.code, 1);
    // An answer says more than none.
    two.kill();
    let missing = at_both(&alice, &["get", "hyperty/acme.missing"]);
    assert!(missing.stderr.contains("two/catalogue: unreachable"), "{missing:?}");
    missing.fails(1, "one/catalogue: there is no hyperty/acme.missing");
}

#[test]
fn a_package_that_breaks_off_is_resumed_at_the_next_node() {
    let source = Home::new();
    let alice = Home::new();
    let code = noise(6, 3_000_000);
    let (descriptor, package) = files(&source, "acme.one", &code);
    source.args(["catalogue", "publish", OBJECT, &descriptor, "--package", &package]).ok();
    let folder = source.path().join("export").display().to_string();
    source.args(["catalogue", "export", &folder]).ok();
    let homes = [copy(&folder), copy(&folder)];
    let blob = first_file(&homes[0].path().join("catalogue/blobs"));
    fs::OpenOptions::new().write(true).open(blob).unwrap().set_len(1_000_000).unwrap();
    let [one, two] = [hub(&homes[0], "one", ""), hub(&homes[1], "two", "")];
    one.welcome(&alice, "one");
    two.welcome(&alice, "two");
    let target = alice.path().join("got.js");
    let path = target.display().to_string();
    let words = ["catalogue", "get", OBJECT, "--package", &path, "--at"];
    alice.args([&words[..], &["one/catalogue"]].concat()).fails(122, "ended the session");
    // Nothing but the beginning of the package was stored.
    let part = fs::read_dir(alice.path()).unwrap().map(|entry| entry.unwrap().path());
    let part = part.into_iter().find(|path| path.extension().is_some_and(|end| end == "part"));
    let part = part.unwrap();
    assert!(fs::read(&part).unwrap() == code[..1_000_000]);
    succeeds_until("note: one/catalogue: unreachable: the catalogue ended the session", || {
        let _ = fs::remove_file(&target);
        let ran = at_both(&alice, &["get", OBJECT, "--package", &path]);
        assert!(fs::read(&target).unwrap() == code);
        assert!(!part.exists());
        ran
    });
}

#[test]
fn a_node_that_has_moved_is_found_if_no_other_answers() {
    let source = Home::new();
    let alice = Home::new();
    let folder = export(&source);
    let homes = [copy(&folder), copy(&folder)];
    fs::write(homes[0].path().join("config.toml"), RULES).unwrap();
    let line = format!("--name {}", own_name("one"));
    let one = homes[0].up(&line);
    let two = hub(&homes[1], "two", "");
    one.welcome(&alice, "one");
    two.welcome(&alice, "two");
    let address = one.address();
    one.kill();
    let one = homes[0].up(&line);
    assert_ne!(one.address(), address);
    two.kill();
    // On a machine under load, an announcement may arrive late.
    let mut is_searched = false;
    eventually("the node is found by its key", || {
        let ran = at_both(&alice, &["get", OBJECT]);
        is_searched |= ran.stderr.contains("searching this network");
        ran.code == 0
    });
    assert!(is_searched);
    // The new address is known now.
    let ran = alice.args(["catalogue", "get", OBJECT, "--at", "one/catalogue"]);
    assert!(ran.ok().contains("about acme.one"));
}

#[test]
fn a_node_that_hangs_is_given_up() {
    let source = Home::new();
    let alice = Home::new();
    let folder = export(&source);
    let homes = [copy(&folder), copy(&folder)];
    let [one, two] = [hub(&homes[0], "one", ""), hub(&homes[1], "two", "")];
    one.welcome(&alice, "one");
    two.welcome(&alice, "two");
    // Its connections are still accepted, by the operating system.
    one.signal("STOP");
    succeeds_until("note: one/catalogue: unreachable", || at_both(&alice, &["get", OBJECT]));
}

#[test]
fn a_watch_and_publications_go_on_at_the_next_node() {
    let source = Home::new();
    let alice = Home::new();
    let folder = export(&source);
    let homes = [copy(&folder), copy(&folder)];
    let mut nodes = [("one", 0), ("two", 1)].map(|(name, at)| Some(hub(&homes[at], name, "")));
    for (node, name) in nodes.iter().flatten().zip(["one", "two"]) {
        node.welcome(&alice, name);
    }
    let mut watcher = watch(&alice, BOTH);
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut object = || {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["object"].clone()
    };
    assert_eq!(object(), "hyperty/acme.one");
    let runs = |home: &Home| home.json("status")["running_sessions"] == 1;
    let watched = usize::from(!runs(&homes[0]));
    assert!(runs(&homes[watched]));
    nodes[watched].take().unwrap().kill();
    let (gone, left) = [("one", "two"), ("two", "one")][watched];

    let mut number = 0;
    let note = format!("note: {gone}/catalogue: unreachable");
    eventually("a publication is made at the other node", || {
        number += 1;
        let ran = publish(&alice, &format!("hyperty/acme.new@1.0.{number}"), &["--at", BOTH]);
        let other = ran.stderr.contains(&note);
        assert!(ran.stderr.contains("published hyperty/acme.new"), "{ran:?}");
        ran.ok();
        other
    });
    let again = publish(&alice, &format!("hyperty/acme.new@1.0.{number}"), &["--at", BOTH]);
    assert!(again.stderr.contains("already published"), "{again:?}");
    again.ok();
    // No change is shown twice.
    assert_eq!(object(), "hyperty/acme.new");
    let log = fs::read_to_string(alice.path().join("watch.err")).unwrap();
    assert!(log.contains(&format!("connected again, to {left}/catalogue")), "{log}");
    end(watcher);
}

#[test]
fn services_use_the_next_node() {
    let source = Home::new();
    let alice = Home::new();
    let code = noise(5, 1 << 20);
    let (descriptor, package) = files(&source, "acme.long", &code);
    let long = "hyperty/acme.long@1.0.0";
    source.args(["catalogue", "publish", long, &descriptor, "--package", &package]).ok();
    let folder = export(&source);
    let homes = [copy(&folder), copy(&folder)];
    let [one, two] = [hub(&homes[0], "one", ""), hub(&homes[1], "two", "")];
    one.welcome(&alice, "one");
    two.welcome(&alice, "two");
    let config =
        format!("catalogues = ['{BOTH}']\npublish_in = ['{BOTH}']\n[swarm]\nprovide = true\n");
    fs::write(alice.path().join("config.toml"), config).unwrap();
    let first = alice.up("--no-announce");
    let target = alice.path().join("got.js").display().to_string();
    let ran = at_both(&alice, &["get", long, "--package", &target]);
    assert!(ran.stderr.contains("this home's node provides it"), "{ran:?}");
    ran.ok();
    let provided = || alice.json("swarm ls")["provided"][0].clone();
    eventually("the package is provided", || provided()["connected"] == true);
    assert_eq!(provided()["catalogue"], BOTH);
    drop(first);

    one.kill();
    let _node = alice.up("--name alice --no-announce");
    eventually("the package is provided at the other node", || provided()["connected"] == true);
    let services = format!("service/{}.echo", alice.identity());
    eventually("the services are published at the other node", || {
        homes[1].run(&format!("catalogue get {services}")).code == 0
    });
    // `ls` omits a catalogue that does not answer within 2 s: it is repeated.
    eventually("`ls` reads the other node", || {
        let listed = alice.json("ls");
        let published = listed["published"].as_array().unwrap();
        published
            .iter()
            .any(|node| node["catalogue"] == BOTH && node["identity"] == alice.identity())
    });
    drop(two);
}
