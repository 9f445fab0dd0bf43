//! One session, from its start to its end.

use std::time::Duration;

use levada_service::Streams;
use levada_service::stdio::{Message, MessageReader, ReceiveError};
use levada_service::streams::Opener;
use levada_session::{Connection, ReceiveHalf, SendHalf};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::carry::{by_socks, from_node, to};
use super::listeners::Listeners;
use super::{ForwardError, Mode, PROTOCOL, Reporter, Stop, udp};
use levada_client::{ClientError, Running};

/// How long each step of an orderly end may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of concurrent connections, with those that have no stream yet (SOCKS) or none any
/// more. Further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// Maximum length of the line with the addresses at which the node listens, in bytes.
const MAX_LINE: usize = 512;

/// A running session.
pub struct Session {
    send: SendHalf,
    control: Control,
    streams: Streams,
    connection: Connection,
}

/// What ended a session.
pub enum Ended {
    /// This side was stopped.
    Interrupted,
    /// The service ended it with this exit code, and has reported why.
    Refused(u8),
    /// The connection or stream failed.
    Lost(ClientError),
    /// The node violated the protocol.
    Broken(ForwardError),
}

/// The receiving half of the session's first stream.
struct Control {
    receive: ReceiveHalf,
    inbox: MessageReader,
    report: Reporter,
}

/// An event on the first stream.
enum ControlEvent {
    /// The node listens at these addresses.
    Listening(String),
    /// The session has ended.
    Ended(Ended),
}

impl Session {
    pub fn new((running, streams): (Running, Streams), report: Reporter) -> Self {
        let (send, receive) = running.stream.split();
        report.traffic().iter().for_each(|traffic| streams.count_in(traffic));
        let control = Control { receive, inbox: MessageReader::new(), report };
        Self { send, control, streams, connection: running.connection }
    }

    /// Waits for the addresses at which the node listens. It sends them only in a session of
    /// [`Mode::Reverse`].
    pub async fn listening(&mut self) -> Result<String, Ended> {
        match self.control.next().await {
            ControlEvent::Listening(line) => Ok(line),
            ControlEvent::Ended(ended) => Err(ended),
        }
    }

    /// Carries connections until the session ends.
    pub async fn serve(
        &mut self,
        mode: &Mode,
        listeners: &mut Listeners,
        stop: &mut Stop,
    ) -> Ended {
        let report = self.control.report.clone();
        // Dropping the set aborts its tasks, which resets their connections.
        let mut carried = JoinSet::new();
        if let Mode::Udp(target) = mode {
            let flows = (udp::MAX_FLOWS / listeners.sockets.len().max(1)).max(1);
            for socket in &listeners.sockets {
                let opener = self.streams.opener();
                carried.spawn(udp::carry(
                    socket.clone(),
                    opener,
                    target.clone(),
                    flows,
                    report.clone(),
                ));
            }
        }
        loop {
            tokio::select! {
                () = stop.stopped() => return Ended::Interrupted,
                event = self.control.next() => match event {
                    ControlEvent::Listening(_) => {}
                    ControlEvent::Ended(ended) => return ended,
                },
                (socket, peer) = listeners.accept(), if carried.len() < MAX_CONNECTIONS => match mode {
                    Mode::To(target) => {
                        let opener = self.streams.opener();
                        carried.spawn(to(opener, target.clone(), socket, peer, report.clone()));
                    }
                    Mode::Socks => {
                        carried.spawn(by_socks(self.streams.opener(), socket, peer, report.clone()));
                    }
                    Mode::Udp(_) | Mode::Reverse(_) => {}
                },
                stream = self.streams.accept() => {
                    // The node opens streams only for accepted connections.
                    if let Mode::Reverse(target) = mode {
                        carried.spawn(from_node(stream, target.clone(), report.clone()));
                    }
                }
                Some(_) = carried.join_next() => {}
            }
        }
    }

    /// Runs `work` with the opener of streams, unless the session ends first.
    pub async fn during<T, F: Future<Output = T>>(
        &mut self,
        work: impl FnOnce(Opener) -> F,
    ) -> Result<T, Ended> {
        let work = work(self.streams.opener());
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                event = self.control.next() => match event {
                    ControlEvent::Listening(_) => {}
                    ControlEvent::Ended(ended) => return Err(ended),
                },
            }
        }
    }

    /// Ends the session orderly, if the node responds in time.
    pub async fn end(self) {
        let Self { mut send, mut control, connection, .. } = self;
        let close = async {
            if send.send(&Message::End.to_bytes()).await.is_ok() {
                while !matches!(control.next().await, ControlEvent::Ended(_)) {}
                let _ = send.finish().await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, close).await;
        drop((send, control));
        connection.close(0, "");
        let _ = timeout(CLOSE_TIMEOUT, connection.flushed()).await;
    }
}

impl Control {
    async fn next(&mut self) -> ControlEvent {
        loop {
            let message = match self.inbox.next(&mut self.receive).await {
                Ok(Some(message)) => message,
                Ok(None) => return broken("the session ended without an exit code"),
                Err(ReceiveError::Stream(error)) => {
                    return ControlEvent::Ended(Ended::Lost(error.into()));
                }
                Err(error) => return broken(&format!("the service sent {error}")),
            };
            match message {
                Message::Data(line) if line.len() <= MAX_LINE => {
                    let line = String::from_utf8_lossy(line);
                    return ControlEvent::Listening(line.trim_end().to_owned());
                }
                Message::Failure(text) => self.report.note(text),
                Message::Exit(code) => return ControlEvent::Ended(Ended::Refused(code)),
                _ => return broken("the service sent an unexpected message"),
            }
        }
    }
}

fn broken(text: &str) -> ControlEvent {
    ControlEvent::Ended(Ended::Broken(ForwardError::new(PROTOCOL, text)))
}
