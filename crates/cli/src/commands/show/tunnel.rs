//! The way from the local xpra to the node's: one session for each connection, made anew when it is
//! lost.

use std::cell::Cell;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use levada_capability::Capability;
use levada_node::client::{Client, ClientError, Running};
use levada_service::stdio::{Chunk, Inbox, Message, ReceiveError, StdioError, Tag};
use levada_session::{Class, ReceiveHalf, SendHalf, Stream, StreamError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::DISPLAY;
use super::session::State;
use crate::destination::Destination;
use crate::failure::{DENIED, Failure, LOCAL, NO, PROTOCOL, UNREACHABLE, USAGE};
use crate::names::Names;
use crate::output::plain;

/// Pauses between two tries: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the other side may take to say how a session ended.
const FAREWELL: Duration = Duration::from_secs(3);
/// A link that takes nothing for so long has stalled: longer than xpra waits for a sign of life.
const STALLED: Duration = Duration::from_secs(45);
/// A connection that has lasted so long was a good one: the next pause is the first again.
const GOOD: Duration = Duration::from_secs(30);

/// Where a program is shown, and what everybody is told of it.
pub struct Tunnel<'a> {
    /// Whose right it is.
    pub client: &'a Client,
    /// Where.
    pub at: Destination,
    /// The local xpra's socket.
    pub socket: &'a Path,
    /// What everybody is told.
    pub states: &'a watch::Sender<State>,
    /// It was seen on some screen.
    pub seen: &'a Cell<bool>,
    /// The program has ended: nothing is tried again.
    pub over: &'a Cell<bool>,
}

/// Why a program is not shown any more, and is not tried again.
pub enum Ending {
    /// It may not be, or cannot be there.
    Refused(Failure),
    /// Somebody on the other side let go of it.
    LetGo,
}

impl Tunnel<'_> {
    /// Shows the program, again and again, until there is no use in it. `running` is the first session,
    /// if it was started already.
    pub async fn keep(&self, mut running: Option<Running>) -> Ending {
        let mut pause = FIRST_PAUSE;
        loop {
            let since = Instant::now();
            let failure = match self.once(running.take()).await {
                Ok(()) => return Ending::LetGo,
                Err(failure) => failure,
            };
            if self.over.get() {
                return Ending::LetGo;
            }
            if self.is_final(&failure) {
                return Ending::Refused(failure);
            }
            if since.elapsed() > GOOD {
                pause = FIRST_PAUSE;
            }
            let (at, why) = (self.at.label(), failure.text().to_owned());
            self.states.send_replace(State::Waiting { at, why });
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// What will not be otherwise in a moment. Before anything was seen, that is whatever goes wrong:
    /// somebody waits for it.
    fn is_final(&self, failure: &Failure) -> bool {
        !self.seen.get() || [NO, USAGE, DENIED].contains(&failure.code())
    }

    /// One session, to its end: `Ok` if somebody on the other side let go.
    async fn once(&self, running: Option<Running>) -> Result<(), Failure> {
        let running = match running {
            Some(running) => running,
            None => self.connect().await?,
        };
        let Running { stream, connection, .. } = running;
        let ended = self.carry(stream).await;
        connection.close(0, "");
        ended
    }

    /// A new session. Each is requested anew: whoever may not request any more is not shown any more,
    /// and no right lies about that could be used up.
    async fn connect(&self) -> Result<Running, Failure> {
        // A connection that has stalled is still there, and would be tried first.
        self.client.close();
        let capability = self.at.capability(self.client, Names::default(), None, DISPLAY).await?;
        start(self.client, &capability).await
    }

    async fn carry(&self, stream: Stream) -> Result<(), Failure> {
        let local = UnixStream::connect(self.socket).await;
        let local = local.map_err(|error| Failure::local(format_args!("xpra: {error}")))?;
        let (from, to) = local.into_split();
        let (mut send, receive) = stream.split();
        let closed = Cell::new(false);
        let silent = || Failure::new(UNREACHABLE, "the other side fell silent");
        tokio::select! {
            biased;
            ended = self.down(receive, to) => match ended? {
                0 if !closed.get() => Ok(()),
                0 => Err(silent()),
                code => {
                    let text = format!("xpra ended there with {code}");
                    Err(Failure::new(UNREACHABLE, text))
                }
            },
            ended = up(&mut send, from, &closed) => match ended {
                Ok(()) => Err(silent()),
                Err(error) => Err(ClientError::from(error).into()),
            },
        }
    }

    /// From the node to the local xpra, until the session has ended: its exit code.
    async fn down(&self, mut receive: ReceiveHalf, mut to: OwnedWriteHalf) -> Result<u8, Failure> {
        let mut inbox = Inbox::new();
        let mut refused = None;
        let mut shown = false;
        loop {
            match inbox.next(&mut receive).await.map_err(lost)? {
                Some(Message::Data(bytes)) => {
                    if !std::mem::replace(&mut shown, true) {
                        self.seen.set(true);
                        self.states.send_replace(State::Shown { at: self.at.label() });
                    }
                    // That xpra takes nothing more is seen by what it says: nothing.
                    let _ = to.write_all(bytes).await;
                }
                Some(Message::Error(_)) => {}
                Some(Message::Failure(text)) => {
                    let text = format!("{}: {}", self.at.label(), plain(text));
                    refused = Some(Failure::new(LOCAL, text));
                }
                Some(Message::Exit(code)) => return refused.map_or(Ok(code), Err),
                Some(Message::End | Message::Window(_)) => {
                    return Err(broken(StdioError::Direction));
                }
                None => return Err(Failure::new(PROTOCOL, "the session ended without a word")),
            }
        }
    }
}

/// Starts the session of `capability`, before bulk that shares the way.
///
/// # Errors
/// [`Failure`] with the exit code that fits.
pub async fn start(client: &Client, capability: &Capability) -> Result<Running, Failure> {
    Ok(client.connect_as(capability, Class::Interactive).await?)
}

/// From the local xpra to the node, until xpra has closed and the node has not said in time how the
/// session ended: xpra closes when it has heard nothing for too long. Or until the link has stalled: what
/// waits to be sent hides that xpra has closed.
async fn up(
    send: &mut SendHalf,
    mut from: OwnedReadHalf,
    closed: &Cell<bool>,
) -> Result<(), StreamError> {
    let mut chunk = Chunk::new(Tag::Data);
    while let Ok(length @ 1..) = from.read(chunk.space()).await {
        match timeout(STALLED, send.send(chunk.message(length))).await {
            Ok(sent) => sent?,
            Err(_) => return Ok(()),
        }
    }
    closed.set(true);
    let end = async {
        send.send(&Message::End.to_bytes()).await?;
        // A sending half that is dropped would end the session before it says how it ended.
        pending::<Result<(), StreamError>>().await
    };
    timeout(FAREWELL, end).await.unwrap_or(Ok(()))
}

fn lost(error: ReceiveError) -> Failure {
    match error {
        ReceiveError::Stream(error) => ClientError::from(error).into(),
        ReceiveError::Message(error) => broken(error),
    }
}

fn broken(error: StdioError) -> Failure {
    Failure::new(PROTOCOL, format_args!("the service sent {error}"))
}
