//! Plays the transcript of docs/two-machines.md: a server, a laptop, a node with a public address,
//! and one that connections from outside do not reach, each a host with its own users and files.

mod machine;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;

use levada_capability::Invitation;
use levada_core::SystemRandom;
use levada_lab::{Lab, Link, Options};
use tempfile::TempDir;

use crate::support::transcript::{Machines, play};
use crate::support::{Permit, Ran, eventually, shared};
use machine::{Machine, User};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/two-machines.md");

/// The hosts, and the user of each terminal. `anna` has an account on the server, too.
const HOSTS: &[(&str, User)] = &[
    ("server", machine::OWNER),
    ("laptop", machine::ANNA),
    ("public", machine::OWNER),
    ("cellar", machine::OWNER),
];

struct Network {
    // Dropped first: this ends the programs of all hosts.
    _lab: Lab,
    machines: BTreeMap<&'static str, Machine>,
    sshd: Option<Child>,
    _folder: TempDir,
    _permit: Option<Arc<Permit>>,
}

impl Network {
    /// All hosts, linked by a router. Their names resolve to their addresses.
    fn new() -> Self {
        let permit = shared();
        let folder = tempfile::tempdir().unwrap();
        let mut lab = Lab::new(Options::default()).unwrap();
        let router = lab.node("router").unwrap();
        let mut nodes = Vec::new();
        let mut names = "127.0.0.1 localhost\n".to_owned();
        for (name, user) in HOSTS {
            let node = lab.node(name).unwrap();
            lab.link(&node, &router, &Link::new()).unwrap();
            names += &format!("{} {name}.example\n", node.address());
            nodes.push((*name, *user, node));
        }
        let machine = |(name, user, node)| {
            (name, Machine::new(node, user, &folder.path().join(name), &names))
        };
        let machines = nodes.into_iter().map(machine).collect();
        Self { _lab: lab, machines, sshd: None, _folder: folder, _permit: permit }
    }

    /// Removes the routes by which the cellar is reached, except from the public node, which it
    /// calls itself: as behind a router with address translation.
    fn hide_the_cellar(&self) {
        let cellar = self.machines["cellar"].address().to_string();
        for outside in ["server", "laptop"] {
            let delete = format!("ip route del {cellar}");
            let child = self.machines[outside].start_as_root(&delete, Stdio::piped);
            Ran::from(child.wait_with_output().unwrap()).ok();
        }
    }

    /// Starts the ssh server of the server on its loopback. Anna may log in with her key, and
    /// knows the key of the server.
    fn start_sshd(&mut self) {
        let server = &self.machines["server"];
        let key = self.machines["laptop"].make_ssh_key();
        let host_key = server.prepare_sshd(&key);
        self.machines["laptop"].know_host("server", &host_key);
        let sshd = "exec /usr/sbin/sshd -D -f /run/sshd/config";
        self.sshd = Some(server.start_as_root(sshd, Stdio::null));
        eventually("sshd listens", || self.listens("server", 22));
    }
}

impl Machines for Network {
    fn start(&self, terminal: &str, script: &str, output: Stdio, errors: Stdio) -> Child {
        self.machines[terminal].start(script, output, errors)
    }

    fn listens(&self, terminal: &str, port: u16) -> bool {
        let loopback = SocketAddr::from(([127, 0, 0, 1], port));
        self.machines[terminal].connects(loopback)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(sshd) = &mut self.sshd {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
    }
}

#[test]
fn the_transcript_of_two_machines_is_true() {
    let mut network = Network::new();
    network.hide_the_cellar();
    network.start_sshd();
    let page = std::fs::read_to_string(PAGE).unwrap();
    let _nodes = play(&network, &page, "console", HashMap::new());
    assert_clients_of_the_cellar_are_one_source(&network);
}

/// Checks the price that the page names: wrong invitations of one client lock out another one.
fn assert_clients_of_the_cellar_are_one_source(network: &Network) {
    let [cellar, laptop, server] =
        ["cellar", "laptop", "server"].map(|name| &network.machines[name]);
    assert!(!laptop.connects((cellar.address(), 5382).into()), "the cellar is reached directly");
    let node = cellar.run("levada id").ok().parse().unwrap();
    for _ in 0..3 {
        let secret = Invitation::generate_secret(&SystemRandom).unwrap();
        let at = vec!["public.example:15382".to_owned()];
        let wrong = Invitation::new(node, secret, at).unwrap();
        laptop.run(&format!("levada join {}", wrong.to_text().as_str())).fails(121, "invitation");
    }
    let line = cellar.run("levada invite").ok();
    server.run(&line).fails(121, "too many wrong invitations");
}
