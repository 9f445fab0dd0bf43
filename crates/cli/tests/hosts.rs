//! Three hosts on one Ethernet, each in a network namespace, with no server anywhere; and a fourth that is
//! hostile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use levada_core::{SecretKey, SystemRandom};
use levada_discovery::testing::{Claim, Voice};
use levada_lab::{Lab, Node, Options};
use serde_json::Value;
use support::{Home, Ran, eventually};

/// What every host's `levada` may hold of memory, in KiB: of address space, which is more than it uses.
const MEMORY: u32 = 2 * 1024 * 1024;
/// When a command hangs. What holds it up for so long is no load of this machine.
const HANGS: &str = "20";

/// A host with an identity of its own.
struct Host {
    node: Node,
    home: Home,
    address: Ipv4Addr,
}

impl Host {
    /// Starts a program on this host.
    fn spawn(&self, program: &str, args: &[&str], output: fn() -> Stdio) -> Child {
        self.node
            .spawn(program, |command| {
                command.args(args).env("LEVADA_HOME", self.home.path()).env("NO_COLOR", "1");
                command.stdin(Stdio::null()).stdout(output()).stderr(output());
            })
            .unwrap()
    }

    /// Runs `levada` on this host, within bounds of time and memory.
    fn args(&self, args: &[&str]) -> Ran {
        let script = format!("ulimit -v {MEMORY}; exec timeout {HANGS} \"$0\" \"$@\"");
        let command = [&["-c", script.as_str(), env!("CARGO_BIN_EXE_levada")][..], args].concat();
        self.spawn("sh", &command, Stdio::piped).wait_with_output().unwrap().into()
    }

    fn run(&self, line: &str) -> Ran {
        self.args(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn ls(&self) -> Value {
        serde_json::from_str(&self.run("ls --json").ok()).unwrap()
    }

    /// What `levada ls` says of a key.
    fn sees(&self, identity: &str) -> Value {
        let nodes = self.ls()["nodes"].take();
        let mut nodes = nodes.as_array().unwrap().clone().into_iter();
        nodes.find(|node| node["identity"] == identity).unwrap_or(Value::Null)
    }

    /// Starts a node on every address of this host.
    fn up(&self, options: &str) -> Up {
        let words: Vec<&str> =
            "up --http 127.0.0.1:0".split(' ').chain(options.split(' ')).collect();
        let up = Up(self.spawn(env!("CARGO_BIN_EXE_levada"), &words, Stdio::null));
        eventually("the node runs", || self.home.run("status").code == 0);
        up
    }

    fn identity(&self) -> String {
        self.home.identity()
    }
}

/// A running node, which ends with the test.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Scene {
    // Dropped first: with the lab end the programs of all hosts.
    _lab: Lab,
    hosts: Vec<Host>,
}

impl Scene {
    /// So many hosts on one Ethernet.
    fn new(names: &[&str]) -> Self {
        let mut lab = Lab::new(Options::default()).unwrap();
        let nodes: Vec<Node> = names.iter().map(|name| lab.node(name).unwrap()).collect();
        let segment = lab.segment(&nodes.iter().collect::<Vec<_>>()).unwrap();
        let host = |node: Node| {
            let IpAddr::V4(address) = segment.address(&node).unwrap() else { panic!("IPv4") };
            Host { node, home: Home::new(), address }
        };
        let hosts = nodes.into_iter().map(host).collect();
        Self { _lab: lab, hosts }
    }
}

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

