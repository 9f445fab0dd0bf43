//! Hosts on one Ethernet, each in a network namespace, without any server; one of them may be
//! hostile.

mod hostile;
mod middleboxes;
mod scene;
mod swarm;
mod two_machines;

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::support::{Home, Ran, eventually, until_found};
use hostile::{Hostile, hostile_packets};
use levada_core::Identity;
use scene::{Host, Scene, Up};
use serde_json::Value;

/// A service that lists folders.
const LIST: &str = "name = 'files'\ntype = 'exec'\nenvironment = { LC_ALL = 'C', TZ = 'UTC' }\n\
    [[command]]\nprogram = 'ls'\nargs = '[^-].*|-l'\n";

#[test]
fn three_hosts_find_request_grant_connect() {
    let scene = Scene::new(&["well", "alice", "bob"]);
    let [well, alice, bob] = scene.hosts.as_slice() else { panic!("three") };
    let service = well.home.path().join("files.toml");
    std::fs::write(&service, LIST).unwrap();
    let options =
        format!("--name well --service {} --allow {}", service.display(), alice.identity());
    let _node = well.up(&options);

    // Alice finds the well by multicast DNS, at its address on this Ethernet.
    let mut entry = Value::Null;
    eventually("alice sees it", || {
        entry = alice.sees(&well.identity());
        !entry.is_null()
    });
    assert_eq!((&entry["name"], &entry["state"]), (&"well".into(), &"new".into()));
    let addresses: Vec<&str> =
        entry["addresses"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(addresses.iter().all(|one| !one.starts_with("127.")), "{addresses:?}");
    let expected = format!("{}:", well.address);
    assert!(addresses.iter().any(|one| one.starts_with(&expected)), "{addresses:?}");
    until_found(|| alice.run("run well/files -- ls")).denied("--accept-new");

    // The remote listing equals the local one.
    let folder = well.home.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..20 {
        std::fs::write(folder.join(format!("file {number}")), "x".repeat(number * 100)).unwrap();
    }
    let folder = folder.to_str().unwrap();
    let list = ["run", "well/files", "--accept-new", "--", "ls", "-l", folder];
    let there = until_found(|| alice.args(&list)).ok();
    let mut ls = Command::new("ls");
    let local = ls.args(["-l", folder]).env("LC_ALL", "C").env("TZ", "UTC").output().unwrap();
    let local = Ran::from(local).ok();
    assert_eq!(there, local);
    assert!(local.lines().count() > 20, "{local}");
    assert_eq!(alice.sees(&well.identity())["state"], "pinned");

    // Bob, whom the node has not authorised, uses what Alice grants.
    let capability =
        alice.args(&["request", "well/files", "--uses", "3", "--", "ls", "-l", folder]).ok();
    let granted =
        alice.args(&["grant", &capability, "--to", &bob.identity(), "--rights", "x"]).ok();
    assert_eq!(bob.args(&["connect", &granted]).ok(), local);
    until_found(|| bob.args(&list)).denied("may not request");
    alice.args(&["revoke", &capability]).ok();
    bob.args(&["connect", &granted]).denied("revoked");

    // The goodbye packet reaches every host.
    well.home.run("stop").ok();
    eventually("the node is away", || alice.sees(&well.identity())["away"] == true);
}

#[test]
fn capabilities_and_invoke_work_across_four_hosts() {
    let scene = Scene::new(&["well", "hub", "eve", "alice"]);
    let [well, hub, eve, alice] = scene.hosts.as_slice() else { panic!("four") };
    let file = |host: &Host, name: &str, text: &str| {
        let file = host.home.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    // Eve may request at the well; Alice may not.
    let files = file(well, "files.toml", LIST);
    let _well = well.up(&format!("--name well --service {files} --allow {}", eve.identity()));
    let desk = file(hub, "capability.toml", "name = 'capability'\ntype = 'capability'\n");
    let invoke = "name = 'invoke'\ntype = 'invoke'\nstart = ['*/files']\n";
    let invoke = file(hub, "invoke.toml", invoke);
    let eves = eve.identity();
    let alices = alice.identity();
    let services = format!("--service {desk} --service {invoke}");
    let _hub = hub.up(&format!("--name hub {services} --allow {eves} --allow {alices}"));
    for host in [eve, alice] {
        for name in ["well", "hub"] {
            until_found(|| host.args(&["query", name, "--accept-new"])).ok();
        }
    }
    let folder = well.home.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "water").unwrap();
    let folder = folder.to_str().unwrap();
    let there = eve.args(&["run", "well/files", "--", "ls", "-l", folder]).ok();
    assert!(there.ends_with(" file"), "{there}");
    let direct = ["run", "well/files", "--", "ls", "-l", folder];
    alice.args(&direct).denied("may not request");

    let rules = format!(
        "[[rule]]\nrequesters = ['{alices}']\nservices = ['well/files']\nargs = ['ls', '-l', '{folder}']\n"
    );
    let rules = file(eve, "rules.toml", &rules);
    let words = ["approve", "--at", "hub/capability", "--policy", &rules];
    let _eve = Up(eve.spawn(env!("CARGO_BIN_EXE_levada"), &words, Stdio::null));
    let ask = ["ask", "hub/capability", "--entity", &eves, "--service", "well/files", "--"];
    let ask = [&ask[..], &["ls", "-l", folder]].concat();
    let mut asked = None;
    eventually("the entity is registered", || {
        let ran = alice.args(&ask);
        let there = !ran.stderr.contains("not registered");
        asked = Some(ran);
        there
    });
    let capability = asked.unwrap().ok();
    assert_eq!(alice.args(&["connect", &capability]).ok(), there);

    // The hub starts the session for Alice, at the address in her capability.
    let capability = alice.args(&ask).ok();
    assert_eq!(alice.args(&["invoke", &capability, "--on", "hub/invoke"]).ok(), there);
    let capability = alice.args(&ask).ok();
    for other in [eve, hub] {
        other.args(&["terminate", &capability]).denied("bound to another identity");
    }
    alice.args(&["terminate", &capability]).ok();
    alice.args(&["connect", &capability]).denied("terminated");
}

#[test]
fn a_hostile_neighbour_neither_delays_nor_identifies_a_client() {
    let scene = Scene::new(&["well", "alice", "evil"]);
    let [well, alice, evil] = scene.hosts.as_slice() else { panic!("three") };
    let mut node = well.up(&format!("--name well --allow {}", alice.identity()));
    until_found(|| alice.run("run well/clock --accept-new")).ok();

    let victim = well.identity();
    let hostile = Hostile::start(evil, |port, lure| hostile_packets(evil, port, lure, &victim));
    let mut nodes = Vec::new();
    eventually("ls shows the forged nodes and the real one", || {
        let ls = alice.ls()["nodes"].take();
        nodes = ls.as_array().unwrap().clone();
        let wells: Vec<&Value> = nodes.iter().filter(|node| node["name"] == "well").collect();
        let has_answered = wells.first().is_some_and(|well| !well["services"].is_null());
        nodes.len() > 100 && wells.len() > 1 && has_answered
    });
    assert!(nodes.len() < 2500, "{}", nodes.len());
    let wells: Vec<&Value> = nodes.iter().filter(|node| node["name"] == "well").collect();
    assert_eq!(
        (&wells[0]["identity"], &wells[0]["state"]),
        (&victim.as_str().into(), &"pinned".into())
    );
    assert!(wells[1..].iter().all(|node| node["state"] == "conflicting"), "{wells:?}");
    let traps = ["loop", "none", "group"];
    assert!(nodes.iter().all(|node| traps.iter().all(|trap| node["name"] != *trap)));
    eventually("ls explains", || {
        let ran = alice.run("ls");
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'));
        ran.code == 0 && ran.stderr.contains("conflict: `well` stands for")
    });

    // The pinned node works during the attack, and stops cleanly.
    alice.run("run well/clock").ok();
    until_found(|| alice.run("query newcomer")).denied("--accept-new");
    well.home.run("stop").ok();
    assert!(node.0.wait().unwrap().success());

    // A client that looks for the key now dials the attacker, which announces that key, and does
    // not identify itself.
    eventually("alice dials the attacker", || {
        alice.run("query well").fails(122, "unreachable");
        hostile.received.lock().unwrap().iter().any(|first| !first.is_empty())
    });
    // No address of the attacker is pinned.
    let peers: Value = serde_json::from_str(&alice.run("peers ls --json").ok()).unwrap();
    let pinned = peers["peers"][0]["addresses"].as_array().unwrap();
    let is_evil = |one: &Value| one.as_str().unwrap().starts_with(&format!("{}:", evil.address));
    assert!(!pinned.is_empty() && !pinned.iter().any(is_evil), "{peers}");
    let (calls, received) = hostile.end();
    // The first port was announced with keys that are not pinned: no client may dial it.
    let calls: Vec<SocketAddr> =
        calls.into_iter().filter(|from| from.ip() != evil.address).collect();
    assert!(calls.is_empty(), "dialled by {calls:?}");
    let alice: Identity = alice.identity().parse().unwrap();
    for first in received.iter().filter(|first| first.len() > 5) {
        // One handshake record, which begins with a ClientHello (RFC 8446 sections 5.1 and 4), and
        // nothing after it.
        assert_eq!((first[0], first[5]), (22, 1));
        assert!(first.len() - 5 <= usize::from(u16::from_be_bytes([first[3], first[4]])));
        assert!(!first.windows(32).any(|bytes| bytes == alice.as_bytes()));
    }
}

#[test]
fn interfaces_may_appear_and_disappear() {
    let scene = Scene::new(&["well", "alice"]);
    let [well, alice] = scene.hosts.as_slice() else { panic!("two") };
    let ethernet = |state: &str| {
        let child = well.spawn("ip", &["link", "set", "e0", state], Stdio::piped);
        Ran::from(child.wait_with_output().unwrap()).ok();
    };
    let identity = well.identity();
    let is_seen = || !alice.sees(&identity).is_null();
    ethernet("down");
    let mut node = well.up("--name well");
    for _ in 0..2 {
        ethernet("up");
        eventually("a new interface is used", is_seen);
        ethernet("down");
        eventually("the node behind a removed interface is gone", || !is_seen());
    }
    well.home.run("stop").ok();
    assert!(node.0.wait().unwrap().success());
}

#[test]
fn ls_reports_missing_multicast() {
    let home = Home::new();
    // A new network namespace, in which even loopback is down.
    let alone = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", env!("CARGO_BIN_EXE_levada")]).args(args);
        command.env("LEVADA_HOME", home.path()).env("NO_COLOR", "1").stdin(Stdio::null());
        Ran::from(command.output().unwrap())
    };
    let ran = alone(&["ls"]);
    assert!(ran.stderr.contains("only pinned nodes are shown: multicast DNS"), "{}", ran.stderr);
    assert_eq!(ran.ok(), "");
    let listing: Value = serde_json::from_str(&alone(&["ls", "--json"]).ok()).unwrap();
    assert!(listing["blind"].as_str().unwrap().contains("multicast DNS"), "{listing}");
    assert_eq!(listing["nodes"], serde_json::json!([]));
    alone(&["query", "well", "--accept-new"]).fails(2, "cannot be browsed for");
    alone(&["query", &Home::new().identity()]).fails(122, "no address is known");
    let report = alone(&["doctor"]).stdout;
    assert!(report.contains("note   multicast: multicast DNS does not work here"), "{report}");
}

