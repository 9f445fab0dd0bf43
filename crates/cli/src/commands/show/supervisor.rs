//! The background process of one program: it has the virtual screen, the program, and the connection to
//! where it is seen, and does what those ask who know its socket.

mod printed;
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

use levada_node::client::{Client, Running};
use levada_node::home::Home;
use levada_services::desktop::xpra::private_folder;
use levada_services::exec::program::{Group, find};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::DISPLAY;
use super::registry::{Claim, Entry, Registry};
use super::screen::VirtualScreen;
use super::session::{Line, Order, Request, State};
use super::tunnel::{Ending, Tunnel, start};
use crate::attach::Signals;
use crate::destination::Destination;
use crate::failure::{Failure, Outcome};
use crate::names::Names;
use printed::Printed;
use serve::Asked;

/// How long a program may take to clean up when it is asked to end.
const ENDING: Duration = Duration::from_secs(5);
/// How long the end of the windows may take on the other side.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long those who watch may take to hear of the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Questions that wait for an answer.
const WAITING: usize = 8;
/// What a shell says of a program that was ended by SIGTERM, and by SIGKILL.
const TERMINATED: u8 = 143;
const KILLED: u8 = 137;
/// The name of the keeper's socket in its folder.
const SOCKET: &str = "keeper";

/// Starts a keeper, gives it `order`, and watches it.
///
/// # Errors
/// [`Failure`] 120 if it cannot be started.
pub async fn spawn(order: &Order) -> Result<Line, Failure> {
    let fail = |error: io::Error| Failure::local(format_args!("cannot go on by itself: {error}"));
    let (near, far) = std::os::unix::net::UnixStream::pair().map_err(fail)?;
    let mut command = Command::new(std::env::current_exe().map_err(fail)?);
    command.args(["show", "--keep"]).stdin(OwnedFd::from(far));
    if order.detach {
        // Whoever reads what this command prints would otherwise wait for the program's end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    // Whoever started it is gone before it is.
    drop(command.spawn().map_err(fail)?);
    drop(command);
    near.set_nonblocking(true).map_err(fail)?;
    let mut line = Line::new(UnixStream::from_std(near).map_err(fail)?);
    line.say(order).await.map_err(fail)?;
    Ok(line)
}

/// The background process: takes its order from standard input, which is a socket.
pub async fn run() -> Outcome {
    // Ctrl-C and the end of the terminal are for the command that started it.
    let _ = rustix::process::setsid();
    let (order, line) = take_order().await?;
    let (states, watching) = watch::channel(State::Starting);
    // Nobody need know it by its socket before it has a name.
    let opened = open(&order);
    let (asked, questions) = mpsc::channel(WAITING);
    let name = opened.as_ref().map_or("", |place| place.claim.name()).to_owned();
    tokio::spawn(serve::watched(line, name.clone(), watching.clone()));
    let last = match opened {
        Ok(mut place) => {
            let listener = place.listener.take();
            let serving = tokio::spawn(serve::listen(listener, name, watching, asked));
            let last = live(&order, &states, questions).await;
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
    let _ = timeout(LAST_WORDS, states.closed()).await;
    Ok(0)
}

async fn take_order() -> Result<(Order, Line), Failure> {
    let fail = |error: io::Error| Failure::local(format_args!("there is no order: {error}"));
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(fail)?;
    let stream = std::os::unix::net::UnixStream::from(input);
    stream.set_nonblocking(true).map_err(fail)?;
    let mut line = Line::new(UnixStream::from_std(stream).map_err(fail)?);
    Ok((line.expect().await.map_err(fail)?, line))
}

/// A name, and where the keeper listens.
struct ControlEndpoint {
    claim: Claim,
    listener: Option<UnixListener>,
    _folder: tempfile::TempDir,
}

fn open(order: &Order) -> Result<ControlEndpoint, Failure> {
    let folder = private_folder().map_err(Failure::local)?;
    let socket = folder.path().join(SOCKET);
    let listener = UnixListener::bind(&socket).map_err(Failure::file("listen at", &socket))?;
    let entry = Entry {
        name: order.name.clone().unwrap_or_default(),
        program: order.program.clone(),
        process: std::process::id(),
        socket,
    };
    let claim = Registry::open(&Home::open()?)?.claim(entry)?;
    Ok(ControlEndpoint { claim, listener: Some(listener), _folder: folder })
}

/// From the first request to the end of the program: the last state.
async fn live(
    order: &Order,
    states: &watch::Sender<State>,
    mut questions: mpsc::Receiver<Asked>,
) -> Result<State, Failure> {
    let mut signals = Signals::new()?;
    let client = Client::new(&Home::open()?)?;
    let prepared = {
        let mut preparing = pin!(prepare(order, &client));
        loop {
            tokio::select! {
                prepared = &mut preparing => break prepared?,
                code = signals.end() => return Ok(State::Ended { code, said: String::new() }),
                Some(Asked { request, done }) = questions.recv() => {
                    let _ = done.send(());
                    if matches!(request, Request::Stop) {
                        return Ok(State::Ended { code: TERMINATED, said: String::new() });
                    }
                }
            }
        }
    };
    let socket = prepared.screen.socket().to_owned();
    let keeper = Supervisor {
        client: &client,
        socket: &socket,
        states,
        seen: Cell::new(false),
        over: Cell::new(false),
        at: RefCell::new(order.at.clone()),
    };
    keeper.run(prepared, questions, signals).await
}

/// A program that has just been started, its screen, and the session that will show it.
struct Prepared {
    /// First, so that it ends before its screen does.
    program: Group,
    screen: VirtualScreen,
    running: Running,
}

async fn prepare(order: &Order, client: &Client) -> Result<Prepared, Failure> {
    let program = order.program.first().ok_or_else(|| Failure::local("no program is named"))?;
    let by_path = program.contains('/');
    let there = if by_path { Path::new(program).is_file() } else { find(program).is_some() };
    if !there {
        return Err(Failure::local(format_args!("there is no program `{program}` here")));
    }
    // Whoever may not is told so before anything is started.
    let capability = order.at.capability(client, Names::default(), None, DISPLAY).await?;
    let folder = private_folder().map_err(Failure::local)?;
    let screen = VirtualScreen::start(folder, order.clipboard).await?;
    let running = start(client, &capability).await?;
    let program = start_program(order, &screen).await?;
    Ok(Prepared { program, screen, running })
}

async fn start_program(order: &Order, screen: &VirtualScreen) -> Result<Group, Failure> {
    let (program, arguments) =
        order.program.split_first().ok_or_else(|| Failure::local("no program is named"))?;
    let mut launch = screen.launch(OsStr::new(program));
    Group::start(launch.args(arguments))
        .await
        .map_err(|error| Failure::local(format_args!("cannot start `{program}`: {error}")))
}

/// A program that runs.
struct Supervisor<'a> {
    client: &'a Client,
    socket: &'a Path,
    states: &'a watch::Sender<State>,
    seen: Cell<bool>,
    over: Cell<bool>,
    /// Where it is shown, or was last.
    at: RefCell<Destination>,
}

/// The program is being shown somewhere.
type Showing<'a> = Option<Pin<Box<dyn Future<Output = Ending> + 'a>>>;

impl Supervisor<'_> {
    async fn run(
        &self,
        prepared: Prepared,
        mut questions: mpsc::Receiver<Asked>,
        mut signals: Signals,
    ) -> Result<State, Failure> {
        let Prepared { mut program, mut screen, running } = prepared;
        let printed = Printed::of(&mut program);
        let mut showing = self.show(None, Some(running));
        let code = loop {
            tokio::select! {
                code = program.code() => break code.map_err(Failure::local)?,
                why = screen.failed() => return Err(Failure::local(why)),
                ending = shown(&mut showing) => {
                    showing = None;
                    self.not_shown(ending)?;
                }
                Some(Asked { request, done }) = questions.recv() => {
                    match request {
                        Request::Show { at } => {
                            // What was before is not what whoever asks waits for.
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
        self.over.set(true);
        // Its windows go in good order: xpra says goodbye, and the other side ends by itself.
        let shown = async {
            if showing.is_some() {
                let _ = timeout(FAREWELL, shown(&mut showing)).await;
            }
        };
        tokio::join!(screen.stop(), shown);
        Ok(State::Ended { code, said: printed.rest().await })
    }

    /// Shows the program `at` this place, or where it was last.
    fn show(&self, at: Option<Destination>, running: Option<Running>) -> Showing<'_> {
        if let Some(at) = at {
            self.at.replace(at);
        }
        let tunnel = Tunnel {
            client: self.client,
            at: self.at.borrow().clone(),
            socket: self.socket,
            states: self.states,
            seen: &self.seen,
            over: &self.over,
        };
        Some(Box::pin(async move { tunnel.keep(running).await }))
    }

    /// It is shown no more. Somebody who waits to see it for the first time would wait in vain.
    fn not_shown(&self, ending: Ending) -> Result<(), Failure> {
        let (why, code) = match ending {
            Ending::Refused(failure) if !self.seen.get() => return Err(failure),
            Ending::Refused(failure) => (failure.text().to_owned(), failure.code()),
            Ending::LetGo => ("somebody there let go of it".to_owned(), 0),
        };
        self.states.send_replace(State::Hidden { why: Some(why), code });
        Ok(())
    }
}

/// Waits until it is shown no more; for ever if it is not.
async fn shown(showing: &mut Showing<'_>) -> Ending {
    match showing {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Asks the program to end; one that does not is killed when its group is dropped.
async fn end(program: &mut Group) -> u8 {
    program.terminate();
    match timeout(ENDING, program.code()).await {
        Ok(Ok(code)) => code,
        Ok(Err(_)) | Err(_) => KILLED,
    }
}
