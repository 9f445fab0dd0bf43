//! Programs at one end of a testbed, and waiting for their output.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::server::Side;
use crate::testbed::Testbed;

/// The time limit for anything to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of [`poll_until`].
const STEP: Duration = Duration::from_millis(50);

/// A started program, ended when dropped.
pub struct Program {
    child: Option<Child>,
    stop_command: Option<Command>,
}

impl Program {
    /// Starts a program at `side`.
    pub fn start(testbed: &Testbed, side: Side, mut command: Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = side.run(testbed, move || command.spawn())?;
        let child = child.with_context(|| format!("start {name}"))?;
        Ok(Self { child: Some(child), stop_command: None })
    }

    /// A background program that `stop_command` ends.
    pub fn detached(stop_command: Command) -> Self {
        Self { child: None, stop_command: Some(quiet(stop_command)) }
    }

    /// Runs this command before the program is killed.
    pub fn with_stop_command(mut self, stop_command: Command) -> Self {
        self.stop_command = Some(quiet(stop_command));
        self
    }

    /// Waits for `text` on the program's standard error, which must be a pipe. It is read until the program ends, so that it never blocks.
    pub fn wait_for_output(&mut self, text: &'static str) -> anyhow::Result<()> {
        let child = self.child.as_mut().context("no program")?;
        let error = BufReader::new(child.stderr.take().context("no standard error")?);
        let (found, arrived) = mpsc::channel();
        thread::spawn(move || {
            for line in error.lines().map_while(Result::ok) {
                if line.contains(text) {
                    // The program goes on after the first one.
                    let _ = found.send(());
                }
            }
        });
        let seconds = READY_TIMEOUT.as_secs();
        let waited = arrived.recv_timeout(READY_TIMEOUT);
        waited.with_context(|| format!("no line with `{text}` in {seconds} s"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(stop_command) = &mut self.stop_command {
            let _ = stop_command.status();
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The same command with standard input, output and error at /dev/null.
pub fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The standard output of a command, if it succeeds.
pub fn output(testbed: &Testbed, side: Side, mut command: Command) -> anyhow::Result<String> {
    let output = side.run(testbed, move || command.output())??;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Calls `poll` until it returns something.
pub fn poll_until<T>(
    what: &str,
    mut poll: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = poll()? {
            return Ok(found);
        }
        let limit = READY_TIMEOUT.as_secs();
        ensure!(start.elapsed() < READY_TIMEOUT, "{what} was not ready in {limit} s");
        thread::sleep(STEP);
    }
}
