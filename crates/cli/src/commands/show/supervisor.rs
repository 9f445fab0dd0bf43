//! The background process of one program. It owns the virtual screen, the program, and the connection to
//! the node that shows it, and serves requests on a Unix socket.

mod output;
mod serve;

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::Stdio;
use std::time::Duration;

use levada_client::home::Home;
use levada_client::{Client, Running};
use levada_services::desktop::xpra::private_folder;
use levada_services::exec::program::{Group, find};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::DISPLAY;
use super::protocol::{ControlConnection, ProgramSpec, Request, State};
use super::registry::{Claim, Entry, Registry};
use super::screen::VirtualScreen;
use super::tunnel::{Ending, Tunnel, start};
use crate::attach::Signals;
use crate::destination::Destination;
use crate::failure::{Failure, Outcome};
use crate::names::Names;
use output::ProgramOutput;
use serve::PendingRequest;

/// How long a program may take to end after SIGTERM.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the session may take to end after the program.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the last state may take to reach the watching clients.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of requests that wait to be handled.
const MAX_PENDING: usize = 8;
/// The exit codes of a shell for SIGTERM and SIGKILL.
const TERMINATED: u8 = 143;
const KILLED: u8 = 137;
/// The name of the socket in its folder.
const SOCKET: &str = "supervisor";

/// Starts a supervisor for `spec`; returns the connection on which it sends the states.
///
/// # Errors
/// [`Failure`] 120 if it cannot be started.
pub async fn spawn(spec: &ProgramSpec) -> Result<ControlConnection, Failure> {
    let fail = |error: io::Error| {
        Failure::local(format_args!("cannot start a background process: {error}"))
    };
    let (near, far) = std::os::unix::net::UnixStream::pair().map_err(fail)?;
    let mut command = Command::new(std::env::current_exe().map_err(fail)?);
    command.args(["show", "--keep"]).stdin(OwnedFd::from(far));
    if spec.detach {
        // A reader of this command's output would otherwise wait for the end of the program.
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    // Not waited for: this command ends before the supervisor.
    drop(command.spawn().map_err(fail)?);
    drop(command);
    near.set_nonblocking(true).map_err(fail)?;
    let mut connection = ControlConnection::new(UnixStream::from_std(near).map_err(fail)?);
    connection.send(spec).await.map_err(fail)?;
    Ok(connection)
}

/// Runs the supervisor. Standard input is a socket, on which the [`ProgramSpec`] arrives.
pub async fn run() -> Outcome {
    // A session of its own: Ctrl-C and SIGHUP are for the command that started it.
    let _ = rustix::process::setsid();
    let (spec, connection) = receive_spec().await?;
    let (states, watching) = watch::channel(State::Starting);
    let opened = open(&spec);
    let (sender, requests) = mpsc::channel(MAX_PENDING);
    let name = opened.as_ref().map_or("", |endpoint| endpoint.claim.name()).to_owned();
    tokio::spawn(serve::starter(connection, name.clone(), watching.clone()));
    let last = match opened {
        Ok(mut endpoint) => {
            let listener = endpoint.listener.take();
            let serving = tokio::spawn(serve::listen(listener, name, watching, sender));
            let last = supervise(&spec, &states, requests).await;
            serving.abort();
            last
        }
        Err(failure) => {
            drop(watching);
            Err(failure)
        }
    };
    let last = last.unwrap_or_else(|failure| State::Failed {
        why: failure.text().to_owned(),
        code: failure.code(),
    });
    states.send_replace(last);
    let _ = timeout(FLUSH_TIMEOUT, states.closed()).await;
    Ok(0)
}

async fn receive_spec() -> Result<(ProgramSpec, ControlConnection), Failure> {
    let fail = |error: io::Error| {
        Failure::local(format_args!("cannot read the program from standard input: {error}"))
    };
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(fail)?;
    let stream = std::os::unix::net::UnixStream::from(input);
    stream.set_nonblocking(true).map_err(fail)?;
    let mut connection = ControlConnection::new(UnixStream::from_std(stream).map_err(fail)?);
    Ok((connection.expect().await.map_err(fail)?, connection))
}

/// The claimed name, and the socket on which the supervisor listens.
struct ControlEndpoint {
    claim: Claim,
    listener: Option<UnixListener>,
    _folder: tempfile::TempDir,
}

fn open(spec: &ProgramSpec) -> Result<ControlEndpoint, Failure> {
    let folder = private_folder().map_err(Failure::local)?;
    let socket = folder.path().join(SOCKET);
    let listener = UnixListener::bind(&socket).map_err(Failure::file("listen at", &socket))?;
    let entry = Entry {
        name: spec.name.clone().unwrap_or_default(),
        program: spec.program.clone(),
        process: std::process::id(),
        socket,
    };
    let claim = Registry::open(&Home::open()?)?.claim(entry)?;
    Ok(ControlEndpoint { claim, listener: Some(listener), _folder: folder })
}

/// Starts the program and supervises it until it ends; returns the last state.
async fn supervise(
    spec: &ProgramSpec,
    states: &watch::Sender<State>,
    mut requests: mpsc::Receiver<PendingRequest>,
) -> Result<State, Failure> {
    let mut signals = Signals::new()?;
    let client = Client::new(&Home::open()?)?;
    let prepared = {
        let mut preparing = pin!(prepare(spec, &client));
        loop {
            tokio::select! {
                prepared = &mut preparing => break prepared?,
                code = signals.end() => return Ok(State::Ended { code, last_line: String::new() }),
                Some(PendingRequest { request, done }) = requests.recv() => {
                    let _ = done.send(());
                    if matches!(request, Request::Stop) {
                        return Ok(State::Ended { code: TERMINATED, last_line: String::new() });
                    }
                }
            }
        }
    };
    let socket = prepared.screen.socket().to_owned();
    let supervisor = Supervisor {
        client: &client,
        socket: &socket,
        states,
        was_shown: Cell::new(false),
        has_ended: Cell::new(false),
        at: RefCell::new(spec.at.clone()),
    };
    supervisor.run(prepared, requests, signals).await
}

/// A program that has just been started, its screen, and the session that will show it.
struct Prepared {
    /// First, so that it is dropped before its screen.
    program: Group,
    screen: VirtualScreen,
    running: Running,
}

async fn prepare(spec: &ProgramSpec, client: &Client) -> Result<Prepared, Failure> {
    let program = spec.program.first().ok_or_else(|| Failure::local("no program is named"))?;
    let is_path = program.contains('/');
    let exists = if is_path { Path::new(program).is_file() } else { find(program).is_some() };
    if !exists {
        return Err(Failure::local(format_args!("there is no program `{program}` here")));
    }
    // Requested first: a refusal must come before anything is started.
    let capability = spec.at.capability(client, Names::default(), None, DISPLAY).await?;
    let folder = private_folder().map_err(Failure::local)?;
    let screen = VirtualScreen::start(folder, spec.clipboard).await?;
    let running = start(client, &capability).await?;
    let program = start_program(spec, &screen).await?;
    Ok(Prepared { program, screen, running })
}

async fn start_program(spec: &ProgramSpec, screen: &VirtualScreen) -> Result<Group, Failure> {
    let (program, arguments) =
        spec.program.split_first().ok_or_else(|| Failure::local("no program is named"))?;
    let mut launch = screen.launch(OsStr::new(program));
    Group::start(launch.args(arguments))
        .await
        .map_err(|error| Failure::local(format_args!("cannot start `{program}`: {error}")))
}

/// Supervises a running program.
struct Supervisor<'a> {
    client: &'a Client,
    socket: &'a Path,
    states: &'a watch::Sender<State>,
    was_shown: Cell<bool>,
    has_ended: Cell<bool>,
    /// The service that shows it, or did last.
    at: RefCell<Destination>,
}

