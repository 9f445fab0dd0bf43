//! A program that was started, and all that descends from it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{Shutdown, shutdown};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Output;
use super::cgroup::ControlGroup;
use super::launch::Launch;
use super::passing;
use super::supervisor::{STARTED, WITH_CGROUP, WITHOUT_CGROUP};

/// How long a supervisor may take to start its program.
const STARTING: Duration = Duration::from_secs(30);
/// How long one may take to end all that is left. It goes on by itself if processes cannot be killed for longer.
const ENDING: Duration = Duration::from_secs(10);
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

/// A program and all that descends from it. Dropping it ends them: SIGHUP at once, SIGKILL soon after; SIGKILL at
/// once if the program itself has ended.
pub struct Group {
    /// Where the program's input goes, if it was asked for and there is no terminal.
    pub(crate) input: Option<pipe::Sender>,
    /// The master of the program's terminal, if it has one.
    pub(crate) master: Option<pipe::Sender>,
    /// Where the program's output comes from, until it has ended.
    pub(crate) output: Option<Output>,
    /// The same for its errors. A terminal has one output only.
    pub(crate) error: Option<Output>,
    pub(crate) exit: Exit,
    /// Goes last.
    folder: Option<TempDir>,
}

/// Tells how the program has ended.
#[derive(Default)]
pub(crate) struct Exit {
    supervisor: Option<Supervisor>,
    /// What has been told: the exit code, and then that no process is left.
    told: Vec<u8>,
}

/// This side of the supervisor.
struct Supervisor {
    child: Child,
    control: UnixStream,
    cgroup: Option<ControlGroup>,
}

/// The ends of the pipes at this side.
#[derive(Default)]
struct Ends {
    input: Option<pipe::Sender>,
    output: Option<Output>,
    error: Option<Output>,
}

impl Group {
    /// Starts `launch`. Must be called within a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub async fn start(launch: &Launch) -> io::Result<Self> {
        let off = std::env::var_os(CGROUP).is_some_and(|value| value == "off");
        Self::start_by(launch, if off { Way::Tree } else { Way::Cgroup }).await
    }

    pub(super) async fn start_by(launch: &Launch, way: Way) -> io::Result<Self> {
        timeout(STARTING, start(launch, way)).await?
    }

    /// Removes `folder` once all has ended, and not before: the program may still write there.
    pub fn keep(&mut self, folder: TempDir) {
        self.folder = Some(folder);
    }

    /// Waits until the program has ended: its exit code, or 128 and the number of the signal.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::BrokenPipe`] if the supervisor was killed.
    pub async fn code(&mut self) -> io::Result<u8> {
        self.exit.code().await
    }

    /// Asks the program and what is in its process group to end (SIGTERM). Nothing happens if it has ended.
    pub fn terminate(&self) {
        if let Some(supervisor) = &self.exit.supervisor {
            let signal = Signal::TERM.as_raw().to_le_bytes()[0];
            // Full only if a hundred signals wait to be passed on.
            let _ = supervisor.control.try_write(&[signal]);
        }
    }

    /// Ends all of it, and waits until no process is left; at most 10 s, because nothing can kill a process that
    /// waits for a broken disk.
    pub async fn end(mut self) {
        let _ = timeout(ENDING, self.take().gone()).await;
    }

    /// Where the program's output comes from, if it is a pipe that was not taken.
    pub fn take_output(&mut self) -> Option<impl AsyncRead + Send + Unpin + use<>> {
        self.output.take()
    }

    /// The same for its errors.
    pub fn take_error(&mut self) -> Option<impl AsyncRead + Send + Unpin + use<>> {
        self.error.take()
    }

    fn take(&mut self) -> Rest {
        let exit = std::mem::take(&mut self.exit);
        if let Some(supervisor) = &exit.supervisor {
            // The supervisor reads the end.
            let _ = shutdown(&supervisor.control, Shutdown::Write);
        }
        Rest {
            exit,
            _open: (self.output.take(), self.error.take(), self.master.take()),
            _folder: self.folder.take(),
        }
    }

    /// The process number of the supervisor.
    #[cfg(test)]
    pub(super) fn supervisor(&self) -> u32 {
        self.exit.supervisor.as_ref().and_then(|one| one.child.id()).unwrap()
    }

    /// Whether there is a control group.
    #[cfg(test)]
    pub(super) fn has_cgroup(&self) -> bool {
        self.exit.supervisor.as_ref().is_some_and(|one| one.cgroup.is_some())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let rest = self.take();
        // Without a runtime the supervisor ends all by itself.
        if let (true, Ok(runtime)) = (rest.exit.supervisor.is_some(), Handle::try_current()) {
            runtime.spawn(async move { timeout(ENDING, rest.gone()).await });
        }
    }
}

