//! Real nodes and real commands for tests: each home is a folder of its own, each node a process of
//! its own, which listens on loopback and is ended by its test.

pub mod entity;
pub mod forward;
mod schedule;
pub mod terminal;
pub mod transcript;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

pub use schedule::{Permit, exclusive, shared};
use serde_json::Value;
use tempfile::TempDir;

/// How long a step may take before its test fails: far more than it needs on a loaded machine.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether counts and sizes are those of `scripts/test --all` (`LEVADA_TEST_FULL`).
pub fn in_full() -> bool {
    std::env::var_os("LEVADA_TEST_FULL").is_some()
}

/// One identity on this machine, which a test has while it holds a permit to run.
pub struct Home {
    folder: TempDir,
    _permit: Option<Arc<Permit>>,
}

/// The output and exit code of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The standard output of a command that must have succeeded, without its last newline.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "failed: {}{}", self.stdout, self.stderr);
        self.stdout.trim_end_matches('\n').to_owned()
    }

    /// Asserts the exit code, and that standard error contains `text`.
    #[track_caller]
    pub fn fails(self, code: i32, text: &str) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.contains(text), "`{text}` is not in: {}", self.stderr);
    }

    /// Asserts that the node or the client denied the operation (exit code 121).
    #[track_caller]
    pub fn denied(self, text: &str) {
        self.fails(121, text);
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Home {
    pub fn new() -> Self {
        let permit = shared();
        Self { folder: tempfile::tempdir().unwrap(), _permit: permit }
    }

    /// A home in a new folder inside `above`.
    pub fn on(above: &Path) -> Self {
        let permit = shared();
        Self { folder: tempfile::tempdir_in(above).unwrap(), _permit: permit }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A `levada` command of this home, with empty standard input.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command
            .args(args)
            .env("LEVADA_HOME", self.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs `levada` with `line`, split at spaces.
    pub fn run(&self, line: &str) -> Ran {
        self.args(line.split_whitespace())
    }

    /// Runs `levada` with these arguments.
    pub fn args<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Starts `levada` with an open input; its output is discarded.
    pub fn spawn(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Runs `levada` with `input` on its standard input.
    pub fn with_input(&self, line: &str, input: &[u8]) -> Ran {
        let mut command = self.command(line.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // The command may end before it has read everything.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output.into()
    }

    /// The parsed output of `levada … --json`.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(&format!("{line} --json")).ok()).unwrap()
    }

    /// The entry of a key in `levada ls`: `null` if there is none.
    pub fn sees(&self, identity: &str) -> Value {
        let nodes = self.json("ls")["nodes"].take();
        let mut nodes = nodes.as_array().unwrap().clone().into_iter();
        nodes.find(|node| node["identity"] == identity).unwrap_or(Value::Null)
    }

    pub fn identity(&self) -> String {
        self.run("id").ok()
    }

    /// Runs `levada` with a passphrase in its environment.
    pub fn with_passphrase(&self, passphrase: &str, line: &str) -> Ran {
        let mut command = self.command(line.split_whitespace());
        command.env("LEVADA_PASSPHRASE", passphrase).output().unwrap().into()
    }

    /// A home with copies of the same files, such as a thief of the key has.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        let files = format!("{}/.", self.path().display());
        let copied = Command::new("cp").args(["-a", &files]).arg(copy.path()).status().unwrap();
        assert!(copied.success());
        copy
    }

    /// Starts a node of this home on free ports of loopback.
    pub fn up(&self, options: &str) -> Node<'_> {
        let line = format!("up --listen 127.0.0.1:0 --http 127.0.0.1:0 {options}");
        self.up_with(&line)
    }

    /// Starts a node with exactly this command line and waits until it answers.
    pub fn up_with(&self, line: &str) -> Node<'_> {
        self.up_in(line, &[])
    }

    /// As [`Self::up_with`], with these environment variables.
    pub fn up_in(&self, line: &str, environment: &[(&str, &str)]) -> Node<'_> {
        let mut command = self.command(line.split_whitespace());
        command.envs(environment.iter().copied());
        self.start(command)
    }

    /// As [`Self::up_with`], for a process that may open at most `files` files.
    pub fn up_with_files(&self, files: u32, line: &str) -> Node<'_> {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" {line}");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_levada")]);
        command.env("LEVADA_HOME", self.path()).env("NO_COLOR", "1").stdin(Stdio::null());
        self.start(command)
    }

    fn start(&self, mut command: Command) -> Node<'_> {
        let log = self.path().join("up.log");
        let log_file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        command.stdout(log_file.try_clone().unwrap()).stderr(log_file);
        let child = command.spawn().unwrap();
        let mut node = Node { home: self, child, log };
        node.wait_until_ready();
        node
    }
}

