//! A measured server: a process pinned to its core, ended when dropped.

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

use super::fetch;
use crate::process_tree::ProcessTree;
use crate::testbed::Testbed;

/// The time limit for a server's first answer.
const START: Duration = Duration::from_secs(60);
/// The time limit for its end after SIGTERM.
const END: Duration = Duration::from_secs(5);
/// The interval of polls for start and end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The file with a server's output, in its folder.
const LOG: &str = "log.txt";
/// How many bytes of a failed server's output are shown.
const TAIL: usize = 600;

/// Sets a program's arguments and environment.
type Configure = Box<dyn Fn(&mut Command) + Send + Sync>;

/// A running server.
pub struct Server {
    /// Its configuration, for a restart.
    start: Start,
    /// The time from its start to its first answer.
    pub start_up: Duration,
    child: Child,
    /// Whether it gets SIGTERM before it is killed. In a lab it runs behind processes that do not
    /// forward signals.
    graceful: bool,
}

/// The configuration of a server.
pub struct Start {
    /// Its name in rows.
    pub name: String,
    /// Its working folder.
    pub folder: TempDir,
    /// Its listening address.
    pub address: SocketAddr,
    /// The path that it answers with 200 when it is ready.
    pub ready: String,
    /// The program.
    pub program: OsString,
    /// Whether it may run on all cores, and not only on that of the servers.
    pub all_cores: bool,
    /// Its arguments and environment.
    pub configure: Configure,
}

impl Server {
    /// Starts a server at the far end, on its cores, and waits until it is ready.
    pub fn start(testbed: &Testbed, start: Start) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let child = start.spawn(testbed)?;
        let graceful = matches!(testbed, Testbed::Loopback);
        let mut server = Self { start, start_up: Duration::ZERO, child, graceful };
        server.wait(testbed, begun)?;
        Ok(server)
    }

    /// Ends the server if it runs, and starts it again with the same files.
    pub fn restart(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        self.end();
        let begun = Instant::now();
        self.child = self.start.spawn(testbed)?;
        self.wait(testbed, begun)
    }

    /// Its name in rows.
    pub fn name(&self) -> &str {
        &self.start.name
    }

    /// Its listening address.
    pub fn address(&self) -> SocketAddr {
        self.start.address
    }

    /// Its processes.
    pub fn process_tree(&self) -> ProcessTree {
        ProcessTree(self.child.id())
    }

    /// Its files.
    pub fn folder(&self) -> &Path {
        self.start.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn wait(&mut self, testbed: &Testbed, begun: Instant) -> anyhow::Result<()> {
        self.wait_until_ready(testbed, begun)
            .with_context(|| format!("start {}", self.start.name))?;
        self.start_up = begun.elapsed();
        Ok(())
    }

    fn wait_until_ready(&mut self, testbed: &Testbed, begun: Instant) -> anyhow::Result<()> {
        let ready = self.start.ready.clone();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once with {status}: {}", self.log_tail());
            }
            match fetch::get(testbed, self.start.address, &ready, None) {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) if begun.elapsed() > START => {
                    bail!("{ready} is still answered {}: {}", answer.status, self.log_tail())
                }
                Err(error) if begun.elapsed() > START => {
                    bail!("it does not answer ({error:#}): {}", self.log_tail())
                }
                _ => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// The end of its output.
    fn log_tail(&self) -> String {
        let text = fs::read(self.folder().join(LOG)).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(TAIL)..];
        String::from_utf8_lossy(tail).trim().to_owned()
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn end(&mut self) {
        let begun = Instant::now();
        if self.graceful && self.runs() && kill_process(self.pid(), Signal::TERM).is_ok() {
            while begun.elapsed() < END && self.runs() {
                thread::sleep(POLL_INTERVAL);
            }
        }
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Start {
    fn spawn(&self, testbed: &Testbed) -> anyhow::Result<Child> {
        let path = self.folder.path().join(LOG);
        let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let also = log.try_clone()?;
        let last = thread::available_parallelism()?.get() - 1;
        let cores = match self.all_cores {
            true => format!("0-{last}"),
            false => super::SERVERS.min(last).to_string(),
        };
        testbed.spawn_far("taskset", |command| {
            command.args(["-c", &cores]).arg(&self.program);
            (self.configure)(command);
            command.stdin(Stdio::null()).stdout(also).stderr(log);
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
