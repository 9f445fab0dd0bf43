//! The catalogue of a remote node, over the encrypted port and by HTTP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use levada_catalogue::model::digest_text;
use levada_core::sha256;
use pty_process::Size;
use pty_process::blocking::{Command, open};
use serde_json::Value;

use super::{RETHINK, files, publish, serve};
use crate::support::{Home, Node, eventually, own_loopback};

/// The rights of guests at the hub, in addition to reading.
const RULES: &str = "name = 'catalogue'\ntype = 'catalogue'\nrules = ['write hyperty/acme.*', \
    'yank hyperty/acme.*', 'write service/*', 'yank service/*']\n";

/// A node whose catalogue guests may write to within [`RULES`].
fn hub<'a>(home: &'a Home, options: &str) -> Node<'a> {
    let file = home.path().join("service.toml");
    fs::write(&file, RULES).unwrap();
    home.up(&format!("--name hub --service {} {options}", file.display()))
}

#[test]
fn remote_rights_are_those_of_the_configuration_and_the_capability() {
    let home = Home::new();
    let alice = Home::new();
    let bob = Home::new();
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

    // An unauthorised client gets nothing without a capability, and with one the rights in it.
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
    // No link grants more than the configuration.
    let wide = grant(&["write runtime/*"]);
    bob.args(["catalogue", "ls", "--at", &wide]).denied("more than this service grants");
    alice.args(["request", "hub/catalogue", "--", "own */*"]).denied("is not a rule");
}

