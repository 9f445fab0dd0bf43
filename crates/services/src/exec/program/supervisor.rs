//! The process between this one and a program, one for each run: it is the parent that every orphan of the program
//! gets, and it ends all of them when the program has ended and its output is read, or when the process that started
//! it has closed the socket between them, `kill -9` included.
//!
//! It is this very executable, started again with [`ARGUMENT`]: what a process could do between fork and exec would
//! need `unsafe`. It takes the program over a socket, and the files that become the program's.

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
use super::launch::{Launch, MAX_ENCODED};
use super::passing;

/// The first argument of a supervisor.
pub const ARGUMENT: &str = "__supervise";
/// The second: whether it makes a control group.
pub const WITH_CGROUP: &str = "cgroup";
pub(super) const WITHOUT_CGROUP: &str = "tree";
/// What its answer begins with: the program runs, or the system's number for why it does not, or none is known.
pub(super) const STARTED: i32 = 0;
pub(super) const UNKNOWN: i32 = -1;
/// The byte behind the exit code: no process is left.
pub(super) const GONE: u8 = 0;
/// How long processes may take to clean up after SIGHUP before SIGKILL comes.
const GRACE: Duration = Duration::from_millis(200);
/// How often children are looked for while they are being killed.
const STEP: Duration = Duration::from_millis(5);
/// How often that is done before the control group is killed as a whole.
const STEPS: u32 = 100;
/// What a supervisor that cannot do its work ends with.
const BROKEN: u8 = 120;

/// Is the supervisor of one program: standard input is the socket. `with_cgroup` is the second argument.
pub fn supervise(with_cgroup: bool) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(serve(with_cgroup))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => BROKEN.into(),
    }
}

async fn serve(with_cgroup: bool) -> io::Result<()> {
    // The terminal of the process that started it is not for programs of others.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let mut control = take_control()?;
    let mut waking = Waking::new()?;
    // It stays there: a second move would take milliseconds while the client waits.
    let cgroup = if with_cgroup { ControlGroup::enter() } else { None };
    let ordered = order(&control).await;
    let Ok(Some((launch, files))) = ordered else {
        cgroup.inspect(ControlGroup::leave);
        return ordered.map(drop);
    };
    let (program, master) = match start(&launch, files) {
        Ok(started) => started,
        Err(error) => {
            let code = error.raw_os_error().unwrap_or(UNKNOWN);
            return answer(&mut control, code, cgroup.as_ref(), None).await;
        }
    };
    // If the other side has gone, the next look at the socket says so.
    let _ = answer(&mut control, STARTED, cgroup.as_ref(), master).await;
    let mut run = Run { program: Some(program), code: None, control, cgroup };
    run.watch(&mut waking).await;
    run.end(&mut waking).await;
    Ok(())
}

/// The socket, with nothing at standard input in its place.
fn take_control() -> io::Result<UnixStream> {
    let control = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    dup2_stdin(OpenOptions::new().read(true).open("/dev/null")?)?;
    let control = std::os::unix::net::UnixStream::from(control);
    control.set_nonblocking(true)?;
    UnixStream::from_std(control)
}

