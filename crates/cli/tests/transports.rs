//! Shares of which one stream goes by UDP: real processes, with QUIC and TCP at one port.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use levada_capability::Ticket;
use serde_json::json;

use crate::get::{Fixed, Getting, assert_same};
use crate::support::{Home, eventually, exit_code, own_loopback, signal};

fn allow_udp(home: &Home) {
    fs::write(home.path().join("config.toml"), "udp = true\n").unwrap();
}

fn target(home: &Home) -> std::path::PathBuf {
    home.path().join("out.mkv")
}

/// Whether a process has a UDP socket at this port.
fn listens_on_udp(port: u16) -> bool {
    let sockets = ["/proc/net/udp", "/proc/net/udp6"].map(|file| fs::read_to_string(file).unwrap());
    let local = format!(":{port:04X}");
    let mut lines = sockets.iter().flat_map(|text| text.lines().skip(1));
    lines.any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&local)))
}

#[test]
fn either_stream_goes_by_udp() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (option, transport) in [
        ("--data", json!({ "control": "tcp", "data": "udp" })),
        ("--control", json!({ "control": "udp", "data": "tcp" })),
    ] {
        let well = Fixed::new(3_000_000);
        allow_udp(&well.home);
        let _node = well.up();
        let ticket = well.share(&[option, "udp"]);
        let [alice, bob] = [Home::new(), Home::new()];
        let port = free();
        let listen = format!("{}:{port}", own_loopback());
        let options = ["--seed", "10m", "--listen", &listen];
        let seeding = Getting::start(&alice, &ticket, &target(&alice), &options);
        eventually("alice has it", || seeding.most("seeding", "seconds") == 600);
        assert!(listens_on_udp(port), "{option}");
        assert_eq!(seeding.events()[0]["transport"], transport);
        assert_same(&well.film, &target(&alice));
        let status = well.home.json("swarm status 1");
        assert_eq!(status["served"]["peers"][0]["udp"], true, "{status}");
        let shown = well.home.run("swarm status 1").ok();
        assert!(shown.contains(&format!("{} udp", &option[2..])), "{shown}");
        assert!(shown.contains("tcp and udp"), "{shown}");
        let (code, events) = Getting::start(&bob, &ticket, &target(&bob), &[]).wait();
        assert_eq!((code, &events[0]["transport"]), (0, &transport), "{events:?}");
        assert_same(&well.film, &target(&bob));
    }
}

#[test]
fn a_node_without_udp_shares_by_tcp_only() {
    let well = Fixed::new(300_000);
    let film = well.film.to_str().unwrap();
    let node = well.up();
    let share = |options: &[&str]| well.home.args(["share", film].iter().chain(options));
    share(&["--data", "udp"]).fails(2, "`udp = true`");
    share(&["--data", "udp", "--control", "udp"]).fails(2, "only one");
    drop(node);
    allow_udp(&well.home);
    let node = well.up();
    let ticket = well.share(&["--data", "udp"]);
    drop(node);
    fs::remove_file(well.home.path().join("config.toml")).unwrap();
    let node = well.up();
    eventually("it is served", || well.home.json("swarm status 1")["served"].is_object());
    let alice = Home::new();
    let (code, events) = Getting::start(&alice, &ticket, &target(&alice), &[]).wait();
    let tcp = json!({ "control": "tcp", "data": "tcp" });
    assert_eq!((code, &events[0]["transport"]), (0, &tcp), "{events:?}");
    assert_same(&well.film, &target(&alice));
    assert!(node.log().contains("does not listen on UDP"), "{}", node.log());
}

/// Forwards TCP connections to `node`, and nothing else, from the address that it returns.
fn only_tcp(node: String) -> String {
    let listener = TcpListener::bind((own_loopback(), 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    };
    thread::spawn(move || {
        for incoming in listener.incoming() {
            let Ok((incoming, outgoing)) =
                incoming.and_then(|one| Ok((one, TcpStream::connect(&node)?)))
            else {
                continue;
            };
            copy(incoming.try_clone().unwrap(), outgoing.try_clone().unwrap());
            copy(outgoing, incoming);
        }
    });
    address
}

#[test]
fn where_udp_is_blocked_both_streams_go_by_tcp() {
    let well = Fixed::new(300_000);
    allow_udp(&well.home);
    let node = well.up();
    let ticket = Ticket::from_text(&well.share(&["--data", "udp"])).unwrap();
    let own = ticket.addresses().iter().find(|one| one.starts_with(&node.address())).unwrap();
    let (_, tag) = own.split_once('@').unwrap();
    let addresses = vec![format!("{}@{tag}", only_tcp(node.address()))];
    let secret = ticket.secret().to_owned();
    let ticket = Ticket::new(ticket.node(), secret, *ticket.terms(), addresses).unwrap();
    let alice = Home::new();
    let text = ticket.to_text();
    let ran = alice.args(["get", &text, "-o", target(&alice).to_str().unwrap()]);
    assert!(ran.stderr.contains("all goes by TCP"), "{ran:?}");
    ran.ok();
    assert_same(&well.film, &target(&alice));
}

#[test]
fn a_share_that_runs_its_node_listens_on_udp() {
    let well = Fixed::new(100_000);
    let config =
        format!("listen = \"{}:5382\"\nhttp = \"127.0.0.1:0\"\nannounce = false\n", own_loopback());
    fs::write(well.home.path().join("config.toml"), config).unwrap();
    let printed = well.home.path().join("ticket");
    let mut command = well.home.command(["share", well.film.to_str().unwrap(), "--control", "udp"]);
    command.stdout(File::create(&printed).unwrap()).stderr(Stdio::null());
    let mut sharing = command.spawn().unwrap();
    let ticket = || fs::read_to_string(&printed).unwrap().trim().to_owned();
    eventually("the ticket is printed", || !ticket().is_empty());
    let alice = Home::new();
    let (code, events) = Getting::start(&alice, &ticket(), Path::new(&target(&alice)), &[]).wait();
    assert_eq!((code, &events[0]["transport"]["control"]), (0, &json!("udp")), "{events:?}");
    assert_same(&well.film, &target(&alice));
    signal(sharing.id(), "INT");
    assert_eq!(exit_code(&mut sharing), 0);
}
