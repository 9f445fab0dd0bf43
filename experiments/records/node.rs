//! A node whose database has the records of a year.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use levada_client::control::{self, Request};
use levada_core::{Clock, SystemClock};
use levada_home::Home;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::fill;

/// The time limit for the node's start and its end.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The file with the node's output, in its home.
const LOG: &str = "log.txt";
/// Nothing is removed while the lists are measured.
const CONFIG: &str = "announce = false\n[retention]\nsessions = false\naudit = false\n";

/// A running node.
pub struct Node {
    child: Child,
    folder: TempDir,
    home: Home,
    runtime: Runtime,
    /// An identity with a hundredth of the records.
    pub person: String,
    /// The time of the newest record, in seconds since 1970.
    pub filled: u64,
}

impl Node {
    /// Starts a node with this number of entries in its audit log.
    pub fn start(binary: &Path, entries: u32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("config.toml"), CONFIG)?;
        let mut node = Self {
            child: spawn(binary, folder.path())?,
            home: Home::at(folder.path())?,
            folder,
            runtime: Runtime::new()?,
            person: String::new(),
            filled: SystemClock.now().0,
        };
        node.wait()?;
        // The records are copies of a session that the node has granted.
        let status = node.call(&Request::Status)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("not in the status");
        let identity = text(&status["identity"])?;
        let target = format!("{identity}@{}/clock", text(&status["listening"][0])?);
        let mut request = Command::new(binary);
        request.args(["request", &target, "--uses", "9"]).env("LEVADA_HOME", node.folder.path());
        ensure!(request.output()?.status.success(), "{request:?} failed");
        node.call(&Request::Stop)?;
        ensure!(node.child.wait()?.success(), "the node failed: {}", node.log());
        node.person = fill::fill(&node.home.node_db(), entries, node.filled)?;
        node.child = spawn(binary, node.folder.path())?;
        node.wait()?;
        Ok(node)
    }

    /// The reply to a request.
    pub fn call(&self, request: &Request) -> anyhow::Result<Value> {
        Ok(self.runtime.block_on(control::call(&self.home, request))?)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.call(&Request::Status).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the node ended with {status}: {}", self.log());
            }
            ensure!(begun.elapsed() < TIMEOUT, "the node does not start: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(binary: &Path, home: &Path) -> anyhow::Result<Child> {
    let log = File::create(home.join(LOG))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(binary);
    command.args(["up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.env("LEVADA_HOME", home).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("start {command:?}"))
}
