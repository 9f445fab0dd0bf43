//! The background process of one program. It owns the virtual screen, the program, and the
//! connection to the node that shows it, and serves requests on a Unix socket.

mod output;
mod prepare;
mod serve;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;

use levada_client::{Client, ClientError, Running};
use levada_home::Home;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::protocol::{ControlConnection, ProgramSpec, Request, State};
use super::registry::{Claim, Entry, Registry};
use super::tunnel::{Ending, Tunnel};
use super::{Right, ShowError};
use crate::desktop::xpra::private_folder;
use crate::exec::program::Group;
use output::ProgramOutput;
use prepare::{Prepared, prepare};
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

/// Runs the program of `spec` until it ends, or until `stop` resolves to the exit code for that
/// case. `starter` is the connection to the command that started this process; it gets every state,
/// and so do the clients that find this process in the registry of `home`.
///
/// Needs a process of its own: the program's output goes to standard output and error, which are
/// redirected to `/dev/null` once the starter has disconnected.
pub async fn supervise(
    home: &Home,
    spec: &ProgramSpec,
    starter: ControlConnection,
    stop: impl Future<Output = u8>,
) {
    let (states, watching) = watch::channel(State::Starting);
    let opened = open(home, spec);
    let (sender, requests) = mpsc::channel(MAX_PENDING);
    let name = opened.as_ref().map_or("", |endpoint| endpoint.claim.name()).to_owned();
    tokio::spawn(serve::starter(starter, name.clone(), watching.clone()));
    let last = match opened {
        Ok(mut endpoint) => {
            let listener = endpoint.listener.take();
            let serving = tokio::spawn(serve::listen(listener, name, watching, sender));
            let last = run(home, spec, &states, requests, pin!(stop)).await;
            serving.abort();
            last
        }
        Err(error) => {
            drop(watching);
            Err(error)
        }
    };
    let last = last
        .unwrap_or_else(|error| State::Failed { why: error.to_string(), code: error.exit_code() });
    states.send_replace(last);
    let _ = timeout(FLUSH_TIMEOUT, states.closed()).await;
}

/// The claimed name, and the socket on which the supervisor listens.
struct ControlEndpoint {
    claim: Claim,
    listener: Option<UnixListener>,
    _folder: tempfile::TempDir,
}

fn open(home: &Home, spec: &ProgramSpec) -> Result<ControlEndpoint, ShowError> {
    let folder = private_folder().map_err(ShowError::local)?;
    let socket = folder.path().join(SOCKET);
    let listener = UnixListener::bind(&socket).map_err(ShowError::file("listen at", &socket))?;
    let entry = Entry {
        name: spec.name.clone().unwrap_or_default(),
        program: spec.program.clone(),
        process: std::process::id(),
        socket,
    };
    let claim = Registry::open(home)?.claim(entry)?;
    Ok(ControlEndpoint { claim, listener: Some(listener), _folder: folder })
}

/// Starts the program and supervises it until it ends; returns the last state.
async fn run(
    home: &Home,
    spec: &ProgramSpec,
    states: &watch::Sender<State>,
    mut requests: mpsc::Receiver<PendingRequest>,
    mut stop: Pin<&mut impl Future<Output = u8>>,
) -> Result<State, ShowError> {
    // The control socket is served meanwhile, and known.db may be locked.
    let opened = home.clone();
    let client =
        spawn_blocking(move || Client::new(&opened)).await.map_err(ClientError::local)??;
    let prepared = {
        let mut preparing = pin!(prepare(spec, &client));
        loop {
            tokio::select! {
                prepared = &mut preparing => break prepared?,
                code = &mut stop => return Ok(State::Ended { code, last_line: String::new() }),
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
        right: RefCell::new(spec.right.clone()),
    };
    supervisor.run(prepared, requests, stop).await
}

/// Supervises a running program.
struct Supervisor<'a> {
    client: &'a Client,
    socket: &'a Path,
    states: &'a watch::Sender<State>,
    was_shown: Cell<bool>,
    has_ended: Cell<bool>,
    /// The right by which it is shown, or was last.
    right: RefCell<Right>,
}

/// The tunnel, if there is one, until it ends.
type Showing<'a> = Option<Pin<Box<dyn Future<Output = Ending> + 'a>>>;

impl Supervisor<'_> {
    async fn run(
        &self,
        prepared: Prepared,
        mut requests: mpsc::Receiver<PendingRequest>,
        mut stop: Pin<&mut impl Future<Output = u8>>,
    ) -> Result<State, ShowError> {
        let Prepared { mut program, mut screen, running } = prepared;
        let output = ProgramOutput::of(&mut program);
        let mut showing = self.show(None, Some(running));
        let code = loop {
            tokio::select! {
                code = program.code() => break code.map_err(ShowError::local)?,
                why = screen.failed() => return Err(ShowError::Local(why)),
                ending = shown(&mut showing) => {
                    showing = None;
                    self.handle_ending(ending)?;
                }
                Some(PendingRequest { request, done }) = requests.recv() => {
                    match request {
                        Request::Show { right } => {
                            // The client must not take an earlier state for the result of this
                            // request.
                            self.states.send_replace(State::Starting);
                            showing = self.show(right, None);
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
                _ = &mut stop => break end(&mut program).await,
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

    /// Shows the program by `right`, or by the right of the last time.
    fn show(&self, right: Option<Right>, running: Option<Running>) -> Showing<'_> {
        if let Some(right) = right {
            self.right.replace(right);
        }
        let tunnel = Tunnel {
            client: self.client,
            right: self.right.borrow().clone(),
            socket: self.socket,
            states: self.states,
            was_shown: &self.was_shown,
            has_ended: &self.has_ended,
        };
        Some(Box::pin(async move { tunnel.run(running).await }))
    }

    /// Hides the program. A refusal before it was first shown is an error, because the command
    /// waits for it.
    fn handle_ending(&self, ending: Ending) -> Result<(), ShowError> {
        let (why, code) = match ending {
            Ending::Refused(error) if !self.was_shown.get() => return Err(error),
            Ending::Refused(error) => (error.to_string(), error.exit_code()),
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