/// A running node; killed when dropped.
pub struct Node<'a> {
    pub home: &'a Home,
    pub child: Child,
    log: PathBuf,
}

impl Node<'_> {
    fn wait_until_ready(&mut self) {
        let start = Instant::now();
        loop {
            let status = self.home.run("status --json");
            if status.code == 0 {
                let process =
                    serde_json::from_str::<Value>(&status.stdout).unwrap()["process"].as_u64();
                if process == Some(u64::from(self.child.id())) {
                    return;
                }
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the node ended ({status}): {}", self.log());
            }
            assert!(start.elapsed() < STEP_TIMEOUT, "the node is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The output of the node so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.home.json("status")["listening"][0].as_str().unwrap().to_owned()
    }

    /// `IDENTITY@127.0.0.1:PORT`.
    pub fn at(&self) -> String {
        format!("{}@{}", self.home.identity(), self.address())
    }

    /// Of the HTTP port: `127.0.0.1:PORT`.
    pub fn http_address(&self) -> String {
        self.home.json("status")["http"].as_str().unwrap().to_owned()
    }

    /// Status and body of a page of the HTTP port.
    pub fn http(&self, path: &str) -> (u16, String) {
        let mut stream = std::net::TcpStream::connect(self.http_address()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// The code of an invitation of this node.
    pub fn invite(&self, options: &str) -> String {
        let line = self.home.run(&format!("invite {options}")).ok();
        line.strip_prefix("levada join ").unwrap().to_owned()
    }

    /// Invites `guest`, who joins and pins this node as `name`.
    pub fn welcome(&self, guest: &Home, name: &str) {
        let code = self.invite("");
        guest.args(["join", &code, "--as", name]).ok();
    }

    /// Kills the node with SIGKILL and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        signal(self.process(), name);
    }

    /// Waits until the node ends by itself: its exit code.
    pub fn wait(mut self) -> i32 {
        let ended = comes(|| self.child.try_wait().unwrap().is_some());
        assert!(ended, "the node does not end: {}", self.log());
        exit_code(&mut self.child)
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of loopback that no other test uses, so that a port stays free there between two
/// runs.
pub fn own_loopback() -> String {
    static LAST: AtomicU32 = AtomicU32::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    assert!(number < 255, "there are no more addresses in this test's block");
    format!("127.{high}.{low}.{number}")
}

/// A name that no other test gives to a node: all nodes announce themselves on the same loopback.
pub fn own_name(name: &str) -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    format!("{name}-{}-{number}", std::process::id())
}

/// Sends a signal to a process that the test has started and not waited for.
pub fn signal(process: u32, name: &str) {
    let process = process.to_string();
    assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
}

/// The value of a line of `/proc/PID/status` such as `VmRSS:`, in KiB.
pub fn memory(process: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|found| found.starts_with(line)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The peak resident memory of a process that runs, in KiB.
pub fn peak_memory(process: u32) -> u64 {
    memory(process, "VmHWM:")
}

/// Kills a process after [`STEP_TIMEOUT`], so that a test that reads what it prints ends. Dropped
/// before the process is waited for: its number may then belong to another process.
pub struct Watchdog {
    _done: Sender<()>,
}

impl Watchdog {
    pub fn over(process: u32) -> Self {
        let (done, ended) = channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(STEP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                signal(process, "KILL");
            }
        });
        Self { _done: done }
    }
}

/// Waits for the end of a child: its exit code, or -1 if a signal ended it.
#[track_caller]
pub fn exit_code(child: &mut Child) -> i32 {
    let mut status = None;
    eventually("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code().unwrap_or(-1)
}

/// Waits until `holds`; fails with `what` after [`STEP_TIMEOUT`].
#[track_caller]
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(comes(holds), "did not happen: {what}");
}

/// Waits until `holds`; false after [`STEP_TIMEOUT`].
pub fn comes(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > STEP_TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Runs a command until it finds the announced node: on a machine under load, an answer of
/// multicast DNS may arrive after the command has stopped waiting.
#[track_caller]
pub fn until_found(mut run: impl FnMut() -> Ran) -> Ran {
    let mut last = None;
    eventually("the announced node is found", || {
        let ran = run();
        let missed = ran.stderr.contains("is not announced on this network");
        last = Some(ran);
        !missed
    });
    last.unwrap()
}
