//! Starts a program under a new supervisor, or under a spare one that was started earlier.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::Output;
use super::cgroup::ControlGroup;
use super::fd_passing;
use super::launch::Launch;
use super::supervisor::{STARTED, UNKNOWN, WITH_CGROUP, WITHOUT_CGROUP};

/// The longest path of a control group, in bytes (PATH_MAX).
const MAX_PATH: usize = 4096;
/// The environment variable that disables control groups if it is `off`.
const CGROUP: &str = "LEVADA_CGROUP";

/// How the processes of a run are found, beside the supervisor that each run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Containment {
    /// By a control group, if one can be created.
    Cgroup,
    /// Only as descendants of the supervisor.
    Tree,
}

impl Containment {
    pub(super) fn from_environment() -> Self {
        let off = std::env::var_os(CGROUP).is_some_and(|value| value == "off");
        if off { Self::Tree } else { Self::Cgroup }
    }
}

/// A child process that is reaped when this is dropped.
pub(super) struct ReapedChild(pub(super) Option<Child>);

/// The spare supervisor of this process.
static SPARE: Mutex<Option<Spare>> = Mutex::new(None);

/// A supervisor without a program, which is not bound to a runtime. Dropping it ends the process.
pub(super) struct Spare {
    child: ReapedChild,
    control: StdStream,
}

/// A supervisor with a program, seen from the process that started it.
pub(super) struct Supervisor {
    pub(super) child: ReapedChild,
    pub(super) control: UnixStream,
    pub(super) cgroup: Option<ControlGroup>,
}

/// This side's ends of the pipes or of the terminal.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) input: Option<pipe::Sender>,
    pub(super) master: Option<pipe::Sender>,
    pub(super) output: Option<Output>,
    pub(super) error: Option<Output>,
}

impl Spare {
    /// Starts a supervisor.
    pub(super) fn new(containment: Containment) -> io::Result<Self> {
        let (control, far) = StdStream::pair()?;
        control.set_nonblocking(true)?;
        let mut command = supervisor(containment);
        command.stdin(OwnedFd::from(far)).stdout(Stdio::null()).stderr(Stdio::null());
        // Dropping the command closes this process's copy of the far end.
        Ok(Self { child: ReapedChild(Some(command.spawn()?)), control })
    }

    /// Takes the spare supervisor of this process, if there is one that runs.
    pub(super) fn take() -> Option<Self> {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).take()?.if_running()
    }

    /// Starts the spare supervisor for the next program, unless there is one.
    pub(super) fn prepare(containment: Containment) {
        let is_there = SPARE.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !is_there && let Ok(next) = Self::new(containment) {
            // If another thread was faster, the surplus one is dropped.
            let _other = SPARE.lock().unwrap_or_else(PoisonError::into_inner).replace(next);
        }
    }

    /// `None` if it was killed.
    fn if_running(mut self) -> Option<Self> {
        let runs = self.child.0.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        runs.then_some(self)
    }
}

impl ReapedChild {
    /// Waits until it has ended.
    async fn ended(mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = spawn_blocking(move || child.wait()).await;
        }
    }
}

impl Drop for ReapedChild {
    fn drop(&mut self) {
        // Without a runtime it is reaped by init when this process ends.
        if let (Some(mut child), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || child.wait());
        }
    }
}

impl Supervisor {
    /// Closes the socket, waits until the supervisor has ended, and removes the control group with
    /// its processes.
    pub(super) async fn ended(self) {
        drop(self.control);
        self.child.ended().await;
        if let Some(group) = self.cgroup {
            group.end().await;
        }
    }
}

/// Starts `launch` under this supervisor.
pub(super) async fn start(launch: &Launch, spare: Spare) -> io::Result<(Supervisor, Ends)> {
    let bytes = launch.encode()?;
    let Spare { child, control } = spare;
    let mut control = UnixStream::from_std(control)?;
    let (files, ends) = pipes(launch)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let message = [&length.to_le_bytes(), bytes.as_slice()].concat();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    fd_passing::send(&mut control, &message, &borrowed).await?;
    drop(files);
    let Answer { code, cgroup, terminal } = receive_answer(&mut control).await?;
    let supervisor = Supervisor { child, control, cgroup };
    if code != STARTED {
        supervisor.ended().await;
        return Err(match code {
            UNKNOWN => io::Error::other("the supervisor reported no cause"),
            code => io::Error::from_raw_os_error(code),
        });
    }
    match terminal {
        Some(master) => Ok((supervisor, Ends::of_terminal(master)?)),
        None => Ok((supervisor, ends)),
    }
}

/// The running executable, also if its file has been replaced.
#[cfg(not(test))]
fn supervisor(containment: Containment) -> Command {
    use std::os::unix::process::CommandExt;

    let mut command = Command::new("/proc/self/exe");
    command.arg0("levada").arg(super::supervisor::ARGUMENT).arg(argument(containment)).env_clear();
    command
}

/// The executable of these tests runs the supervisor as a test.
#[cfg(test)]
fn supervisor(containment: Containment) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([
        "--exact",
        "exec::program::tests::as_supervisor",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env_clear().env(super::supervisor::ARGUMENT, argument(containment));
    command
}

fn argument(containment: Containment) -> &'static str {
    match containment {
        Containment::Cgroup => WITH_CGROUP,
        Containment::Tree => WITHOUT_CGROUP,
    }
}

/// The standard files of the program, and this side's ends of them.
fn pipes(launch: &Launch) -> io::Result<(Vec<OwnedFd>, Ends)> {
    if launch.terminal.is_some() {
        return Ok((Vec::new(), Ends::default()));
    }
    let mut ends = Ends::default();
    let input = if launch.input {
        let (read, write) = io::pipe()?;
        ends.input = Some(pipe::Sender::from_owned_fd(write.into())?);
        read.into()
    } else {
        OpenOptions::new().read(true).open("/dev/null")?.into()
    };
    let mut files = vec![input];
    for output in [&mut ends.output, &mut ends.error] {
        let (read, write) = io::pipe()?;
        *output = Some(Box::new(pipe::Receiver::from_owned_fd(read.into())?));
        files.push(write.into());
    }
    Ok((files, ends))
}

impl Ends {
    /// The ends of a terminal. Its master is not a pipe, but tokio reads and writes it in the same
    /// way.
    fn of_terminal(master: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        let read = pipe::Receiver::from_file_unchecked(master.try_clone()?.into())?;
        let write = pipe::Sender::from_file_unchecked(master.into())?;
        Ok(Self { master: Some(write), output: Some(Box::new(read)), ..Self::default() })
    }
}

/// The supervisor's answer: see `send_answer` in `supervisor.rs`.
struct Answer {
    code: i32,
    cgroup: Option<ControlGroup>,
    terminal: Option<OwnedFd>,
}

async fn receive_answer(control: &mut UnixStream) -> io::Result<Answer> {
    let killed = || io::Error::new(io::ErrorKind::BrokenPipe, "its supervisor has ended");
    let mut head = [0; 8];
    let files = fd_passing::receive(control, &mut head).await?.ok_or_else(killed)?;
    let [c0, c1, c2, c3, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_PATH {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    control.read_exact(&mut bytes).await?;
    Ok(Answer {
        code: i32::from_le_bytes([c0, c1, c2, c3]),
        cgroup: ControlGroup::at(&bytes),
        terminal: files.into_iter().next(),
    })
}
