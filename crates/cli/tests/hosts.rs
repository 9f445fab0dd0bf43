//! Three hosts on one Ethernet, each in a network namespace, with no server anywhere; and a fourth that is
//! hostile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use levada_core::{Identity, SecretKey, SystemRandom};
use levada_discovery::testing::{Claim, Voice};
use levada_lab::{Lab, Node, Options};
use serde_json::Value;
use support::{Home, Ran, eventually, heard};

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
    heard(|| alice.run("run well/files -- ls")).denied("--accept-new");

    // What it lists is what is there.
    let folder = well.home.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..20 {
        std::fs::write(folder.join(format!("file {number}")), "x".repeat(number * 100)).unwrap();
    }
    let folder = folder.to_str().unwrap();
    let list = ["run", "well/files", "--accept-new", "--", "ls", "-l", folder];
    let there = heard(|| alice.args(&list)).ok();
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
    heard(|| bob.args(&list)).denied("may not request");
    alice.args(&["revoke", &capability]).ok();
    bob.args(&["connect", &granted]).denied("revoked");

    // A goodbye is heard on every host.
    well.home.run("stop").ok();
    eventually("it is away", || alice.sees(&well.identity())["away"] == true);
}

/// A host that sends what it likes. It has a port at which nobody may ever call, and one to which whoever looks
/// for a pinned key may be lured.
struct Hostile {
    stop: Arc<AtomicBool>,
    /// How often somebody has called at the first.
    calls: Arc<AtomicUsize>,
    /// What callers said first at the second.
    told: Arc<Mutex<Vec<Vec<u8>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    /// Sends the packets that `packets` makes of the two ports, over and over.
    fn start(host: &Host, packets: impl FnOnce(u16, u16) -> Vec<Vec<u8>>) -> Self {
        let [never, lure] = [(); 2].map(|()| {
            let bind = || TcpListener::bind((host.address, 0));
            host.node.run(bind).unwrap().unwrap()
        });
        let [first, second] = [&never, &lure].map(|one| one.local_addr().unwrap().port());
        let packets = packets(first, second);
        let voice = host.node.run(|| Voice::new(host.address)).unwrap().unwrap();
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let told = Arc::new(Mutex::new(Vec::new()));
        let (called, heard) = (calls.clone(), told.clone());
        let called = move |_| drop(called.fetch_add(1, Ordering::Relaxed));
        let heard = move |mut caller: TcpStream| {
            let mut first = vec![0; 16 * 1024];
            caller.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let length = caller.read(&mut first).unwrap_or(0);
            first.truncate(length);
            heard.lock().unwrap().push(first);
        };
        let say = move || {
            for packet in &packets {
                // A full buffer is part of the noise.
                let _ = voice.say(packet);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let threads = vec![
            until(&stop, accepting(never, called)),
            until(&stop, accepting(lure, heard)),
            until(&stop, say),
        ];
        Self { stop, calls, told, threads }
    }

    /// How often somebody called where nobody may, and what those said who were lured.
    fn end(self) -> (usize, Vec<Vec<u8>>) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        (self.calls.load(Ordering::Relaxed), self.told.lock().unwrap().clone())
    }
}

/// Does something over and over until it is stopped.
fn until(stop: &Arc<AtomicBool>, mut something: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            something();
        }
    })
}

/// Hands over who calls, if anybody does.
fn accepting(listener: TcpListener, mut serve: impl FnMut(TcpStream)) -> impl FnMut() {
    listener.set_nonblocking(true).unwrap();
    move || match listener.accept() {
        Ok((caller, _)) => serve(caller),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn someone() -> String {
    SecretKey::generate(&SystemRandom).unwrap().identity().to_string()
}

/// Garbage; a known name under another key, a known key at another address, addresses that lead nowhere or to
/// ourselves; and again and again among thousands of names. What may lead to the known key has the port `lure`.
fn hostile_packets(host: &Host, port: u16, lure: u16, victim: &str) -> Vec<Vec<u8>> {
    let here = host.address;
    let claim = |instance: &str, name: &str, key: &str, address| {
        Claim::new(instance, name, key, address, port).packet()
    };
    // Under the very name of the true announcement: some hear the key of one and the port of the other.
    let same = format!("well-{}", &victim[2..10]);
    let claims = [
        claim("well", "well", &someone(), here),
        Claim::new(&same, "well", &someone(), here, lure).packet(),
        Claim::new("far", "well", victim, here, lure).packet(),
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
fn a_hostile_neighbour_neither_holds_up_nor_learns_who_calls() {
    let scene = Scene::new(&["well", "alice", "evil"]);
    let [well, alice, evil] = scene.hosts.as_slice() else { panic!("three") };
    let mut node = well.up(&format!("--name well --allow {}", alice.identity()));
    heard(|| alice.run("run well/clock --accept-new")).ok();

    let victim = well.identity();
    let hostile = Hostile::start(evil, |port, lure| hostile_packets(evil, port, lure, &victim));
    let mut nodes = Vec::new();
    eventually("ls shows the crowd, and the true one among it", || {
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

    // The pinned node is used as if nothing were the matter. It has taken no harm, and ends as ever.
    alice.run("run well/clock").ok();
    heard(|| alice.run("query stranger")).denied("--accept-new");
    well.home.run("stop").ok();
    assert!(node.0.wait().unwrap().success());

    // Who looks for it now is lured to whoever announces its key, and does not say who he is.
    eventually("alice is lured", || {
        alice.run("query well").fails(122, "unreachable");
        hostile.told.lock().unwrap().iter().any(|first| !first.is_empty())
    });
    let (calls, told) = hostile.end();
    assert_eq!(calls, 0, "nobody called who announces no pinned key");
    let alice: Identity = alice.identity().parse().unwrap();
    for first in told.iter().filter(|first| first.len() > 5) {
        // A handshake record that begins with a ClientHello (RFC 8446 sections 5.1 and 4), and nothing behind it.
        assert_eq!((first[0], first[5]), (22, 1));
        assert!(first.len() - 5 <= usize::from(u16::from_be_bytes([first[3], first[4]])));
        assert!(!first.windows(32).any(|bytes| bytes == alice.as_bytes()));
    }
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