/// Runs avahi beside the services of this machine, in a mount namespace with its own `/run`.
const AVAHI: &str = r#"
mount -t tmpfs none /run && mkdir -p /run/dbus /run/avahi-daemon || exit 1
dbus-daemon --system --nofork --nopidfile &
printf '[server]\nuse-ipv6=no\n[publish]\ndisable-publishing=yes\n' > /run/avahi.conf
for try in $(seq 100); do [ -S /run/dbus/system_bus_socket ] && break; sleep 0.1; done
avahi-daemon -f /run/avahi.conf --no-drop-root --no-chroot --no-rlimits &
for try in $(seq 30); do
    sleep 0.5
    avahi-browse -rpt _levada._tcp | grep '^=' && exit 0
done
exit 1
"#;

#[test]
fn avahi_finds_a_node() {
    let scene = Scene::new(&["well", "alice"]);
    let [well, alice] = scene.hosts.as_slice() else { panic!("two") };
    let _node = well.up("--name well.home --listen 0.0.0.0:4711");
    let script = ["--mount", "timeout", "60", "sh", "-c", AVAHI];
    let child = alice.spawn("unshare", &script, Stdio::piped);
    let ran = Ran::from(child.wait_with_output().unwrap());
    let errors = ran.stderr.clone();
    let line = ran.ok();
    // =;interface;protocol;instance;type;domain;host;address;port;entries
    let fields: Vec<&str> = line.lines().next().unwrap().split(';').collect();
    let key = well.identity();
    assert_eq!(fields[3], format!("well-home-{}", &key[2..10]), "{line}{errors}");
    assert_eq!((fields[4], fields[5]), ("_levada._tcp", "local"));
    assert_eq!((fields[7], fields[8]), (well.address.to_string().as_str(), "4711"));
    let newest = levada_core::WIRE_VERSIONS.end();
    for entry in ["name=well.home", &format!("key={key}"), &format!("v={newest}")] {
        assert!(fields[9].contains(&format!("\"{entry}\"")), "{entry} is not in: {line}");
    }
}