/// What is to be started, and its standard files; `None` if nothing is.
async fn order(control: &UnixStream) -> io::Result<Option<(Launch, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let Some(files) = passing::receive(control, &mut length).await? else { return Ok(None) };
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_ENCODED {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    if passing::receive(control, &mut bytes).await?.is_none() {
        return Ok(None);
    }
    Ok(Some((Launch::decode(&bytes)?, files)))
}

/// The answer to the order: four bytes say how the start went, four how long the path of the control group is, which
/// comes behind. A terminal's master comes with the first.
async fn answer(
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
    passing::send(control, &message, &files).await
}

/// Starts the program in a process group of its own: gives its number, and its terminal's master if it has one.
fn start(launch: &Launch, files: Vec<OwnedFd>) -> io::Result<(Pid, Option<OwnedFd>)> {
    let mut command = Command::new(&launch.file);
    command.arg0(&launch.name).args(&launch.args).env_clear().envs(&launch.environment);
    if let Some(directory) = &launch.directory {
        command.current_dir(directory);
    }
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
    // Reaped with all others: `child` is only a number.
    Ok((id, master))
}

/// As the leader of a session with a new terminal.
fn start_on_terminal(
    command: Command,
    window: Window,
) -> io::Result<(std::process::Child, Option<OwnedFd>)> {
    let (pty, pts) = pty_process::blocking::open().map_err(plain)?;
    pty.resize(pty_process::Size::new(window.rows, window.columns)).map_err(plain)?;
    let child = pty_process::blocking::Command::from(command).spawn(pts).map_err(plain)?;
    Ok((child, Some(pty.into())))
}

/// The system's error without the library's words around it.
fn plain(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(error) => error.into(),
        other => io::Error::other(other),
    }
}

/// What a supervisor waits for beside its socket.
struct Waking {
    children: Signals,
    /// What would end it before its program: the whole run ends then.
    ending: [Signals; 4],
}

impl Waking {
    fn new() -> io::Result<Self> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ];
        let [terminate, hangup, interrupt, quit] = kinds.map(signal);
        // Before the program is there: exit codes are lost while SIGCHLD is ignored.
        let children = signal(SignalKind::child())?;
        Ok(Self { children, ending: [terminate?, hangup?, interrupt?, quit?] })
    }

    async fn ended(ending: &mut [Signals; 4]) {
        let [terminate, hangup, interrupt, quit] = ending;
        select! {
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// A program that was started, and all that descends from it.
struct Run {
    /// Until it was reaped.
    program: Option<Pid>,
    code: Option<u8>,
    control: UnixStream,
    cgroup: Option<ControlGroup>,
}

impl Run {
    /// Takes away orphans, tells how the program ended, and passes signals on, until all is to end.
    async fn watch(&mut self, waking: &mut Waking) {
        let mut signals = [0; 16];
        loop {
            self.reap().await;
            select! {
                _ = waking.children.recv() => {}
                read = self.control.read(&mut signals) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(length) => signals[..length].iter().for_each(|signal| self.signal(*signal)),
                },
                () = Waking::ended(&mut waking.ending) => return,
            }
        }
    }

    /// Ends what is left: with a grace if the program itself still runs.
    async fn end(&mut self, waking: &mut Waking) {
        if self.reap().await && self.program.is_some() {
            // A stopped process could not act upon the hang-up.
            signal_all(&[Signal::HUP, Signal::CONT]);
            let gone = async {
                while self.reap().await {
                    waking.children.recv().await;
                }
            };
            let _ = timeout(GRACE, gone).await;
        }
        let mut steps = 0;
        while self.reap().await {
            kill_children();
            let _ = timeout(STEP, waking.children.recv()).await;
            steps += 1;
            if steps > STEPS
                && let Some(group) = &self.cgroup
            {
                // A process of another user, for example. This one dies, too, and the other side sees it.
                let _ = group.kill();
            }
        }
        // If the other side is there, it removes the group.
        if self.control.write_all(&[GONE]).await.is_err() {
            self.cgroup.as_ref().inspect(|group| group.leave());
        }
    }

    /// Whether any process is left. The program's exit code is told at once.
    async fn reap(&mut self) -> bool {
        let Self { program, code, .. } = self;
        let told = code.is_some();
        let left = reap(|id, status| {
            if *program == Some(id) {
                (*program, *code) = (None, Some(status));
            }
        });
        if let (false, Some(code)) = (told, self.code) {
            let _ = self.control.write_all(&[code]).await;
        }
        left
    }

    /// Sends the program and its process group a signal. The number is theirs until the program is reaped.
    fn signal(&self, number: u8) {
        let signal = Signal::from_named_raw(number.into());
        if let (Some(program), Some(signal)) = (self.program, signal) {
            let _ = kill_process_group(program, signal);
        }
    }
}
