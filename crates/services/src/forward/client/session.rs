//! One session: from its start to its end, whatever ends it.

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

/// How long the last words between this side and the node may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Connections at a time, those among them that have no stream yet (SOCKS) or none any more. More wait to be accepted.
const CARRIED: usize = 256;
/// The longest line in which the node says where it listens, in bytes.
const MAX_LINE: usize = 512;

/// A session that runs.
pub struct Session {
    send: SendHalf,
    control: Control,
    streams: Streams,
    connection: Connection,
}

/// What ended a session.
pub enum Ended {
    /// Somebody at this side.
    Interrupted,
    /// The service, which could not do it; it has been said why.
    Refused(u8),
    /// The session is over, for this reason.
    Lost(ClientError),
    /// The node sends what makes no sense.
    Broken(ForwardError),
}

/// What the service says on the session's first stream.
struct Control {
    receive: ReceiveHalf,
    inbox: MessageReader,
    report: Reporter,
}

/// Something that the service has said.
enum Said {
    /// Where it listens.
    Listens(String),
    /// The end.
    Ended(Ended),
}

impl Session {
    pub fn new((running, streams): (Running, Streams), report: Reporter) -> Self {
        let (send, receive) = running.stream.split();
        let control = Control { receive, inbox: MessageReader::new(), report };
        Self { send, control, streams, connection: running.connection }
    }

    /// Waits until the node says where it listens, which it does if that is what the session is for.
    pub async fn listening(&mut self) -> Result<String, Ended> {
        match self.control.next().await {
            Said::Listens(line) => Ok(line),
            Said::Ended(ended) => Err(ended),
        }
    }

    /// Carries what comes until the session ends.
    pub async fn serve(
        &mut self,
        mode: &Mode,
        listeners: &mut Listeners,
        stop: &mut Stop,
    ) -> Ended {
        let report = self.control.report.clone();
        // Dropped, it ends all that it holds: what was carried is reset.
        let mut carried = JoinSet::new();
        if let Mode::Udp(target) = mode {
            let flows = (udp::FLOWS / listeners.sockets.len().max(1)).max(1);
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
                said = self.control.next() => match said {
                    Said::Listens(_) => {}
                    Said::Ended(ended) => return ended,
                },
                (socket, peer) = listeners.accept(), if carried.len() < CARRIED => match mode {
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
                    // The node asks for nothing else.
                    if let Mode::Reverse(target) = mode {
                        carried.spawn(from_node(stream, target.clone(), report.clone()));
                    }
                }
                Some(_) = carried.join_next() => {}
            }
        }
    }

    /// Does `work` with a stream's opener, unless the session ends first.
    pub async fn during<T, F: Future<Output = T>>(
        &mut self,
        work: impl FnOnce(Opener) -> F,
    ) -> Result<T, Ended> {
        let work = work(self.streams.opener());
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                said = self.control.next() => match said {
                    Said::Listens(_) => {}
                    Said::Ended(ended) => return Err(ended),
                },
            }
        }
    }

    /// Ends the session in good order, as far as the node takes part in that.
    pub async fn end(self) {
        let Self { mut send, mut control, connection, .. } = self;
        let farewell = async {
            if send.send(&Message::End.to_bytes()).await.is_ok() {
                while !matches!(control.next().await, Said::Ended(_)) {}
                let _ = send.finish().await;
            }
        };
        let _ = timeout(FAREWELL, farewell).await;
        drop((send, control));
        connection.close(0, "");
        let _ = timeout(FAREWELL, connection.flushed()).await;
    }
}

impl Control {
    async fn next(&mut self) -> Said {
        loop {
            let message = match self.inbox.next(&mut self.receive).await {
                Ok(Some(message)) => message,
                Ok(None) => return broken("the session ended without an exit code"),
                Err(ReceiveError::Stream(error)) => {
                    return Said::Ended(Ended::Lost(error.into()));
                }
                Err(error) => return broken(&format!("the service sent {error}")),
            };
            match message {
                Message::Data(line) if line.len() <= MAX_LINE => {
                    let line = String::from_utf8_lossy(line);
                    return Said::Listens(line.trim_end().to_owned());
                }
                Message::Failure(text) => self.report.note(text),
                Message::Exit(code) => return Said::Ended(Ended::Refused(code)),
                _ => return broken("the service sent something that makes no sense"),
            }
        }
    }
}

fn broken(text: &str) -> Said {
    Said::Ended(Ended::Broken(ForwardError::new(PROTOCOL, text)))
}