/// What is there until no process is.
struct Rest {
    exit: Exit,
    /// A program that writes a last line would otherwise die of it (SIGPIPE) before it has cleaned up.
    _open: (Option<Output>, Option<Output>, Option<pipe::Sender>),
    _folder: Option<TempDir>,
}

impl Rest {
    async fn gone(mut self) {
        let told = self.exit.gone().await;
        let Some(mut supervisor) = self.exit.supervisor.take() else { return };
        // A supervisor that was killed itself: the control group has what it has left.
        if let (false, Some(group)) = (told, &supervisor.cgroup) {
            group.end().await;
        }
        let _ = supervisor.child.wait().await;
    }
}

impl Exit {
    /// Waits until the program has ended: its exit code, or 128 and the number of the signal.
    pub(crate) async fn code(&mut self) -> io::Result<u8> {
        loop {
            if let Some(code) = self.told.first() {
                return Ok(*code);
            }
            self.hear().await?;
        }
    }

    /// Waits until no process is left; false if the supervisor is gone without having said so.
    async fn gone(&mut self) -> bool {
        while self.told.len() < 2 {
            if self.hear().await.is_err() {
                return false;
            }
        }
        true
    }

    /// Reads on. Nothing is lost if the future is dropped.
    async fn hear(&mut self) -> io::Result<()> {
        let supervisor = self.supervisor.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        supervisor.control.readable().await?;
        let mut bytes = [0; 2];
        match supervisor.control.try_read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Ok(length) => {
                self.told.extend_from_slice(&bytes[..length]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn start(launch: &Launch, way: Way) -> io::Result<Group> {
    let bytes = launch.encode()?;
    let (near, far) = StdStream::pair()?;
    near.set_nonblocking(true)?;
    let mut control = UnixStream::from_std(near)?;
    let mut command = supervisor(way);
    command.stdin(OwnedFd::from(far)).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn()?;
    // Its copy of the far end of the socket.
    drop(command);
    let (files, ends) = pipes(launch)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let order = [&length.to_le_bytes(), bytes.as_slice()].concat();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    passing::send(&mut control, &order, &borrowed).await?;
    drop(files);
    let (cgroup, terminal) = answer(&mut control).await?;
    let supervisor = Supervisor { child, control, cgroup };
    let exit = Exit { supervisor: Some(supervisor), told: Vec::new() };
    let Ends { input, output, error } = ends;
    let mut group = Group { input, master: None, output, error, exit, folder: None };
    if let Some(master) = terminal {
        let (read, write) = both_directions(master)?;
        group.output = Some(Box::new(read));
        group.master = Some(write);
    }
    Ok(group)
}

/// This very executable, even if its file has been replaced.
#[cfg(not(test))]
fn supervisor(way: Way) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("levada").arg(super::supervisor::ARGUMENT).arg(word(way)).env_clear();
    command
}

/// The executable of these tests has no other way in than a test.
#[cfg(test)]
fn supervisor(way: Way) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "program::tests::as_supervisor", "--nocapture", "--test-threads=1"]);
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

/// A terminal's master is no pipe, and read and written as one.
fn both_directions(master: OwnedFd) -> io::Result<(pipe::Receiver, pipe::Sender)> {
    fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
    let read = pipe::Receiver::from_file_unchecked(master.try_clone()?.into())?;
    Ok((read, pipe::Sender::from_file_unchecked(master.into())?))
}

/// What the supervisor says of the start.
async fn answer(control: &mut UnixStream) -> io::Result<(Option<ControlGroup>, Option<OwnedFd>)> {
    let killed = || io::Error::new(io::ErrorKind::BrokenPipe, "its supervisor has ended");
    let mut head = [0; 5];
    let files = passing::receive(control, &mut head).await?.ok_or_else(killed)?;
    let [tag, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_PATH {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    control.read_exact(&mut bytes).await?;
    if tag != STARTED {
        let code = <[u8; 4]>::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        return Err(match i32::from_le_bytes(code) {
            0 => io::Error::other("the system does not say why"),
            code => io::Error::from_raw_os_error(code),
        });
    }
    Ok((ControlGroup::at(&bytes), files.into_iter().next()))
}
