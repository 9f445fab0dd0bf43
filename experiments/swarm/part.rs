//! The processes that experiments with real sockets start: coordinators and peers, without a node.

mod connection;
mod coordinator;
mod idle;
mod network;
mod peer;
mod peers;

use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, ensure};
use clap::Subcommand;
use levada_swarm::content::Source;
use levada_swarm::{ChunkSize, ContentId};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, channel};

use crate::program::Lines;

pub use peer::downloads;

/// One process.
#[derive(Subcommand)]
pub enum Part {
    /// The coordinator, until its standard input ends; for each line, it prints its state
    Coordinator(coordinator::Arguments),
    /// Connections that do nothing, until its standard input ends
    Idle(idle::Arguments),
    /// Peers that fetch the content at the same time, after the first line of standard input
    Peers(peers::Arguments),
}

impl Part {
    /// Runs it.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Coordinator(arguments) => coordinator::run(&arguments),
            Self::Idle(arguments) => idle::run(&arguments),
            Self::Peers(arguments) => peers::run(&arguments),
        }
    }
}

/// Longer than any process takes until its next line.
const LIMIT: Duration = Duration::from_secs(900);

/// How long a process may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A process of this program, which ends with its standard input when this is dropped, and is
/// killed if it does not.
pub struct Process {
    child: Child,
    /// None only while it is dropped.
    input: Option<ChildStdin>,
    output: Lines,
}

impl Process {
    /// Starts a [`Part`] with these words.
    pub fn start(words: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["swarm", "part"]).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = Lines::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, input, output })
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> anyhow::Result<String> {
        self.output.next(LIMIT).context("a process of the experiment has ended, or takes too long")
    }

    /// Asks for the next line, which is JSON.
    pub fn state(&mut self) -> anyhow::Result<Value> {
        writeln!(self.input.as_ref().context("no standard input")?)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Asks for the next line until `is_right`, or for at most ten seconds.
    pub fn state_when(&mut self, is_right: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let start = Instant::now();
        loop {
            let state = self.state()?;
            if is_right(&state) {
                return Ok(state);
            }
            ensure!(start.elapsed() < END_TIMEOUT, "a process of the experiment says {state}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        let start = Instant::now();
        // It removes its files.
        while start.elapsed() < END_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The memory of a process in bytes: what `/proc` calls `field`.
pub fn memory(process: u32, field: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("no {field}"))? << 10)
}

/// The CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The time of a clock that all processes share, in seconds.
fn clock_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Writes the content, which is the same in all processes, and returns what identifies it.
fn write_content(path: &Path, length: usize, chunk: u32) -> anyhow::Result<ContentId> {
    fs::write(path, super::noise(length as u64))?;
    Ok(Source::open(&[path.to_owned()], ChunkSize::new(chunk)?)?.id())
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = stdout();
    writeln!(out, "{text}")?;
    out.flush().context("write to standard output")
}

/// One value for each line of standard input, until it ends.
fn questions() -> Receiver<()> {
    let (sender, receiver) = channel(1);
    thread::spawn(move || {
        for _ in stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(()).is_err() {
                return;
            }
        }
    });
    receiver
}
