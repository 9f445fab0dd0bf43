//! The tunnel from the local xpra to the node's: one session per connection, started again when it
//! is lost.

use std::cell::Cell;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use levada_capability::Capability;
use levada_client::{Client, ClientError, Running};
use levada_core::Backoff;
use levada_core::printable::escape;
use levada_service::stdio::{Chunk, Message, MessageReader, ReceiveError, StdioError, Tag};
use levada_session::{Class, ReceiveHalf, SendHalf, Stream, StreamError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::protocol::State;
use super::{Right, ShowError};

/// How long the node may take to send the exit code after the local xpra has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one message may take to be sent: longer than the timeout of xpra's own keepalive.
const SEND_TIMEOUT: Duration = Duration::from_secs(45);

/// Shows a program at one destination, and publishes its state.
pub(super) struct Tunnel<'a> {
    /// The client that requests the sessions.
    pub(super) client: &'a Client,
    /// The right to show the program.
    pub(super) right: Right,
    /// The local xpra's socket.
    pub(super) socket: &'a Path,
    /// The state of the program.
    pub(super) states: &'a watch::Sender<State>,
    /// Whether the program was shown on any screen yet.
    pub(super) was_shown: &'a Cell<bool>,
    /// Whether the program has ended; then nothing is retried.
    pub(super) has_ended: &'a Cell<bool>,
}

/// Why a program is no longer shown, without a retry.
pub(super) enum Ending {
    /// The session is not permitted or not possible there.
    Refused(ShowError),
    /// The other side closed the session.
    Closed,
}

impl Tunnel<'_> {
    /// Shows the program, and reconnects until the session is closed or refused. `running` is the
    /// first session, if it has been started already.
    pub(super) async fn run(&self, mut running: Option<Running>) -> Ending {
        let mut backoff = Backoff::default();
        loop {
            let start = Instant::now();
            let error = match self.run_session(running.take()).await {
                Ok(()) => return Ending::Closed,
                Err(error) => error,
            };
            if self.has_ended.get() {
                return Ending::Closed;
            }
            if self.is_final(&error) {
                return Ending::Refused(error);
            }
            let at = self.right.label();
            let why = error.to_string();
            self.states.send_replace(State::Waiting { at, why });
            sleep(backoff.pause_after(start.elapsed())).await;
        }
    }

    /// Whether a retry is useless. Before the program was first shown, every failure is final,
    /// because the command waits for the result.
    fn is_final(&self, error: &ShowError) -> bool {
        !self.was_shown.get() || error.is_refusal()
    }

    /// Runs one session until it ends: `Ok` if the other side closed it.
    async fn run_session(&self, running: Option<Running>) -> Result<(), ShowError> {
        let running = match running {
            Some(running) => running,
            None => self.connect().await?,
        };
        let Running { stream, connection, .. } = running;
        let ended = self.transfer(stream).await;
        connection.close(0, "");
        ended
    }

    /// Requests and starts a new session. A new request each time checks the right again, and
    /// leaves no unused capability behind.
    async fn connect(&self) -> Result<Running, ShowError> {
        // A stalled connection may still be open, and would be tried first.
        self.client.close();
        let capability = self.right.capability(self.client).await?;
        start(self.client, &capability).await
    }

    async fn transfer(&self, stream: Stream) -> Result<(), ShowError> {
        let local = UnixStream::connect(self.socket).await;
        let local = local.map_err(|error| ShowError::Local(format!("xpra: {error}")))?;
        let (from, to) = local.into_split();
        let (mut send, receive) = stream.split();
        let closed = Cell::new(false);
        let silent = || ShowError::Unreachable("the other side stopped responding".to_owned());
        tokio::select! {
            biased;
            ended = self.receive(receive, to) => match ended? {
                0 if !closed.get() => Ok(()),
                0 => Err(silent()),
                code => {
                    let text = format!("xpra on the node ended with exit code {code}");
                    Err(ShowError::Unreachable(text))
                }
            },
            ended = send_all(&mut send, from, &closed) => match ended {
                Ok(()) => Err(silent()),
                Err(error) => Err(ClientError::from(error).into()),
            },
        }
    }

    /// Copies from the node to the local xpra until the session ends; returns its exit code.
    async fn receive(
        &self,
        mut receive: ReceiveHalf,
        mut to: OwnedWriteHalf,
    ) -> Result<u8, ShowError> {
        let mut inbox = MessageReader::new();
        let mut refused = None;
        let mut shown = false;
        loop {
            match inbox.next(&mut receive).await.map_err(lost)? {
                Some(Message::Data(bytes)) => {
                    if !std::mem::replace(&mut shown, true) {
                        self.was_shown.set(true);
                        self.states.send_replace(State::Shown { at: self.right.label() });
                    }
                    // If xpra has closed its socket, the sending direction ends the session.
                    let _ = to.write_all(bytes).await;
                }
                Some(Message::Error(_)) => {}
                Some(Message::Failure(text)) => {
                    let text = format!("{}: {}", self.right.label(), escape(text));
                    refused = Some(ShowError::Local(text));
                }
                Some(Message::Exit(code)) => return refused.map_or(Ok(code), Err),
                Some(Message::End | Message::Window(_)) => {
                    return Err(broken(StdioError::Direction));
                }
                None => {
                    let text = "the session ended without an exit code";
                    return Err(ShowError::Protocol(text.to_owned()));
                }
            }
        }
    }
}

/// Starts the session of `capability` with priority over bulk traffic.
///
/// # Errors
/// [`ShowError::Client`] if the node refuses or cannot be reached.
pub(super) async fn start(client: &Client, capability: &Capability) -> Result<Running, ShowError> {
    Ok(client.connect_as(capability, Class::Interactive).await?)
}

/// Copies from the local xpra to the node. Returns after xpra has closed and no exit code arrived
/// in time: xpra closes when it has received nothing for too long. Also returns when sending has
/// stalled, because data that waits to be sent hides that xpra has closed.
async fn send_all(
    send: &mut SendHalf,
    mut from: OwnedReadHalf,
    closed: &Cell<bool>,
) -> Result<(), StreamError> {
    let mut chunk = Chunk::new(Tag::Data);
    while let Ok(length @ 1..) = from.read(chunk.space()).await {
        match timeout(SEND_TIMEOUT, send.send(chunk.message(length))).await {
            Ok(sent) => sent?,
            Err(_) => return Ok(()),
        }
    }
    closed.set(true);
    let end = async {
        send.send(&Message::End.to_bytes()).await?;
        // Dropping the sending half would end the session before its exit code arrives.
        pending::<Result<(), StreamError>>().await
    };
    timeout(CLOSE_TIMEOUT, end).await.unwrap_or(Ok(()))
}

fn lost(error: ReceiveError) -> ShowError {
    match error {
        ReceiveError::Stream(error) => ClientError::from(error).into(),
        ReceiveError::Message(error) => broken(error),
    }
}

fn broken(error: StdioError) -> ShowError {
    ShowError::Protocol(format!("the service sent {error}"))
}
