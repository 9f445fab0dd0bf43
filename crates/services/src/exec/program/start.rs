//! Starts a program under a supervisor, or under one that waits for it already.

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
use super::launch::Launch;
use super::passing;
use super::supervisor::{STARTED, UNKNOWN, WITH_CGROUP, WITHOUT_CGROUP};

/// The longest path of a control group, in bytes (PATH_MAX).
const MAX_PATH: usize = 4096;
/// Set to `off`, no control groups are made.
const CGROUP: &str = "LEVADA_CGROUP";

/// How a run is held together, beside the supervisor that every run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a control group, if one can be made.
    Cgroup,
    /// By the descent of its processes alone.
    Tree,
}

impl Way {
    pub(super) fn of_environment() -> Self {
        let off = std::env::var_os(CGROUP).is_some_and(|value| value == "off");
        if off { Self::Tree } else { Self::Cgroup }
    }
}

/// A process that is waited for, so that the kernel can forget it.
pub(super) struct Reaped(pub(super) Option<Child>);

/// A supervisor that has no program yet.
static SPARE: Mutex<Option<Spare>> = Mutex::new(None);

/// A supervisor that waits for a program; of no runtime. It ends when it is dropped.
pub(super) struct Spare {
    child: Reaped,
    control: StdStream,
}

/// This side of the supervisor.
pub(super) struct Supervisor {
    pub(super) child: Reaped,
    pub(super) control: UnixStream,
    pub(super) cgroup: Option<ControlGroup>,
}

/// The ends of the pipes, or of the terminal, at this side.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) input: Option<pipe::Sender>,
    pub(super) master: Option<pipe::Sender>,
    pub(super) output: Option<Output>,
    pub(super) error: Option<Output>,
}

impl Spare {
    /// A new one.
    pub(super) fn new(way: Way) -> io::Result<Self> {
        let (control, far) = StdStream::pair()?;
        control.set_nonblocking(true)?;
        let mut command = supervisor(way);
        command.stdin(OwnedFd::from(far)).stdout(Stdio::null()).stderr(Stdio::null());
        // With the command goes its copy of the far end.
        Ok(Self { child: Reaped(Some(command.spawn()?)), control })
    }

    /// The one that waits, if there is one.
    pub(super) fn take() -> Option<Self> {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).take()?.usable()
    }

    /// Makes one that waits: for the next program.
    pub(super) fn prepare(way: Way) {
        let is_there = SPARE.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !is_there && let Ok(next) = Self::new(way) {
            // One is enough: a second one is dropped.
            let _other = SPARE.lock().unwrap_or_else(PoisonError::into_inner).replace(next);
        }
    }

    /// Unless it was killed.
    fn usable(mut self) -> Option<Self> {
        let runs = self.child.0.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        runs.then_some(self)
    }
}

impl Reaped {
    /// Waits until it has ended, which it does by itself, or when its socket is closed.
    async fn ended(mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = spawn_blocking(move || child.wait()).await;
        }
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        // Without a runtime the end of this process takes it away.
        if let (Some(mut child), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || child.wait());
        }
    }
}

impl Supervisor {
    /// Waits until it has ended, and removes the control group with what is left in it.
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
    let order = [&length.to_le_bytes(), bytes.as_slice()].concat();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    passing::send(&mut control, &order, &borrowed).await?;
    drop(files);
    let Answer { code, cgroup, terminal } = answer(&mut control).await?;
    let supervisor = Supervisor { child, control, cgroup };
    if code != STARTED {
        supervisor.ended().await;
        return Err(match code {
            UNKNOWN => io::Error::other("the system does not say why"),
            code => io::Error::from_raw_os_error(code),
        });
    }
    match terminal {
        Some(master) => Ok((supervisor, Ends::of_terminal(master)?)),
        None => Ok((supervisor, ends)),
    }
}

/// This very executable, even if its file has been replaced.
#[cfg(not(test))]
fn supervisor(way: Way) -> Command {
    use std::os::unix::process::CommandExt;

    let mut command = Command::new("/proc/self/exe");
    command.arg0("levada").arg(super::supervisor::ARGUMENT).arg(word(way)).env_clear();
    command
}

/// The executable of these tests has no other way in than a test.
#[cfg(test)]
fn supervisor(way: Way) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([
        "--exact",
        "exec::program::tests::as_supervisor",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env_clear().env(super::supervisor::ARGUMENT, word(way));
    command
}

fn word(way: Way) -> &'static str {
    match way {
        Way::Cgroup => WITH_CGROUP,
        Way::Tree => WITHOUT_CGROUP,
    }
}

/// The standard files of the program, and what is at this side of them.
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
    /// A terminal's master is no pipe, and read and written as one.
    fn of_terminal(master: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        let read = pipe::Receiver::from_file_unchecked(master.try_clone()?.into())?;
        let write = pipe::Sender::from_file_unchecked(master.into())?;
        Ok(Self { master: Some(write), output: Some(Box::new(read)), ..Self::default() })
    }
}

/// What the supervisor says of the start.
struct Answer {
    code: i32,
    cgroup: Option<ControlGroup>,
    terminal: Option<OwnedFd>,
}

async fn answer(control: &mut UnixStream) -> io::Result<Answer> {
    let killed = || io::Error::new(io::ErrorKind::BrokenPipe, "its supervisor has ended");
    let mut head = [0; 8];
    let files = passing::receive(control, &mut head).await?.ok_or_else(killed)?;
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