#[test]
fn watch_resumes_after_the_last_change_when_the_node_is_back() {
    let home = Home::new();
    let alice = Home::new();
    let up = format!("--listen {}:5382", own_loopback());
    let start = || {
        let file = home.path().join("service.toml");
        fs::write(&file, RULES).unwrap();
        let words = format!("up --name hub --http 127.0.0.1:0 {up} --service {}", file.display());
        home.up_with(&words)
    };
    let node = start();
    node.welcome(&alice, "hub");
    let errors = home.path().join("watch.err");
    // `watch` shows no changes from before its start.
    publish(&home, "hyperty/before@1.0.0", &[]).ok();
    let words = "catalogue watch --type hyperty --json --at hub/catalogue";
    let mut command = alice.command(words.split(' '));
    command.stdout(Stdio::piped()).stderr(fs::File::create(&errors).unwrap());
    let mut watcher = command.spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut object = || {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["object"].clone()
    };
    eventually("the watch is running", || home.json("status")["running_sessions"] == 1);
    // The watch has started when it shows a change.
    let mut number = 0;
    let (seen, first) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| seen.send(object()).unwrap());
        eventually("a change is seen", || {
            publish(&home, &format!("hyperty/during@1.0.{number}"), &[]).ok();
            number += 1;
            first.try_recv().is_ok_and(|object| object == "hyperty/during")
        });
    });
    node.kill();
    let log = || fs::read_to_string(&errors).unwrap();
    eventually("it reports the lost connection", || log().contains("trying again in"));
    // This object is published while the connection is lost.
    publish(&home, "hyperty/away@1.0.0", &[]).ok();
    let _node = start();
    while object() != "hyperty/away" {}
    assert!(log().contains("connected again"), "{}", log());
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn a_remote_watch_receives_changes() {
    let home = Home::new();
    let alice = Home::new();
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
fn an_interrupted_package_download_is_resumed() {
    let home = Home::new();
    let alice = Home::new();
    let node = hub(&home, "");
    node.welcome(&alice, "hub");
    let code: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    let (descriptor, package) = files(&alice, "acme.long", &code);
    let object = "hyperty/acme.long@1.0.0";
    let words = ["catalogue", "publish", object, &descriptor, "--package", &package];
    let ran = alice.args([&words[..], &["--at", "hub/catalogue"]].concat());
    // There is no progress bar without a terminal.
    assert!(!ran.stderr.contains('['), "{}", ran.stderr);
    ran.ok();
    let about = alice.json("catalogue get hyperty/acme.long --at hub/catalogue");
    let digest = about["package"]["digest"].as_str().unwrap();
    let target = alice.path().join("got.js");
    let digits = &digest["sha256:".len()..][..16];
    let part = alice.path().join(format!("got.js.{digits}.part"));
    // A download that was interrupted in the middle; and one whose first part is wrong.
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
fn ls_shows_nodes_of_the_network_and_of_catalogues() {
    let home = Home::new();
    let well = Home::new();
    let alice = Home::new();
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
    eventually("the node is published", || services(&alice) == Some(("hub/catalogue".into(), 2)));
    drop(away);
    // The node is no longer on the network, and still in the catalogue.
    assert!(alice.sees(&well.identity()).is_null());
    // `ls` omits a catalogue that does not answer within 2 s: it is repeated.
    eventually("the table has it", || {
        let table = alice.run("ls --type echo").ok();
        let line = table.lines().find(|line| line.starts_with("well"));
        line.is_some_and(|line| line.contains("published") && line.ends_with("hub/catalogue"))
    });
    // A node withdraws the services that it no longer offers.
    let config = "publish_in = ['hub/catalogue']\nbuiltin = false\n[[service]]\nname = 'only'\ntype = 'echo'\n";
    fs::write(well.path().join("config.toml"), config).unwrap();
    let _back = well.up("--name well --no-announce");
    eventually("the others are gone", || services(&alice) == Some(("hub/catalogue".into(), 1)));
}

#[test]
fn catalogue_serve_has_an_encrypted_and_an_http_port() {
    let home = Home::new();
    let alice = Home::new();
    fs::write(home.path().join("config.toml"), "[catalogue]\nforwarded_host = true\n").unwrap();
    let node = serve(&home, "--name shelf");
    publish(&home, "hyperty/One@1.0.0", &[]).ok();
    // Some objects of the folder have no package.
    home.args(["catalogue", "import", RETHINK]).fails(1, "skipped");
    node.welcome(&alice, "shelf");
    let owner = home.identity();
    let words = ["catalogue", "get", "hyperty/One", "--signed-by", &owner, "--at"];
    let got = alice.args([&words[..], &["shelf/catalogue"]].concat()).ok();
    assert!(got.contains("about One"), "{got}");
    publish(&alice, "hyperty/Two@1.0.0", &["--at", "shelf/catalogue"]).denied("no right to write");
    // The configuration of the home applies.
    let path = "/.well-known/hyperty/Connector/sourcePackageURL";
    let fields = "Host: inside\r\nX-Forwarded-Host: outside.example\r\nConnection: close";
    let ask = || {
        let mut stream = TcpStream::connect(node.http_address()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\n{fields}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    eventually("the index has it", || ask().starts_with("HTTP/1.1 200 "));
    let answer = ask();
    let outside = answer.contains("outside.example/.well-known") && !answer.contains("inside");
    assert!(outside, "{answer}");
}

#[test]
fn objects_altered_in_transit_are_rejected() {
    let home = Home::new();
    let reader = Home::new();
    let node = serve(&home, "");
    publish(&home, "hyperty/One@1.0.0", &[]).ok();
    let path = "/v1/objects/hyperty/One/1.0.0";
    eventually("the index has it", || node.http(path).0 == 200);
    let (_, descriptor) = node.http(path);
    let (_, meta) = node.http("/v1/objects/hyperty/One/1.0.0/meta");
    let meta: Value = serde_json::from_str(&meta).unwrap();
    let digest = meta["digest"].as_str().unwrap();
    let signature = meta["signatures"][0]["signature"].as_str().unwrap();
    // Another signature of the same form.
    let first = if signature.starts_with('A') { "B" } else { "A" };
    let forged = format!("{first}{}", &signature[1..]);
    let other = descriptor.replace("about", "above");
    let other_digest = digest_text(&sha256(&[other.as_bytes()]));
    let target = reader.path().join("got.js");
    let code = "code of hyperty/One@1.0.0";
    for (changes, refused) in [
        (vec![], None),
        (vec![("about", "above")], Some((123, "another digest"))),
        (vec![("about", "above"), (digest, &other_digest)], Some((121, "is invalid"))),
        (vec![(signature, &forged)], Some((121, "is invalid"))),
        (vec![(code, "evil of hyperty/One@1.0.0")], Some((123, "has the digest"))),
    ] {
        let _ = fs::remove_file(&target);
        let changes = changes.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned()));
        let place = altering_proxy(node.http_address(), changes.collect());
        let path = target.display().to_string();
        let words = ["catalogue", "get", "hyperty/One", "--package", &path, "--from", &place];
        let ran = reader.args(words);
        match refused {
            Some((code, text)) => ran.fails(code, text),
            None => drop(ran.ok()),
        }
        assert_eq!(target.exists(), refused.is_none());
    }
}

/// A proxy in front of a catalogue that replaces texts in its answers by texts of the same length.
/// It runs until the process ends.
fn altering_proxy(catalogue: String, changes: Vec<(String, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut server = TcpStream::connect(&catalogue).unwrap();
            let mut head = [0; 4096];
            let count = client.read(&mut head).unwrap();
            server.write_all(&head[..count]).unwrap();
            let mut answer = String::new();
            server.read_to_string(&mut answer).unwrap();
            for (from, to) in &changes {
                assert_eq!(from.len(), to.len());
                answer = answer.replace(from, to);
            }
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    place
}

#[test]
fn a_terminal_shows_the_progress_of_a_download() {
    let home = Home::new();
    let alice = Home::new();
    let node = hub(&home, "");
    node.welcome(&alice, "hub");
    let (descriptor, package) = files(&home, "long", &vec![b'x'; 30_000_000]);
    home.args(["catalogue", "publish", "hyperty/long@1.0.0", &descriptor, "--package", &package])
        .ok();
    let (mut terminal, inside) = open().unwrap();
    terminal.resize(Size::new(24, 100)).unwrap();
    let target = alice.path().join("got.js");
    let mut child = Command::new(env!("CARGO_BIN_EXE_levada"))
        .args(["catalogue", "get", "hyperty/long", "--at", "hub/catalogue", "--package"])
        .arg(&target)
        .env("LEVADA_HOME", alice.path())
        .env("TERM", "xterm")
        .spawn(inside)
        .unwrap();
    let mut screen = Vec::new();
    let mut buffer = [0; 4096];
    // The read fails when the process has ended.
    while let Ok(count @ 1..) = terminal.read(&mut buffer) {
        screen.extend_from_slice(&buffer[..count]);
    }
    assert!(child.wait().unwrap().success());
    let screen = String::from_utf8_lossy(&screen);
    assert!(screen.contains("long [=") && screen.contains("MB"), "{screen}");
    assert_eq!(fs::metadata(&target).unwrap().len(), 30_000_000);
}
