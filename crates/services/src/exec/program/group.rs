//! A started program and its descendants.

use std::io;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::AsyncRead;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Output;
use super::launch::Launch;
use super::start::{Containment, Ends, Spare, Supervisor, start};

/// How long a supervisor may take to start its program.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long this side waits for a supervisor to end the remaining processes. The supervisor
/// continues after that.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A program and its descendants. Dropping it ends them: SIGHUP at once and SIGKILL after 200 ms,
/// or SIGKILL at once if the program itself has ended.
pub struct Group {
    /// The program's standard input, if it is a pipe.
    pub(crate) input: Option<pipe::Sender>,
    /// The master of the program's terminal, if it has one.
    pub(crate) master: Option<pipe::Sender>,
    /// The program's standard output, until its end.
    pub(crate) output: Option<Output>,
    /// The program's standard error, until its end. A terminal has only one output.
    pub(crate) error: Option<Output>,
    pub(crate) exit: Exit,
    /// Removed after all processes have ended.
    folder: Option<TempDir>,
}

/// Receives the end of the program from the supervisor.
#[derive(Default)]
pub(crate) struct Exit {
    supervisor: Option<Supervisor>,
    /// The bytes received: the exit code, then [`super::supervisor::GONE`] once no process is left.
    received: Vec<u8>,
}

impl Group {
    /// Starts `launch`. Must be called within a runtime.
    ///
    /// # Errors
    /// The operating system's.
    pub async fn start(launch: &Launch) -> io::Result<Self> {
        Self::start_by(launch, Containment::from_environment()).await
    }

    /// As [`Self::start`] with the spare supervisor, if there is one, and starts the next spare:
    /// the program does not wait for the start of its supervisor.
    pub(crate) async fn start_with_spare(launch: &Launch) -> io::Result<Self> {
        let containment = Containment::from_environment();
        let group = match Spare::take() {
            Some(spare) => Self::start_under(launch, spare).await,
            None => Self::start_by(launch, containment).await,
        };
        Spare::prepare(containment);
        group
    }

    pub(super) async fn start_by(launch: &Launch, containment: Containment) -> io::Result<Self> {
        Self::start_under(launch, Spare::new(containment)?).await
    }

    async fn start_under(launch: &Launch, spare: Spare) -> io::Result<Self> {
        let (supervisor, ends) = timeout(START_TIMEOUT, start(launch, spare)).await??;
        let Ends { input, master, output, error } = ends;
        let exit = Exit { supervisor: Some(supervisor), received: Vec::new() };
        Ok(Self { input, master, output, error, exit, folder: None })
    }

    /// Removes `folder` once all processes have ended: until then they may write there.
    pub fn keep(&mut self, folder: TempDir) {
        self.folder = Some(folder);
    }

    /// Waits until the program has ended, and returns its exit code, or 128 and the number of the
    /// signal.
    ///
    /// # Errors
    /// The operating system's; [`io::ErrorKind::BrokenPipe`] if the supervisor was killed.
    pub async fn code(&mut self) -> io::Result<u8> {
        self.exit.code().await
    }

    /// Sends SIGTERM to the program's process group. Nothing happens if the program has ended.
    pub fn terminate(&self) {
        if let Some(supervisor) = &self.exit.supervisor {
            let signal = Signal::TERM.as_raw().to_le_bytes()[0];
            // The socket is full only if many signals wait to be forwarded.
            let _ = supervisor.control.try_write(&[signal]);
        }
    }

    /// Ends all processes, and waits until none is left, for at most 10 s: a process in
    /// uninterruptible sleep, for example on a broken disk, cannot be killed.
    pub async fn end(mut self) {
        let _ = timeout(END_TIMEOUT, self.take().gone()).await;
    }

    /// Takes the program's standard output, unless it was taken or has ended.
    pub fn take_output(&mut self) -> Option<impl AsyncRead + Send + Unpin + use<>> {
        self.output.take()
    }

    /// As [`Self::take_output`] for standard error.
    pub fn take_error(&mut self) -> Option<impl AsyncRead + Send + Unpin + use<>> {
        self.error.take()
    }

    fn take(&mut self) -> Ending {
        let exit = std::mem::take(&mut self.exit);
        if let Some(supervisor) = &exit.supervisor {
            // The supervisor reads the end of the socket, and ends the run.
            let _ = shutdown(&supervisor.control, Shutdown::Write);
        }
        Ending {
            exit,
            _open: (self.output.take(), self.error.take(), self.master.take()),
            _folder: self.folder.take(),
        }
    }

    /// The process id of the supervisor.
    #[cfg(test)]
    pub(super) fn supervisor(&self) -> u32 {
        self.exit.supervisor.as_ref().and_then(|one| one.child.0.as_ref()).unwrap().id()
    }

    /// Whether there is a control group.
    #[cfg(test)]
    pub(super) fn has_cgroup(&self) -> bool {
        self.exit.supervisor.as_ref().is_some_and(|one| one.cgroup.is_some())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let ending = self.take();
        // Without a runtime the supervisor ends the run alone.
        if let (true, Ok(runtime)) = (ending.exit.supervisor.is_some(), Handle::try_current()) {
            runtime.spawn(async move { timeout(END_TIMEOUT, ending.gone()).await });
        }
    }
}

/// What is kept until no process is left.
struct Ending {
    exit: Exit,
    /// Kept open: a program that writes a last line to a closed pipe dies by SIGPIPE before it has
    /// cleaned up.
    _open: (Option<Output>, Option<Output>, Option<pipe::Sender>),
    _folder: Option<TempDir>,
}

impl Ending {
    async fn gone(mut self) {
        let confirmed = self.exit.gone().await;
        let Some(supervisor) = self.exit.supervisor.take() else { return };
        if confirmed {
            // The client does not wait for the removal of the control group.
            tokio::spawn(supervisor.ended());
        } else {
            // The supervisor was killed: its processes are still in the control group.
            supervisor.ended().await;
        }
    }
}

impl Exit {
    /// See [`Group::code`].
    pub(crate) async fn code(&mut self) -> io::Result<u8> {
        loop {
            if let Some(code) = self.received.first() {
                return Ok(*code);
            }
            self.receive().await?;
        }
    }

    /// Waits until no process is left; false if the supervisor ended without confirming it.
    async fn gone(&mut self) -> bool {
        while self.received.len() < 2 {
            if self.receive().await.is_err() {
                return false;
            }
        }
        true
    }

    /// Reads more bytes. Cancel-safe.
    async fn receive(&mut self) -> io::Result<()> {
        let supervisor = self.supervisor.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        supervisor.control.readable().await?;
        let mut bytes = [0; 2];
        match supervisor.control.try_read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Ok(length) => {
                self.received.extend_from_slice(&bytes[..length]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}
