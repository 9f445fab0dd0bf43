//! The supervisor: a process between this one and a program, one for each run. It is the parent of
//! the program and of its orphans. It kills all of them when this process shuts down or closes the
//! socket between them, also by `kill -9`.
//!
//! It is the same executable, started again with [`ARGUMENT`]: code between fork and exec would
//! need `unsafe`. It receives the launch and the program's standard files over the socket.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use levada_service::stdio::Window;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Signal, getpid, kill_process_group, set_child_subreaper, setsid};
use rustix::stdio::dup2_stdin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::select;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::timeout;

use super::cgroup::ControlGroup;
use super::descendants::{kill_children, reap, signal_all};
use super::fd_passing;
use super::launch::{Launch, MAX_ENCODED};

/// The first argument of a supervisor.
pub const ARGUMENT: &str = "__supervise";
/// The second argument: whether it creates a control group.
pub const WITH_CGROUP: &str = "cgroup";
pub(super) const WITHOUT_CGROUP: &str = "tree";
/// The first field of its answer: the program runs, or the `errno` of the failed start, or an error
/// without one.
pub(super) const STARTED: i32 = 0;
pub(super) const UNKNOWN: i32 = -1;
/// The byte after the exit code: no process is left.
pub(super) const GONE: u8 = 0;
/// How long processes may take to clean up after SIGHUP before SIGKILL is sent.
const GRACE: Duration = Duration::from_millis(200);
/// The interval between searches for children to kill.
const KILL_INTERVAL: Duration = Duration::from_millis(5);
/// The number of such searches before the whole control group is killed.
const KILL_ROUNDS: u32 = 100;
/// The exit code of a supervisor that fails.
const FAILED: u8 = 120;

/// Runs as the supervisor of one program, with the socket as standard input. `with_cgroup` is the
/// second argument.
pub fn supervise(with_cgroup: bool) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(serve(with_cgroup))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => FAILED.into(),
    }
}

async fn serve(with_cgroup: bool) -> io::Result<()> {
    // A new session: programs must not have access to the terminal of the process that started the
    // node.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let mut control = take_control()?;
    let mut wakeups = Wakeups::new()?;
    // The supervisor stays in the group: moving it out takes milliseconds, for which the client
    // would wait.
    let cgroup = if with_cgroup { ControlGroup::enter() } else { None };
    let received = receive_launch(&control).await;
    let Ok(Some((launch, files))) = received else {
        cgroup.inspect(ControlGroup::leave);
        return received.map(drop);
    };
    let (program, master) = match start(&launch, files) {
        Ok(started) => started,
        Err(error) => {
            let code = error.raw_os_error().unwrap_or(UNKNOWN);
            return send_answer(&mut control, code, cgroup.as_ref(), None).await;
        }
    };
    // If the other side has closed the socket, the next read returns its end.
    let _ = send_answer(&mut control, STARTED, cgroup.as_ref(), master).await;
    let mut run = Run { program: Some(program), code: None, control, cgroup };
    run.watch(&mut wakeups).await;
    run.end(&mut wakeups).await;
    Ok(())
}

/// Takes the socket from standard input, which becomes `/dev/null`.
fn take_control() -> io::Result<UnixStream> {
    let control = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    dup2_stdin(OpenOptions::new().read(true).open("/dev/null")?)?;
    let control = std::os::unix::net::UnixStream::from(control);
    control.set_nonblocking(true)?;
    UnixStream::from_std(control)
}

