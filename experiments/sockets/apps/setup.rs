//! Where a server runs, and how it and its clients are started.

use std::cell::Cell;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::programs::{Load, Program};
use crate::sockets::fast;

/// How long a server may take to start or to end, and a client to finish.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The user of programs that refuse to run as root; every Linux has it.
const UNPRIVILEGED: u32 = 65534;
/// Debian keeps programs for administrators there.
const SBIN: &str = "/usr/sbin";

/// A folder for the server's files, and the port of each start.
pub struct Setup {
    folder: TempDir,
    port: Cell<u16>,
    as_user: bool,
}

/// A program and its arguments.
pub struct Words(Vec<String>);

impl Words {
    /// The program, and the first arguments.
    pub fn new<T: Into<String>>(words: impl IntoIterator<Item = T>) -> Self {
        Self(words.into_iter().map(Into::into).collect())
    }

    /// More arguments, separated by spaces.
    pub fn and(mut self, words: &str) -> Self {
        self.0.extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// One more argument, with its spaces.
    pub fn and_one(mut self, argument: &str) -> Self {
        self.0.push(argument.to_owned());
        self
    }
}

/// The way in which a program is started.
#[derive(Clone, Copy)]
pub enum Start {
    /// Without fast sockets.
    Plain,
    /// By `levada fast`.
    Fast,
    /// By `levada fast --direct`.
    Direct,
}

/// A running server.
pub struct Server<'a> {
    setup: &'a Setup,
    child: Child,
    stop: Signal,
}

/// The path of a program.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    crate::binary::find(program, [PathBuf::from(SBIN)])
}

/// Whether a program is there.
pub fn is_installed(program: &str) -> bool {
    find(&super::programs::path_of(program)).is_some()
}

impl Setup {
    /// Makes the folder, and the files that the server needs.
    pub fn new(program: &Program) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let as_user = program.refuses_root && geteuid().is_root();
        let setup = Self { folder, port: Cell::new(0), as_user };
        let run = setup.path().join("run");
        fs::create_dir(&run)?;
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700))?;
        if as_user {
            for path in [setup.path(), &run] {
                chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED))?;
            }
            // That user may not be able to read the folder of the build.
            let binary = fast::binary()?;
            for name in ["levada", "liblevada_preload.so"] {
                fs::copy(binary.with_file_name(name), setup.path().join(name))?;
            }
        }
        (program.prepare)(&setup)?;
        Ok(setup)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The port of the server that runs, or starts.
    pub fn port(&self) -> u16 {
        self.port.get()
    }

    /// Runs a program of the server's to its end.
    pub fn make(&self, words: &Words) -> anyhow::Result<String> {
        let output = self.command(words, Start::Plain, None)?.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{} failed: {text}{errors}", words.0.join(" "));
        Ok(text)
    }

    /// Starts the server, and waits until it accepts.
    pub fn start(&self, program: &Program, start: Start) -> anyhow::Result<Server<'_>> {
        self.port.set(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let words = (program.server)(self)?;
        let log = File::create(self.path().join("log"))?;
        let mut command = self.command(&words, start, None)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("start {}", program.name))?;
        let mut server = Server { setup: self, child, stop: program.stop };
        let begun = Instant::now();
        while !(program.is_ready)(self) {
            let ended = server.child.try_wait()?;
            if ended.is_some() || begun.elapsed() > TIMEOUT {
                let log = fs::read_to_string(self.path().join("log")).unwrap_or_default();
                bail!("{} does not start ({ended:?}): {log}", program.name);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    /// Whether something accepts at the port.
    pub fn accepts(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port())).is_ok()
    }

    /// A program, unprivileged where its server has to be, because both ends of a fast connection
    /// have the same user.
    fn command(
        &self,
        words: &Words,
        start: Start,
        stats: Option<&Path>,
    ) -> anyhow::Result<Command> {
        let [program, arguments @ ..] = words.0.as_slice() else { bail!("there is no program") };
        let path = find(program).with_context(|| format!("{program} is not installed"))?;
        let mut all: Vec<String> = Vec::new();
        if self.as_user {
            let user = UNPRIVILEGED.to_string();
            let words = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--"];
            all.extend(words.map(str::to_owned));
        }
        if !matches!(start, Start::Plain) {
            let own = self.path().join("levada");
            let binary = if self.as_user { &own } else { fast::binary()? };
            all.extend([binary.display().to_string(), "fast".into()]);
            all.extend(matches!(start, Start::Direct).then(|| "--direct".into()));
            all.extend(stats.map(|path| format!("--stats={}", path.display())));
            all.push("--".into());
        }
        all.push(path.display().to_string());
        all.extend(arguments.iter().cloned());
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(self.path());
        if self.as_user {
            // Where the monitor of that user listens.
            command.env("XDG_RUNTIME_DIR", self.path().join("run"));
        }
        Ok(command)
    }
}

impl Server<'_> {
    /// Runs a client to its end: what it has printed, and the part of direct connections if it may
    /// have some.
    pub fn run(
        &self,
        load: &Load,
        quick: bool,
        start: Start,
    ) -> anyhow::Result<(String, Option<f64>)> {
        let words = (load.client)(self.setup, quick);
        let stats = matches!(start, Start::Direct).then(|| self.setup.path().join("stats"));
        let mut command = self.setup.command(&words, start, stats.as_deref())?;
        let log = self.setup.path().join("client");
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut child = command.spawn().context("start the client")?;
        let begun = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if begun.elapsed() > TIMEOUT => {
                    // It may have ended just now.
                    let _ = child.kill();
                    bail!("{} does not end", words.0.join(" "));
                }
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        let text = fs::read_to_string(&log)?;
        ensure!(status.success(), "{} ended with {status}: {text}", words.0.join(" "));
        let share = stats.map(|path| {
            let stats: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
            anyhow::Ok(fast::direct_share(&stats))
        });
        Ok((text, share.transpose()?))
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let begun = Instant::now();
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), self.stop);
        while begun.elapsed() < TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
