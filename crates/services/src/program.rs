//! Programs that services and verbs start: where they are, the end of all that they started, and what
//! they said last.

mod family;
mod tail;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tempfile::TempDir;
use tokio::io::AsyncRead;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::sleep;

use family::Member;

pub(crate) use family::Scope;
pub use family::{Mark, end_marked};
pub use tail::Tail;

/// How long a program may take to clean up after SIGHUP before SIGKILL comes.
const GRACE: Duration = Duration::from_millis(200);
/// How often new children are looked for before everybody is killed.
const MAX_GENERATIONS: usize = 8;
/// Added to the number of a signal that ended a program, as shells do.
const SIGNALLED: i32 = 128;

/// One program at a time: a terminal is opened in steps, and a program forked in between would inherit it.
static STARTING: Mutex<()> = Mutex::new(());

/// Where output comes from.
pub(crate) type Output = Box<dyn AsyncRead + Send + Unpin>;

/// The file of a program: an absolute path, or a name that is looked up in this process's PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let executable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| executable(path));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|path| executable(path))
}

/// Runs `start` while no other program is started by this process. It is given what wakes whenever a
/// child has ended: that must be there before the child is, because exit codes are lost while SIGCHLD
/// is ignored.
pub(crate) fn starting<T>(start: impl FnOnce(Signals) -> io::Result<T>) -> io::Result<T> {
    let children = signal(SignalKind::child())?;
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    start(children)
}

/// The program and all that it started. Dropping it ends them: SIGHUP at once, SIGKILL soon after.
///
/// The program is not reaped before its group was killed: until then the kernel gives its number to
/// nobody else.
pub struct Group {
    /// Where the program's output comes from, until it has ended.
    pub(crate) output: Option<Output>,
    /// The same for its errors. A terminal has one output only.
    pub(crate) error: Option<Output>,
    pub(crate) exit: Exit,
    ender: Option<Ender>,
}

/// Tells how the program has ended.
pub(crate) struct Exit {
    id: Pid,
    /// Wakes whenever some child of this process has ended.
    children: Signals,
}

impl Group {
    /// Starts `command` in a process group of its own, and keeps those of its outputs that are pipes.
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(mut command: Command) -> io::Result<Self> {
        starting(|children| {
            let mut child = command.process_group(0).spawn()?;
            let (output, error) = (child.stdout.take(), child.stderr.take());
            let mut group = Self::new(child, Scope::Group, children)?;
            group.output = output.map(|output| Box::new(output) as Output);
            group.error = error.map(|error| Box::new(error) as Output);
            Ok(group)
        })
    }

    /// `child` leads a process group; with [`Scope::Session`] also a session. `children` was there
    /// before it was started.
    pub(crate) fn new(child: Child, scope: Scope, children: Signals) -> io::Result<Self> {
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let id = id.ok_or(io::ErrorKind::NotFound)?;
        let family = Vec::new();
        let ender = Some(Ender { child, id, scope, family, reaped: false, _folder: None });
        Ok(Self { output: None, error: None, exit: Exit { id, children }, ender })
    }

    /// Removes `folder` once the program has ended, and not before: it may still write there.
    pub fn keep(&mut self, folder: TempDir) {
        if let Some(ender) = &mut self.ender {
            ender._folder = Some(folder);
        }
    }

    /// Waits until the program has ended: its exit code, or 128 and the number of the signal.
    ///
    /// # Errors
    /// What the system says.
    pub async fn code(&mut self) -> io::Result<u8> {
        self.exit.code().await
    }

    /// Asks the program and what is in its group to end (SIGTERM). Nothing happens if it has ended.
    pub fn terminate(&self) {
        // Not reaped yet: the number is still its own.
        let _ = kill_process_group(self.exit.id, Signal::TERM);
    }

    /// The program's process number.
    pub fn process(&self) -> u32 {
        self.exit.id.as_raw_pid().cast_unsigned()
    }

    /// What the program is recognised by after this process has gone.
    pub fn mark(&self) -> Option<Mark> {
        Mark::of(self.exit.id)
    }

    /// Where the program's output comes from, if it is a pipe that nobody took.
    pub fn take_output(&mut self) -> Option<impl AsyncRead + Send + Unpin + use<>> {
        self.output.take()
    }

    /// The same for its errors.
    pub fn take_error(&mut self) -> Option<impl AsyncRead + Send + Unpin + use<>> {
        self.error.take()
    }
}

impl Exit {
    /// Waits until the program has ended: its exit code, or 128 and the number of the signal.
    pub(crate) async fn code(&mut self) -> io::Result<u8> {
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
    /// Goes last.
    _folder: Option<TempDir>,
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