/// The launch and its standard files; `None` if the other side closed the socket without sending
/// one.
async fn receive_launch(control: &UnixStream) -> io::Result<Option<(Launch, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let Some(files) = fd_passing::receive(control, &mut length).await? else { return Ok(None) };
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_ENCODED {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    if fd_passing::receive(control, &mut bytes).await?.is_none() {
        return Ok(None);
    }
    Ok(Some((Launch::decode(&bytes)?, files)))
}

/// Sends the result of the start: four bytes of [`STARTED`], an `errno` or [`UNKNOWN`], four bytes
/// with the length of the control group's path, and the path. The master of a terminal comes with
/// the first byte.
async fn send_answer(
    control: &mut UnixStream,
    code: i32,
    cgroup: Option<&ControlGroup>,
    master: Option<OwnedFd>,
) -> io::Result<()> {
    let path = cgroup.map(|group| group.path().as_os_str().as_encoded_bytes()).unwrap_or_default();
    let mut message = code.to_le_bytes().to_vec();
    message.extend_from_slice(&u32::try_from(path.len()).map_err(io::Error::other)?.to_le_bytes());
    message.extend_from_slice(path);
    let files: Vec<_> = master.iter().map(AsFd::as_fd).collect();
    fd_passing::send(control, &message, &files).await
}

/// Starts the program in a new process group: returns its id, and the master of its terminal if it
/// has one.
fn start(launch: &Launch, files: Vec<OwnedFd>) -> io::Result<(Pid, Option<OwnedFd>)> {
    let mut command = launch.command();
    let (child, master) = match launch.terminal {
        Some(window) => start_on_terminal(command, window)?,
        None => {
            let [input, output, error] = <[OwnedFd; 3]>::try_from(files)
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            command.stdin(Stdio::from(input)).stdout(output).stderr(error);
            (command.process_group(0).spawn()?, None)
        }
    };
    let id = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    // `child` may be dropped: `Run::reap` waits for all children.
    Ok((id, master))
}

/// Starts `command` as the leader of a new session with a new terminal.
fn start_on_terminal(
    command: Command,
    window: Window,
) -> io::Result<(std::process::Child, Option<OwnedFd>)> {
    let (pty, pts) = pty_process::blocking::open().map_err(plain)?;
    pty.resize(pty_process::Size::new(window.rows, window.columns)).map_err(plain)?;
    let child = pty_process::blocking::Command::from(command).spawn(pts).map_err(plain)?;
    Ok((child, Some(pty.into())))
}

/// The system's error, without the text that the library adds.
fn plain(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(error) => error.into(),
        other => io::Error::other(other),
    }
}

/// The signals that a supervisor waits for.
struct Wakeups {
    children: Signals,
    /// Signals that would terminate it: they end the whole run instead.
    ending: [Signals; 4],
}

impl Wakeups {
    fn new() -> io::Result<Self> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ];
        let [terminate, hangup, interrupt, quit] = kinds.map(signal);
        // Before the program starts: exit codes are lost while SIGCHLD is ignored.
        let children = signal(SignalKind::child())?;
        Ok(Self { children, ending: [terminate?, hangup?, interrupt?, quit?] })
    }

    async fn end_requested(ending: &mut [Signals; 4]) {
        let [terminate, hangup, interrupt, quit] = ending;
        select! {
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// A started program and its descendants.
struct Run {
    /// `None` once it was reaped.
    program: Option<Pid>,
    code: Option<u8>,
    control: UnixStream,
    cgroup: Option<ControlGroup>,
}

impl Run {
    /// Reaps children, reports the exit code of the program, and forwards signals, until the run is
    /// to end.
    async fn watch(&mut self, wakeups: &mut Wakeups) {
        let mut signals = [0; 16];
        loop {
            self.reap().await;
            select! {
                _ = wakeups.children.recv() => {}
                read = self.control.read(&mut signals) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(length) => signals[..length].iter().for_each(|signal| self.signal(*signal)),
                },
                () = Wakeups::end_requested(&mut wakeups.ending) => return,
            }
        }
    }

    /// Ends the remaining processes: with SIGHUP and [`GRACE`] first if the program itself still
    /// runs.
    async fn end(&mut self, wakeups: &mut Wakeups) {
        if self.reap().await && self.program.is_some() {
            // A stopped process handles SIGHUP only after SIGCONT.
            signal_all(&[Signal::HUP, Signal::CONT]);
            let gone = async {
                while self.reap().await {
                    wakeups.children.recv().await;
                }
            };
            let _ = timeout(GRACE, gone).await;
        }
        let mut rounds = 0;
        while self.reap().await {
            kill_children();
            let _ = timeout(KILL_INTERVAL, wakeups.children.recv()).await;
            rounds += 1;
            if rounds > KILL_ROUNDS
                && let Some(group) = &self.cgroup
            {
                // For processes that it may not signal, such as those of another user. It kills the
                // supervisor, too, which the other side detects.
                let _ = group.kill();
            }
        }
        // The other side removes the group, unless it has exited.
        if self.control.write_all(&[GONE]).await.is_err() {
            self.cgroup.as_ref().inspect(|group| group.leave());
        }
    }

    /// Reaps children, and reports the program's exit code at once. Returns whether any process is
    /// left.
    async fn reap(&mut self) -> bool {
        let Self { program, code, .. } = self;
        let reported = code.is_some();
        let left = reap(|id, status| {
            if *program == Some(id) {
                (*program, *code) = (None, Some(status));
            }
        });
        if let (false, Some(code)) = (reported, self.code) {
            let _ = self.control.write_all(&[code]).await;
        }
        left
    }

    /// Sends the program's process group a signal. The id is valid until the program is reaped.
    fn signal(&self, number: u8) {
        let signal = Signal::from_named_raw(number.into());
        if let (Some(program), Some(signal)) = (self.program, signal) {
            let _ = kill_process_group(program, signal);
        }
    }
}
