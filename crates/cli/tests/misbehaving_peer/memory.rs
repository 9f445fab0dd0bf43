//! Peers that have proved no right, and send what the node cannot use yet.

use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::Mutex;
use std::thread;

use levada_core::{SecretKey, SystemRandom};

use super::{Peer, Victim, data};
use crate::support::{Home, eventually, memory};

/// Connections, each with as many streams, and bytes of an operation without an end on each stream: together nearly
/// the credit that the protocol gives a connection at its start.
const CONNECTIONS: usize = 100;
const STREAMS: u64 = 64;
const BYTES: usize = 15_000;
/// What the node is told to hold of them, in MiB.
const BOUND: u64 = 3;
/// What it may need for it, and for as many connections, in KiB.
const MOST_MORE: u64 = 32 << 10;
/// What may be left of that afterwards, in KiB: what the allocator keeps.
const MOST_LEFT: u64 = 12 << 10;

/// The node holds no more of them than it was told to, lets a guest from another source in meanwhile, and gives the
/// memory back.
#[test]
fn what_peers_without_a_right_send_is_bounded_and_given_back() {
    let home = Home::new();
    let config = format!("[limits]\nunproved_memory = {BOUND}\n");
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let victim = Victim::up(&home);
    let invitation = victim.node.invite("");
    let (peak, rest) = (victim.peak_memory(), memory(victim.node.process(), "VmRSS:"));
    let sockets = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| fill(&victim.address, &sockets));
        }
        eventually("all attack", || sockets.lock().unwrap().len() == CONNECTIONS);
        eventually("some are closed", || victim.metric("levada_unproved_closed_total ") > 0);
        let guest = Home::new();
        guest.args(["join", &invitation, "--as", "well"]).ok();
        guest.run("run well/clock").ok();
        assert!(victim.metric("levada_unproved_memory_bytes ") <= BOUND << 20);
        for socket in sockets.lock().unwrap().iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    });
    let grown = victim.peak_memory() - peak;
    assert!(grown < MOST_MORE, "{grown} KiB");
    victim.is_well("unread data");
    eventually("nothing is held", || victim.metric("levada_unproved_memory_bytes ") == 0);
    eventually("memory is given back", || {
        memory(victim.node.process(), "VmRSS:") < rest + MOST_LEFT
    });
}

/// Sends until it has sent everything, or the node has cut it off.
fn fill(address: &str, sockets: &Mutex<Vec<TcpStream>>) {
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut peer = Peer::polite_from(Ipv4Addr::new(127, 0, 0, 2), address, &key);
    sockets.lock().unwrap().push(peer.socket());
    for stream in 0..STREAMS {
        let (opened, bytes) = (data(2 * stream + 1, 0, b""), data(2 * stream + 1, 0, &[0; BYTES]));
        if peer.send(&[opened, bytes].concat()).is_err() {
            return;
        }
    }
    peer.is_served();
}
