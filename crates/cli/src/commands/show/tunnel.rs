//! The tunnel from the local xpra to the node's: one session per connection, started again when it is
//! lost.

use std::cell::Cell;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use levada_capability::Capability;
use levada_client::{Client, ClientError, Running};
use levada_core::Backoff;
use levada_service::stdio::{Chunk, Message, MessageReader, ReceiveError, StdioError, Tag};
use levada_session::{Class, ReceiveHalf, SendHalf, Stream, StreamError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::DISPLAY;
use super::protocol::State;
use crate::destination::Destination;
use crate::failure::{DENIED, Failure, LOCAL, NO, PROTOCOL, UNREACHABLE, USAGE};
use crate::names::Names;
use crate::output::plain;

/// How long the node may take to send the exit code after the local xpra has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one message may take to be sent: longer than the timeout of xpra's own keepalive.
const SEND_TIMEOUT: Duration = Duration::from_secs(45);

/// Shows a program at one destination, and publishes its state.
pub struct Tunnel<'a> {
    /// The client that requests the sessions.
    pub client: &'a Client,
    /// The service that shows the program.
    pub at: Destination,
    /// The local xpra's socket.
    pub socket: &'a Path,
    /// The state of the program.
    pub states: &'a watch::Sender<State>,
    /// Whether the program was shown on any screen yet.
    pub was_shown: &'a Cell<bool>,
    /// Whether the program has ended; then nothing is retried.
    pub has_ended: &'a Cell<bool>,
}

/// Why a program is no longer shown, without a retry.
pub enum Ending {
    /// The session is not permitted or not possible there.
    Refused(Failure),
    /// The other side closed the session.
    Closed,
}

impl Tunnel<'_> {
    /// Shows the program, and reconnects until the session is closed or refused. `running` is the first
    /// session, if it has been started already.
    pub async fn run(&self, mut running: Option<Running>) -> Ending {
        let mut backoff = Backoff::default();
        loop {
            let start = Instant::now();
            let failure = match self.run_session(running.take()).await {
                Ok(()) => return Ending::Closed,
                Err(failure) => failure,
            };
            if self.has_ended.get() {
                return Ending::Closed;
            }
            if self.is_final(&failure) {
                return Ending::Refused(failure);
            }
            let (at, why) = (self.at.label(), failure.text().to_owned());
            self.states.send_replace(State::Waiting { at, why });
            sleep(backoff.pause_after(start.elapsed())).await;
        }
    }

    /// Whether a retry is useless. Before the program was first shown, every failure is final, because
    /// the command waits for the result.
    fn is_final(&self, failure: &Failure) -> bool {
        !self.was_shown.get() || [NO, USAGE, DENIED].contains(&failure.code())
    }

    /// Runs one session until it ends: `Ok` if the other side closed it.
    async fn run_session(&self, running: Option<Running>) -> Result<(), Failure> {
        let running = match running {
            Some(running) => running,
            None => self.connect().await?,
        };
        let Running { stream, connection, .. } = running;
        let ended = self.transfer(stream).await;
        connection.close(0, "");
        ended
    }

    /// Requests and starts a new session. A new request each time checks the right again, and leaves no
    /// unused capability behind.
    async fn connect(&self) -> Result<Running, Failure> {
        // A stalled connection may still be open, and would be tried first.
        self.client.close();
        let capability = self.at.capability(self.client, Names::default(), None, DISPLAY).await?;
        start(self.client, &capability).await
    }

    async fn transfer(&self, stream: Stream) -> Result<(), Failure> {
        let local = UnixStream::connect(self.socket).await;
        let local = local.map_err(|error| Failure::local(format_args!("xpra: {error}")))?;
        let (from, to) = local.into_split();
        let (mut send, receive) = stream.split();
        let closed = Cell::new(false);
        let silent = || Failure::new(UNREACHABLE, "the other side stopped responding");
        tokio::select! {
            biased;
            ended = self.receive(receive, to) => match ended? {
                0 if !closed.get() => Ok(()),
                0 => Err(silent()),
                code => {
                    let text = format!("xpra on the node ended with exit code {code}");
                    Err(Failure::new(UNREACHABLE, text))
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
    ) -> Result<u8, Failure> {
        let mut inbox = MessageReader::new();
        let mut refused = None;
        let mut shown = false;
        loop {
            match inbox.next(&mut receive).await.map_err(lost)? {
                Some(Message::Data(bytes)) => {
                    if !std::mem::replace(&mut shown, true) {
                        self.was_shown.set(true);
                        self.states.send_replace(State::Shown { at: self.at.label() });
                    }
                    // If xpra has closed its socket, the sending direction ends the session.
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
                None => {
                    return Err(Failure::new(PROTOCOL, "the session ended without an exit code"));
                }
            }
        }
    }
}

/// Starts the session of `capability` with priority over bulk traffic.
///
/// # Errors
/// [`Failure`] with the exit code that fits.
pub async fn start(client: &Client, capability: &Capability) -> Result<Running, Failure> {
    Ok(client.connect_as(capability, Class::Interactive).await?)
}

/// Copies from the local xpra to the node. Returns after xpra has closed and no exit code arrived in time:
/// xpra closes when it has received nothing for too long. Also returns when sending has stalled, because
/// data that waits to be sent hides that xpra has closed.
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

fn lost(error: ReceiveError) -> Failure {
    match error {
        ReceiveError::Stream(error) => ClientError::from(error).into(),
        ReceiveError::Message(error) => broken(error),
    }
}

fn broken(error: StdioError) -> Failure {
    Failure::new(PROTOCOL, format_args!("the service sent {error}"))
}
