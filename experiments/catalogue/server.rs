//! A server that is measured: a process on a core of its own, until it is dropped.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::family::Family;
use super::fetch;
use crate::place::Place;

/// How long a server may take to answer for the first time.
const START: Duration = Duration::from_secs(60);
/// How long it may take to end when it is told to.
const END: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// Below a server's folder: what it said.
const SAID: &str = "said.txt";
/// Bytes of what a failed server said that are shown.
const TAIL: usize = 600;

/// Gives a program its arguments and environment.
type Configure = Box<dyn Fn(&mut Command) + Send + Sync>;

/// A running server.
pub struct Server {
    /// How it was started.
    start: Start,
    /// How long it took from its start to its first answer.
    pub start_up: Duration,
    child: Child,
    /// Told to end before it is killed. What runs in a lab is behind others that would not pass that on.
    gently: bool,
}

/// What to start.
pub struct Start {
    /// Its name in rows.
    pub name: String,
    /// What it finds its files in, and keeps what it writes.
    pub folder: TempDir,
    /// Where it will listen.
    pub address: SocketAddr,
    /// It is ready when it answers this path with 200.
    pub ready: String,
    /// The program.
    pub program: OsString,
    /// Its arguments and environment.
    pub configure: Configure,
}

impl Server {
    /// Starts it at the far end, on the core of servers, and waits until it is ready.
    pub fn start(place: &Place, start: Start) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let child = start.spawn(place)?;
        let gently = matches!(place, Place::Loopback);
        let mut server = Self { start, start_up: Duration::ZERO, child, gently };
        server.wait(place, begun)?;
        Ok(server)
    }

    /// Starts it again, with the same files, whether it was killed or runs.
    pub fn again(&mut self, place: &Place) -> anyhow::Result<()> {
        self.end();
        let begun = Instant::now();
        self.child = self.start.spawn(place)?;
        self.wait(place, begun)
    }

    /// Its name in rows.
    pub fn name(&self) -> &str {
        &self.start.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.start.address
    }

    /// Its processes.
    pub fn family(&self) -> Family {
        Family(self.child.id())
    }

    /// Its files.
    pub fn folder(&self) -> &Path {
        self.start.folder.path()
    }

    /// The id of its process, to be killed by.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn wait(&mut self, place: &Place, begun: Instant) -> anyhow::Result<()> {
        self.answers(place, begun).with_context(|| format!("start {}", self.start.name))?;
        self.start_up = begun.elapsed();
        Ok(())
    }

    fn answers(&mut self, place: &Place, begun: Instant) -> anyhow::Result<()> {
        let ready = self.start.ready.clone();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once with {status}: {}", self.said());
            }
            match fetch::get(place, self.start.address, &ready, None) {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) if begun.elapsed() > START => {
                    bail!("{ready} is still answered {}: {}", answer.status, self.said())
                }
                Err(error) if begun.elapsed() > START => {
                    bail!("it does not answer ({error:#}): {}", self.said())
                }
                _ => thread::sleep(LOOK),
            }
        }
    }

    /// The last that it said.
    fn said(&self) -> String {
        let text = fs::read(self.folder().join(SAID)).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(TAIL)..];
        String::from_utf8_lossy(tail).trim().to_owned()
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn end(&mut self) {
        let begun = Instant::now();
        if self.gently && self.runs() && kill_process(self.pid(), Signal::TERM).is_ok() {
            while begun.elapsed() < END && self.runs() {
                thread::sleep(LOOK);
            }
        }
        // In vain if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Start {
    fn spawn(&self, place: &Place) -> anyhow::Result<Child> {
        let path = self.folder.path().join(SAID);
        let said = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let also = said.try_clone()?;
        let core = super::SERVERS.min(thread::available_parallelism()?.get() - 1).to_string();
        place.spawn_far("taskset", |command| {
            command.args(["-c", &core]).arg(&self.program);
            (self.configure)(command);
            command.stdin(Stdio::null()).stdout(also).stderr(said);
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
