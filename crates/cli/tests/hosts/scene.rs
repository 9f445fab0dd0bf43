//! Hosts, each in a network namespace, on one Ethernet.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Stdio};
use std::sync::Arc;

use levada_lab::{Lab, Node, Options};
use serde_json::Value;

use crate::support::{Home, Permit, Ran, eventually, shared};

/// The limit of address space of each `levada` process, in KiB; it uses less than that.
const MEMORY: u32 = 2 * 1024 * 1024;
/// The time limit of a command, in seconds: far more than it needs on a loaded machine.
const TIME_LIMIT: &str = "60";

/// A host with an identity of its own.
pub struct Host {
    pub node: Node,
    pub home: Home,
    pub address: Ipv4Addr,
}

impl Host {
    /// Starts a program on this host.
    pub fn spawn(&self, program: &str, args: &[&str], output: fn() -> Stdio) -> Child {
        self.node
            .spawn(program, |command| {
                command.args(args).env("LEVADA_HOME", self.home.path()).env("NO_COLOR", "1");
                command.stdin(Stdio::null()).stdout(output()).stderr(output());
            })
            .unwrap()
    }

    /// Runs `levada` on this host, with limits of time and memory.
    pub fn args(&self, args: &[&str]) -> Ran {
        let script = format!("ulimit -v {MEMORY}; exec timeout {TIME_LIMIT} \"$0\" \"$@\"");
        let command = [&["-c", script.as_str(), env!("CARGO_BIN_EXE_levada")][..], args].concat();
        self.spawn("sh", &command, Stdio::piped).wait_with_output().unwrap().into()
    }

    pub fn run(&self, line: &str) -> Ran {
        self.args(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub fn ls(&self) -> Value {
        serde_json::from_str(&self.run("ls --json").ok()).unwrap()
    }

    /// The entry of a key in `levada ls`: `null` if there is none.
    pub fn sees(&self, identity: &str) -> Value {
        let nodes = self.ls()["nodes"].take();
        let mut nodes = nodes.as_array().unwrap().clone().into_iter();
        nodes.find(|node| node["identity"] == identity).unwrap_or(Value::Null)
    }

    /// Starts a node on every address of this host.
    pub fn up(&self, options: &str) -> Up {
        let words: Vec<&str> =
            "up --http 127.0.0.1:0".split(' ').chain(options.split(' ')).collect();
        let up = Up(self.spawn(env!("CARGO_BIN_EXE_levada"), &words, Stdio::null));
        eventually("the node runs", || self.home.run("status").code == 0);
        up
    }

    pub fn identity(&self) -> String {
        self.home.identity()
    }
}

/// A running node; killed when dropped.
pub struct Up(pub Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Scene {
    // Dropped first: this ends the programs of all hosts.
    _lab: Lab,
    pub hosts: Vec<Host>,
    _permit: Option<Arc<Permit>>,
}

impl Scene {
    /// Hosts with these names on one Ethernet.
    pub fn new(names: &[&str]) -> Self {
        let permit = shared();
        let mut lab = Lab::new(Options::default()).unwrap();
        let nodes: Vec<Node> = names.iter().map(|name| lab.node(name).unwrap()).collect();
        let segment = lab.segment(&nodes.iter().collect::<Vec<_>>()).unwrap();
        let host = |node: Node| {
            let IpAddr::V4(address) = segment.address(&node).unwrap() else { panic!("IPv4") };
            Host { node, home: Home::new(), address }
        };
        let hosts = nodes.into_iter().map(host).collect();
        Self { _lab: lab, hosts, _permit: permit }
    }
}
