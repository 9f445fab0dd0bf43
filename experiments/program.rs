//! Programs at one end of a testbed, and waiting for their output.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::testbed::Testbed;

/// The time limit for anything to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of [`poll_until`].
const STEP: Duration = Duration::from_millis(50);

/// One of a testbed's two ends.
#[derive(Clone, Copy)]
pub enum Side {
    /// Usually the client's.
    Near,
    /// Usually the server's.
    Far,
}

impl Side {
    /// Runs `work` at this end, in its network namespace.
    pub fn run<T: Send>(
        self,
        testbed: &Testbed,
        work: impl FnOnce() -> T + Send,
    ) -> anyhow::Result<T> {
        match self {
            Self::Near => testbed.near(work),
            Self::Far => testbed.far(work),
        }
    }
}

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
        Ok(child.with_context(|| format!("start {name}"))?.into())
    }

    /// Starts a program at `side`, with the arguments and the environment of `command` and without
    /// input or output. On loopback, it ends with this process, also if that is killed.
    pub fn start_quiet(testbed: &Testbed, side: Side, command: Command) -> anyhow::Result<Self> {
        if matches!(testbed, Testbed::Lab(_)) {
            return Self::start(testbed, side, quiet(command));
        }
        let child = testbed.spawn_far(command.get_program(), |bound| {
            bound.args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => bound.env(name, value),
                    None => bound.env_remove(name),
                };
            }
            bound.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        })?;
        Ok(child.into())
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

    /// Waits for `text` on the program's standard error, which must be a pipe. It is read until the
    /// program ends, so that it never blocks.
    pub fn wait_for_output(&mut self, text: &str) -> anyhow::Result<()> {
        let error = self.running()?.stderr.take().context("no standard error")?;
        let lines = Lines::new(error);
        let start = Instant::now();
        loop {
            let line = lines.next(READY_TIMEOUT.saturating_sub(start.elapsed()));
            let seconds = READY_TIMEOUT.as_secs();
            let line = line.with_context(|| format!("no line with `{text}` in {seconds} s"))?;
            if line.contains(text) {
                return Ok(());
            }
        }
    }

    /// The first line on the program's standard output, which must be a pipe. All of it is read, so
    /// that the program never blocks.
    pub fn first_line(&mut self, limit: Duration) -> anyhow::Result<String> {
        let output = self.running()?.stdout.take().context("no standard output")?;
        let line = Lines::new(output).next(limit);
        line.with_context(|| format!("no line of output in {} s", limit.as_secs()))
    }

    /// Its process.
    pub fn id(&self) -> anyhow::Result<u32> {
        Ok(self.child.as_ref().context("a program in the background")?.id())
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.running()?.try_wait()?.is_none())
    }

    fn running(&mut self) -> anyhow::Result<&mut Child> {
        self.child.as_mut().context("a program in the background")
    }
}

impl From<Child> for Program {
    fn from(child: Child) -> Self {
        Self { child: Some(child), stop_command: None }
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

/// The lines that a program prints, all of which are read.
pub struct Lines(mpsc::Receiver<String>);

impl Lines {
    /// Those of this output.
    pub fn new(output: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // A program may print more than is waited for.
                let _ = sender.send(line);
            }
        });
        Self(receiver)
    }

    /// The next one; `None` if there is none in time.
    pub fn next(&self, limit: Duration) -> Option<String> {
        self.0.recv_timeout(limit).ok()
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

/// A free address of one end.
pub fn free_address(testbed: &Testbed, side: Side) -> anyhow::Result<SocketAddr> {
    let ip = match side {
        Side::Near => testbed.near_address(),
        Side::Far => testbed.far_address(),
    };
    let listener = side.run(testbed, || TcpListener::bind(SocketAddr::new(ip, 0)))??;
    Ok(listener.local_addr()?)
}
