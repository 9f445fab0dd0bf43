//! `cargo xp lab`: a chain of nodes for manual tests, and the lab's conformance figures.

mod conformance;
mod parse;

use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use clap::Args;

use crate::{Backend, Lab, LabError, Link, Loss, Node, Options};
use parse::{chance_or_bursts, rate, size, time};

/// Build a chain of nodes n0, n1, … and run a command in n0, with LAB_SELF and LAB_PEER (the last
/// node) in its environment
///
/// Example: cargo xp lab --delay 20ms --rate 100mbit --at 'n1=iperf3 -s' -- sh -c 'iperf3 -c
/// $LAB_PEER'
#[derive(Args, Clone, Debug)]
pub struct LabCommand {
    /// Links between the first node and the last
    #[arg(long, default_value_t = 1, value_name = "N")]
    hops: usize,
    /// One way, of each link: 20ms, 500us, 1s
    #[arg(long, default_value = "0ms", value_parser = time)]
    delay: Duration,
    /// Each packet's delay is uniformly distributed within --delay ± this
    #[arg(long, default_value = "0ms", value_parser = time)]
    jitter: Duration,
    /// Bits per second: 100mbit, 8kbit, 1gbit
    #[arg(long, value_parser = rate)]
    rate: Option<u64>,
    /// Random loss: 1%, or in bursts: TO_BAD,TO_GOOD[,LOSS_BAD[,LOSS_GOOD]] (Gilbert-Elliott)
    #[arg(long, value_parser = chance_or_bursts)]
    loss: Option<Loss>,
    /// Length of the queue in front of the rate limit, in bytes: 64k, 1m
    #[arg(long, value_parser = size)]
    queue: Option<u64>,
    /// Longest IP packet, in bytes
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Backend of the links; default: the simplest that supports them
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Seed of the random generators
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// TCP congestion control in all nodes, as bbr or cubic; default: the host's
    #[arg(long)]
    congestion: Option<String>,
    /// Run a command in the background in another node, by the shell (repeatable)
    #[arg(long, value_name = "NODE=COMMAND")]
    at: Vec<String>,
    /// Instead: measure the accuracy of the emulation; prints a JSON row per figure
    #[arg(long, exclusive = true)]
    conformance: bool,
    /// Command to run in the first node; default: $SHELL
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl LabCommand {
    /// Builds the lab, describes it on standard error, and runs the command; returns its exit code.
    ///
    /// # Errors
    /// If the lab cannot be built or the command cannot be started.
    pub fn run(self) -> Result<ExitCode, LabError> {
        if self.conformance {
            return conformance::run().map(|()| ExitCode::SUCCESS);
        }
        if self.hops == 0 {
            return Err(LabError::Invalid(
                "a chain without links: give --hops 1 or more".to_owned(),
            ));
        }
        let backend = self.backend;
        let congestion = self.congestion.clone();
        let mut lab = Lab::new(Options { backend, congestion, ..Options::default() })?;
        let nodes = lab.chain(self.hops, &self.link())?;
        let first = &nodes[0];
        let last = &nodes[nodes.len() - 1];
        describe(&lab, &nodes)?;
        for at in &self.at {
            self.background(at, &nodes)?;
        }
        let mut child = self.foreground(first, last)?;
        let status = child.wait().map_err(LabError::system("wait for the command"))?;
        let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        Ok(ExitCode::from(code))
    }

    fn link(&self) -> Link {
        let mut link = Link::new().delay(self.delay).jitter(self.jitter).seed(self.seed);
        link.rate = self.rate;
        link.loss = self.loss.unwrap_or_default();
        link.queue = self.queue;
        link.mtu = self.mtu;
        link
    }

    fn background(&self, at: &str, nodes: &[Node]) -> Result<Child, LabError> {
        let invalid = |text: String| LabError::Invalid(format!("--at {at}: {text}"));
        let (name, command) =
            at.split_once('=').ok_or_else(|| invalid("write it as NODE=COMMAND".to_owned()))?;
        let node = nodes.iter().find(|node| node.name() == name).ok_or_else(|| {
            invalid(format!("no such node: there are n0 to n{}", nodes.len() - 1))
        })?;
        node.spawn("sh", |sh| {
            environment(sh, node, &nodes[0]).args(["-c", command]);
        })
    }

    fn foreground(&self, first: &Node, last: &Node) -> Result<Child, LabError> {
        let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "sh".into());
        let program = self.command.first().cloned().unwrap_or_else(shell);
        first.spawn(program, |command| {
            environment(command, first, last).args(self.command.iter().skip(1));
        })
    }
}

fn environment<'a>(command: &'a mut Command, own: &Node, peer: &Node) -> &'a mut Command {
    command.env("LAB_SELF", own.address().to_string()).env("LAB_PEER", peer.address().to_string())
}

/// Describes the lab on standard error.
fn describe(lab: &Lab, nodes: &[Node]) -> Result<(), LabError> {
    let mut text = String::new();
    for node in nodes {
        text += &format!("node     {} {}\n", node.name(), node.address());
    }
    if let Some(link) = lab.links().first() {
        text += &format!("backend  {}\n", link.backend());
    }
    for (name, value) in lab.settings() {
        text += &format!("setting  {name} = {value}\n");
    }
    let found = lab.attest(&nodes[0], &nodes[nodes.len() - 1])?;
    text += &format!("attest   {found}\n");
    // Standard error may be closed; the command runs all the same.
    let _ = std::io::stderr().write_all(text.as_bytes());
    Ok(())
}
