//! Unauthorised peers that send data which the node must buffer.

use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::Mutex;
use std::thread;

use levada_core::{SecretKey, SystemRandom};

use super::{Peer, Victim, data};
use crate::support::{Home, eventually, memory};

/// The attack: connections, streams of each, and bytes of an unfinished operation on each stream.
/// Together they nearly use the initial credit of a connection.
const CONNECTIONS: usize = 100;
const STREAMS: u64 = 64;
const BYTES: usize = 15_000;
/// `limits.unproved_memory`, in MiB.
const BOUND: u64 = 3;
/// How much the peak memory may grow by the attack, in KiB: the bound, and the state of the
/// connections.
const MOST_MORE: u64 = 32 << 10;
/// How much memory may remain in use afterwards, in KiB: what the allocator keeps.
const MOST_LEFT: u64 = 12 << 10;

/// The node buffers no more than its limit, serves a guest from another source meanwhile, and
/// releases the memory.
#[test]
fn memory_of_unauthorised_peers_is_bounded_and_released() {
    let home = Home::new();
    let config = format!("[limits]\nunproved_memory = {BOUND}\n");
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let victim = Victim::up(&home);
    let invitation = victim.node.invite("");
    let peak = victim.peak_memory();
    let rest = memory(victim.node.process(), "VmRSS:");
    let sockets = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| fill(&victim.address, &sockets));
        }
        eventually("all attackers are connected", || sockets.lock().unwrap().len() == CONNECTIONS);
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
    victim.assert_recovered("unread data");
    eventually("no data is buffered", || victim.metric("levada_unproved_memory_bytes ") == 0);
    eventually("memory is released", || memory(victim.node.process(), "VmRSS:") < rest + MOST_LEFT);
}

/// Sends everything, unless the node closes the connection before.
fn fill(address: &str, sockets: &Mutex<Vec<TcpStream>>) {
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut peer = Peer::open_from(Ipv4Addr::new(127, 0, 0, 2), address, &key);
    sockets.lock().unwrap().push(peer.socket());
    for stream in 0..STREAMS {
        let opened = data(2 * stream + 1, 0, b"");
        let bytes = data(2 * stream + 1, 0, &[0; BYTES]);
        if peer.send(&[opened, bytes].concat()).is_err() {
            return;
        }
    }
    peer.is_served();
}