/// The tunnel, if there is one, until it ends.
type Showing<'a> = Option<Pin<Box<dyn Future<Output = Ending> + 'a>>>;

impl Supervisor<'_> {
    async fn run(
        &self,
        prepared: Prepared,
        mut requests: mpsc::Receiver<PendingRequest>,
        mut signals: Signals,
    ) -> Result<State, Failure> {
        let Prepared { mut program, mut screen, running } = prepared;
        let output = ProgramOutput::of(&mut program);
        let mut showing = self.show(None, Some(running));
        let code = loop {
            tokio::select! {
                code = program.code() => break code.map_err(Failure::local)?,
                why = screen.failed() => return Err(Failure::local(why)),
                ending = shown(&mut showing) => {
                    showing = None;
                    self.handle_ending(ending)?;
                }
                Some(PendingRequest { request, done }) = requests.recv() => {
                    match request {
                        Request::Show { at } => {
                            // The client must not take an earlier state for the result of this request.
                            self.states.send_replace(State::Starting);
                            showing = self.show(at, None);
                        }
                        Request::Hide => {
                            showing = None;
                            self.client.close();
                            self.states.send_replace(State::Hidden { why: None, code: 0 });
                        }
                        Request::Stop => {
                            let _ = done.send(());
                            break end(&mut program).await;
                        }
                        Request::Status | Request::Watch => {}
                    }
                    let _ = done.send(());
                }
                _ = signals.end() => break end(&mut program).await,
            }
        };
        self.has_ended.set(true);
        // xpra disconnects, and the session then ends on the other side.
        let shown = async {
            if showing.is_some() {
                let _ = timeout(CLOSE_TIMEOUT, shown(&mut showing)).await;
            }
        };
        tokio::join!(screen.stop(), shown);
        Ok(State::Ended { code, last_line: output.finish().await })
    }

    /// Shows the program at `at`, or where it was last shown.
    fn show(&self, at: Option<Destination>, running: Option<Running>) -> Showing<'_> {
        if let Some(at) = at {
            self.at.replace(at);
        }
        let tunnel = Tunnel {
            client: self.client,
            at: self.at.borrow().clone(),
            socket: self.socket,
            states: self.states,
            was_shown: &self.was_shown,
            has_ended: &self.has_ended,
        };
        Some(Box::pin(async move { tunnel.run(running).await }))
    }

    /// Hides the program. A refusal before it was first shown is an error, because the command waits for it.
    fn handle_ending(&self, ending: Ending) -> Result<(), Failure> {
        let (why, code) = match ending {
            Ending::Refused(failure) if !self.was_shown.get() => return Err(failure),
            Ending::Refused(failure) => (failure.text().to_owned(), failure.code()),
            Ending::Closed => ("the other side closed it".to_owned(), 0),
        };
        self.states.send_replace(State::Hidden { why: Some(why), code });
        Ok(())
    }
}

/// Waits until the tunnel ends; for ever without one.
async fn shown(showing: &mut Showing<'_>) -> Ending {
    match showing {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Terminates the program. If it does not end in time, dropping its group kills it.
async fn end(program: &mut Group) -> u8 {
    program.terminate();
    match timeout(TERMINATE_TIMEOUT, program.code()).await {
        Ok(Ok(code)) => code,
        Ok(Err(_)) | Err(_) => KILLED,
    }
}