    // Found by multicast, at its address on this Ethernet.
    eventually("alice sees it", || !alice.sees(&well.identity()).is_null());
    let entry = alice.sees(&well.identity());
    assert_eq!((&entry["name"], &entry["state"]), (&"well".into(), &"new".into()));
    let addresses: Vec<&str> =
        entry["addresses"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(addresses.iter().all(|one| !one.starts_with("127.")), "{addresses:?}");
    let expected = format!("{}:", well.address);
    assert!(addresses.iter().any(|one| one.starts_with(&expected)), "{addresses:?}");
    alice.run("run well/files -- ls").denied("--accept-new");

    // What it lists is what is there.
    let folder = well.home.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..20 {
        std::fs::write(folder.join(format!("file {number}")), "x".repeat(number * 100)).unwrap();
    }
    let folder = folder.to_str().unwrap();
    let there = alice.args(&["run", "well/files", "--accept-new", "--", "ls", "-l", folder]).ok();
    let mut ls = Command::new("ls");
    let local = ls.args(["-l", folder]).env("LC_ALL", "C").env("TZ", "UTC").output().unwrap();
    let local = Ran::from(local).ok();
    assert_eq!(there, local);
    assert!(local.lines().count() > 20, "{local}");
    assert_eq!(alice.sees(&well.identity())["state"], "pinned");

    // A third, whom the node does not know, uses what alice passes on.
    let capability =
        alice.args(&["request", "well/files", "--uses", "3", "--", "ls", "-l", folder]).ok();
    let granted =
        alice.args(&["grant", &capability, "--to", &bob.identity(), "--rights", "x"]).ok();
    assert_eq!(bob.args(&["connect", &granted]).ok(), local);
    bob.args(&["run", "well/files", "--accept-new", "--", "ls", "-l", folder])
        .denied("may not request");
    alice.args(&["revoke", &capability]).ok();
    bob.args(&["connect", &granted]).denied("revoked");

    // A goodbye is heard on every host.
    well.home.run("stop").ok();
    eventually("it is away", || alice.sees(&well.identity())["away"] == true);
}

/// A host that sends what it likes, and counts who connects to it.
struct Hostile {
    stop: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    /// Sends the packets over and over; `listener` is where they lure to.
    fn start(host: &Host, listener: TcpListener, packets: Vec<Vec<u8>>) -> Self {
        let (stop, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let voice = host.node.run(|| Voice::new(host.address)).unwrap().unwrap();
        let (stopped, counted) = (stop.clone(), connections.clone());
        listener.set_nonblocking(true).unwrap();
        let count = move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok(_) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let stopped = stop.clone();
        let shout = move || {
            while !stopped.load(Ordering::Relaxed) {
                for packet in &packets {
                    // A full buffer is part of the noise.
                    let _ = voice.say(packet);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let threads = vec![std::thread::spawn(count), std::thread::spawn(shout)];
        Self { stop, connections, threads }
    }

    /// How often somebody has connected.
    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.connections.load(Ordering::Relaxed)
    }
}

fn someone() -> String {
    SecretKey::generate(&SystemRandom).unwrap().identity().to_string()
}

/// Garbage; a known name under another key, a known key at another address, addresses that lead nowhere or to
/// ourselves; and again and again among thousands of names.
fn hostile_packets(host: &Host, port: u16, victim: &str) -> Vec<Vec<u8>> {
    let here = host.address;
    let claim = |instance: &str, name: &str, key: &str, address| {
        Claim::new(instance, name, key, address, port).packet()
    };
    let claims = [
        claim("well", "well", &someone(), here),
        claim(&format!("well-{}", &victim[2..10]), "well", &someone(), here),
        claim("far", "well", victim, here),
        claim("stranger", "stranger", &someone(), here),
        claim("steering", "\u{1b}[2J", &someone(), here),
        claim("loop", "loop", &someone(), Ipv4Addr::LOCALHOST),
        claim("none", "none", &someone(), Ipv4Addr::UNSPECIFIED),
        claim("group", "group", &someone(), Ipv4Addr::new(224, 0, 0, 251)),
    ];
    let mut packets = vec![vec![], vec![0xff; 8000], vec![0xc0; 700]];
    packets.extend((0..claims[0].len()).map(|end| claims[0][..end].to_vec()));
    for number in 0..2500 {
        if number % 50 == 0 {
            packets.extend(claims.iter().cloned());
        }
        let name = format!("crowd-{number}");
        packets.push(claim(&name, &name, &someone(), here));
    }
    packets
}

#[test]
fn a_hostile_neighbour_neither_holds_up_nor_is_asked() {
    let scene = Scene::new(&["well", "alice", "evil"]);
    let [well, alice, evil] = scene.hosts.as_slice() else { panic!("three") };
    let mut node = well.up(&format!("--name well --allow {}", alice.identity()));
    eventually("alice sees it", || !alice.sees(&well.identity()).is_null());
    alice.run("run well/clock --accept-new").ok();

    let at = (evil.address, 0);
    let listener = evil.node.run(|| TcpListener::bind(at)).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let packets = hostile_packets(evil, port, &well.identity());
    let hostile = Hostile::start(evil, listener, packets);
    eventually("the noise is heard", || alice.ls()["nodes"].as_array().unwrap().len() > 100);

    let ran = alice.run("ls");
    assert!(ran.stderr.contains("conflict: `well`"), "{}", ran.stderr);
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'));
    let rows = ran.ok();
    assert!(rows.lines().count() < 2500, "{}", rows.lines().count());
    let nodes = alice.ls()["nodes"].take();
    let named = |name: &str| -> Vec<Value> {
        nodes.as_array().unwrap().iter().filter(|node| node["name"] == name).cloned().collect()
    };
    let wells = named("well");
    assert_eq!(
        (&wells[0]["identity"], &wells[0]["state"]),
        (&well.identity().into(), &"pinned".into())
    );
    assert!(!wells[0]["services"].is_null(), "the true one answered: {}", wells[0]);
    assert!(wells.len() > 1 && wells[1..].iter().all(|node| node["state"] == "conflicting"));
    for trap in ["loop", "none", "group"] {
        assert_eq!(named(trap), Vec::<Value>::new());
    }

    // The pinned node is used as if nothing were the matter, and nobody was called who is not pinned.
    alice.run("run well/clock").ok();
    alice.run("query stranger").denied("");
    assert_eq!(hostile.end(), 0, "nobody connected to the hostile host");

    // The node has taken no harm, and ends as ever.
    eventually("alice sees it again", || alice.sees(&well.identity())["away"] == false);
    well.home.run("stop").ok();
    assert!(node.0.wait().unwrap().success());
}

/// What makes avahi run beside whatever this machine runs: a `/run` of its own.
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
fn avahi_sees_a_node() {
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
    for entry in ["\"name=well.home\"".to_owned(), format!("\"key={key}\""), "\"v=1\"".to_owned()] {
        assert!(fields[9].contains(&entry), "{entry} is not in: {line}");
    }
}
