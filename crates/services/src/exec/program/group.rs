//! A program that was started, and all that descends from it.

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
use super::start::{Ends, Spare, Supervisor, Way, start};

/// How long a supervisor may take to start its program.
const STARTING: Duration = Duration::from_secs(30);
/// How long one may take to end all that is left. It goes on by itself if processes cannot be killed for longer.
const ENDING: Duration = Duration::from_secs(10);

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

impl Group {
    /// Starts `launch`. Must be called within a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub async fn start(launch: &Launch) -> io::Result<Self> {
        Self::start_by(launch, Way::of_environment()).await
    }

    /// The same by a supervisor that is there already, if there is one, and makes the next one: a program is started
    /// without waiting for its supervisor's start.
    pub(crate) async fn start_at_once(launch: &Launch) -> io::Result<Self> {
        let way = Way::of_environment();
        let group = match Spare::take() {
            Some(spare) => Self::start_under(launch, spare).await,
            None => Self::start_by(launch, way).await,
        };
        Spare::prepare(way);
        group
    }

    pub(super) async fn start_by(launch: &Launch, way: Way) -> io::Result<Self> {
        Self::start_under(launch, Spare::new(way)?).await
    }

    async fn start_under(launch: &Launch, spare: Spare) -> io::Result<Self> {
        let (supervisor, ends) = timeout(STARTING, start(launch, spare)).await??;
        let Ends { input, master, output, error } = ends;
        let exit = Exit { supervisor: Some(supervisor), told: Vec::new() };
        Ok(Self { input, master, output, error, exit, folder: None })
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
        let Some(supervisor) = self.exit.supervisor.take() else { return };
        if told {
            // What remains to be done, the client need not wait for.
            tokio::spawn(supervisor.ended());
        } else {
            // It was killed: the control group has what it has left.
            supervisor.ended().await;
        }
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
