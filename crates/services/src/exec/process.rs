//! A started program: its ends of the pipes, and the end of everything it started.

use std::io;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::sleep;

use super::config::Plan;
use super::family::{Member, Scope};
use super::pty::{self, Terminal};
use crate::stdio::Window;

/// How long a program may take to clean up after SIGHUP before SIGKILL comes.
const GRACE: Duration = Duration::from_millis(200);
/// How often new children are looked for before everybody is killed.
const MAX_GENERATIONS: usize = 8;
/// Added to the number of a signal that ended a program, as shells do.
const SIGNALLED: i32 = 128;

/// One program at a time: a terminal is opened in steps, and a program forked in between would inherit it.
static STARTING: Mutex<()> = Mutex::new(());

/// Where output comes from.
pub(super) type Output = Box<dyn AsyncRead + Send + Unpin>;

/// A program that was started.
pub(super) struct Process {
    pub(super) input: Input,
    pub(super) group: Group,
}

/// Starts the program in a process group of its own.
pub(super) fn start(plan: &Plan) -> io::Result<Process> {
    // Before there is a child: while SIGCHLD is ignored, exit codes are lost.
    let children = signal(SignalKind::child())?;
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    match plan.window {
        Some(window) => pty::start(command(plan), window, children),
        None => start_with_pipes(command(plan), children),
    }
}

fn command(plan: &Plan) -> Command {
    let mut command = Command::new(&plan.path);
    command.arg0(&plan.program).args(&plan.args).env_clear().envs(&plan.environment);
    if let Some(directory) = &plan.directory {
        command.current_dir(directory);
    }
    command
}

fn start_with_pipes(mut command: Command, children: Signals) -> io::Result<Process> {
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut group = Group::new(child, Scope::Group, children)?;
    group.output = output.map(|output| Box::new(output) as Output);
    group.error = error.map(|error| Box::new(error) as Output);
    Ok(Process { input: input.map_or(Input::Closed, Input::Pipe), group })
}

/// Where input goes.
pub(super) enum Input {
    Pipe(ChildStdin),
    Terminal(Terminal),
    /// The program takes no more; what still comes is discarded.
    Closed,
}

impl Input {
    /// Waits until the program, or a buffer before it, has taken all of `bytes`.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        let result = match self {
            Self::Pipe(pipe) => pipe.write_all(bytes).await,
            Self::Terminal(terminal) => terminal.write(bytes).await,
            Self::Closed => return,
        };
        // That nobody reads is no error: the program decides how much it takes.
        if result.is_err() {
            *self = Self::Closed;
        }
    }

    /// Lets the program see the end of its input.
    pub(super) async fn end(&mut self) {
        match self {
            // The terminal stays, it may still change its size.
            Self::Terminal(terminal) => drop(terminal.end().await),
            Self::Pipe(_) | Self::Closed => *self = Self::Closed,
        }
    }

    /// Gives the terminal another size, if there is a terminal.
    pub(super) fn resize(&self, window: Window) {
        if let Self::Terminal(terminal) = self {
            terminal.resize(window);
        }
    }
}

/// The program and all that it started. Dropping it ends them: SIGHUP at once, SIGKILL soon after.
///
/// The program is not reaped before its group was killed: until then the kernel gives its number to
/// nobody else.
pub(super) struct Group {
    /// Where the program's output comes from, until it has ended.
    pub(super) output: Option<Output>,
    /// The same for its errors. A terminal has one output only.
    pub(super) error: Option<Output>,
    pub(super) exit: Exit,
    ender: Option<Ender>,
}

/// Tells how the program has ended.
pub(super) struct Exit {
    id: Pid,
    /// Wakes whenever some child of this process has ended.
    children: Signals,
}

impl Group {
    /// `child` leads a process group; with [`Scope::Session`] also a session. `children` was there
    /// before it was started.
    pub(super) fn new(child: Child, scope: Scope, children: Signals) -> io::Result<Self> {
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let id = id.ok_or(io::ErrorKind::NotFound)?;
        let ender = Some(Ender { child, id, scope, family: Vec::new(), reaped: false });
        Ok(Self { output: None, error: None, exit: Exit { id, children }, ender })
    }
}

impl Exit {
    /// Waits until the program has ended: its exit code, or 128 and the number of the signal.
    pub(super) async fn code(&mut self) -> io::Result<u8> {
        loop {
            if let Some(code) = exit_code(self.id)? {
                return Ok(code);
            }
            self.children.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut ender) = self.ender.take() else { return };
        // What an ended program has left behind gets no grace: dropping the ender kills it.
        if !matches!(exit_code(ender.id), Ok(None)) {
            return;
        }
        ender.hang_up();
        // Without a runtime, or while it shuts down, the ender is dropped and kills at once.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(ender.end([self.output.take(), self.error.take()]));
        }
    }
}

/// What a program's end still takes, after its session has gone.
struct Ender {
    child: Child,
    id: Pid,
    scope: Scope,
    /// Those found at SIGHUP: when their parents are gone nobody could tell whose they are.
    family: Vec<Member>,
    reaped: bool,
}

impl Ender {
    fn hang_up(&mut self) {
        // Who is stopped can neither leave the group nor start another: everybody is known and is told.
        self.freeze();
        // A stopped program could not act upon the hang-up.
        for signal in [Signal::HUP, Signal::CONT] {
            self.signal(signal);
        }
    }

    /// The outputs stay open meanwhile, or a program that says farewell would die of it (SIGPIPE)
    /// before it has cleaned up.
    async fn end(mut self, outputs: [Option<Output>; 2]) {
        sleep(GRACE).await;
        self.kill();
        drop(outputs);
        self.reaped = self.child.wait().await.is_ok();
    }

    fn kill(&mut self) {
        let ended_by_itself = self.family.is_empty() && !matches!(exit_code(self.id), Ok(None));
        // The rule: there was no family, and looking for one would cost more than the program did.
        if self.scope == Scope::Session || !ended_by_itself {
            self.freeze();
        }
        self.signal(Signal::KILL);
    }

    /// Stops everybody, until nobody new is found: whoever is killed then leaves no child behind
    /// whose parent is not known any more.
    fn freeze(&mut self) {
        let mut stopped = None;
        for _ in 0..MAX_GENERATIONS {
            self.family = Member::find(self.id, self.scope, &self.family);
            if stopped == Some(self.family.len()) {
                return;
            }
            self.signal(Signal::STOP);
            stopped = Some(self.family.len());
        }
    }

    fn signal(&self, signal: Signal) {
        // Errors mean that nobody is left.
        let _ = kill_process_group(self.id, signal);
        self.family.iter().for_each(|member| member.signal(signal));
    }
}

impl Drop for Ender {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.kill();
        // A program that has not died yet is left to tokio, which reaps what is dropped.
        let _ = self.child.try_wait();
    }
}

/// How the program ended, if it has; it stays to be reaped.
fn exit_code(id: Pid) -> io::Result<Option<u8>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let Some(status) = waitid(WaitId::Pid(id), options)? else { return Ok(None) };
    let signal = status.terminating_signal().map(|number| SIGNALLED + number);
    let code = signal.or(status.exit_status()).unwrap_or(SIGNALLED);
    // An exit code has eight bits.
    Ok(Some(code.to_le_bytes()[0]))
}
