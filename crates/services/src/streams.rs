//! Further streams of a session, beside the one on which it was started. Either side opens them, on the same
//! connection, and names the start that they belong to; they end with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_core::wire::{self, Reason, operation::Operation};
use levada_session::{Class, Connection, SessionError, Stream, StreamError};
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, TryAcquireError};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// How many streams one start may have open at a time, beside its first one, if nothing else is configured.
pub const DEFAULT_STREAMS: usize = 128;

/// The first version of the protocol that knows further streams.
const VERSION: u32 = 2;
/// How long the peer may take to say what a stream that it has opened is for.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// What a connection holds for readers that do not read: this much for what it is otherwise used for, and as much
/// for each further stream as its sender may send unasked. So some that are not read leave credit to the others.
const HELD: u64 = 16 << 20;
const HELD_PER_STREAM: u64 = 256 << 10;

/// The further streams of one start of a session. Dropping it refuses those that come later; those that were handed
/// out belong to whoever has them.
pub struct Streams {
    opener: Opener,
    incoming: UnboundedReceiver<Stream>,
    /// Takes what the peer opens, where nobody else does.
    receiver: Option<AbortHandle>,
}

/// Opens further streams.
#[derive(Clone)]
pub struct Opener(Arc<Start>);

/// Where further streams that the peer opens go in; it does not keep the start alive.
#[derive(Clone)]
pub struct Entrance {
    start: Weak<Start>,
    incoming: UnboundedSender<Stream>,
}

struct Start {
    /// `None` if this start can have no further streams.
    connection: Option<Connection>,
    run: u64,
    limit: usize,
    places: Arc<Semaphore>,
    /// The connection has been told to hold enough.
    held: AtomicBool,
}

/// Why a further stream could not be opened.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// As many as may be are open.
    #[error("the session has as many streams as it may")]
    Full,
    /// The other side speaks an older version of the protocol.
    #[error("the other side knows no sessions of several streams")]
    Unknown,
    /// The connection ended.
    #[error(transparent)]
    Lost(#[from] StreamError),
}

/// Whether both ends of `connection` know further streams.
pub fn supported(connection: &Connection) -> bool {
    connection.version() >= VERSION
}

impl Streams {
    /// The further streams of the start number `run` of `connection`, at most `limit` at a time, whoever opens them.
    pub fn new(connection: Connection, run: u64, limit: usize) -> (Self, Entrance) {
        Self::of(Some(connection), run, limit)
    }

    /// At the client: as [`Self::new`], for a connection that has no other start, and on which the node opens no
    /// other streams. They are taken until this is dropped.
    pub fn receiving(connection: Connection, run: u64, limit: usize) -> Self {
        let (mut streams, entrance) = Self::new(connection.clone(), run, limit);
        streams.receiver =
            Some(tokio::spawn(receive_all(connection, run, entrance)).abort_handle());
        streams
    }

    /// For a start that can have none.
    pub fn none() -> Self {
        Self::of(None, 0, 0).0
    }

    fn of(connection: Option<Connection>, run: u64, limit: usize) -> (Self, Entrance) {
        let places = Arc::new(Semaphore::new(limit));
        let start =
            Arc::new(Start { connection, run, limit, places, held: AtomicBool::new(false) });
        // As many can wait in it as have a place.
        let (sender, incoming) = unbounded_channel();
        let entrance = Entrance { start: Arc::downgrade(&start), incoming: sender };
        (Self { opener: Opener(start), incoming, receiver: None }, entrance)
    }

    /// The next stream that the peer has opened. What came with it is still to be read.
    /// Never returns if there can be none.
    pub async fn accept(&mut self) -> Stream {
        match self.incoming.recv().await {
            Some(stream) => stream,
            None => std::future::pending().await,
        }
    }

    /// What opens streams of this start.
    pub fn opener(&self) -> Opener {
        self.opener.clone()
    }
}

/// What may come later finds nobody any more.
impl Drop for Streams {
    fn drop(&mut self) {
        self.opener.0.places.close();
        self.receiver.iter().for_each(AbortHandle::abort);
    }
}

impl Opener {
    /// Opens a stream; whoever is at the other end gets it from [`Streams::accept`].
    ///
    /// # Errors
    /// [`OpenError`] if there are too many, or the connection ended.
    pub async fn open(&self, class: Class) -> Result<Stream, OpenError> {
        let start = &self.0;
        let connection = start.connection.as_ref().filter(|connection| supported(connection));
        let connection = connection.ok_or(OpenError::Unknown)?;
        let place = start.places.clone().try_acquire_owned().map_err(|error| match error {
            TryAcquireError::NoPermits => OpenError::Full,
            TryAcquireError::Closed => OpenError::Lost(StreamError::Finished),
        })?;
        start.hold(connection);
        let mut stream = connection.open(class).map_err(|error| match error {
            SessionError::Channel(levada_session::ChannelError::TooManyStreams) => OpenError::Full,
            error => OpenError::Lost(error.into()),
        })?;
        stream.keep(place);
        let attach = Operation::Attach(wire::Attach { run: start.run });
        stream.send(&wire::encode(&wire::Operation::from(attach))).await?;
        Ok(stream)
    }
}

impl Start {
    fn hold(&self, connection: &Connection) {
        if !self.held.swap(true, Ordering::Relaxed) {
            connection.hold(HELD + self.limit as u64 * HELD_PER_STREAM);
        }
    }
}

impl Entrance {
    /// Hands over a stream that the peer has opened and whose first message, `attach`, was read. Without room for it,
    /// it is reset with [`Reason::Busy`].
    ///
    /// # Errors
    /// The reason with which it was reset.
    pub fn enter(&self, mut stream: Stream) -> Result<(), Reason> {
        let refused = match self.start.upgrade() {
            None => Reason::Unknown,
            Some(start) => match start.places.clone().try_acquire_owned() {
                Ok(place) => {
                    start.connection.iter().for_each(|connection| start.hold(connection));
                    stream.keep(place);
                    // A receiver that has gone drops the stream, which resets it.
                    return self.incoming.send(stream).map_err(|_| Reason::Unknown);
                }
                Err(_) if start.places.is_closed() => Reason::Unknown,
                Err(_) => Reason::Busy,
            },
        };
        stream.reset(refused as u64);
        Err(refused)
    }
}

/// Takes the streams that the peer opens, all of which must belong to the start number `run`, until the connection ends.
async fn receive_all(connection: Connection, run: u64, entrance: Entrance) {
    // Those who have not said what they are for; the peer can have only so many open.
    let mut silent = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept() => match stream {
                Some(stream) => drop(silent.spawn(receive(stream, run, entrance.clone()))),
                None => return,
            },
            Some(_) = silent.join_next() => {}
        }
    }
}

async fn receive(mut stream: Stream, run: u64, entrance: Entrance) {
    let first = timeout(FIRST_MESSAGE, stream.receive(wire::MAX_MESSAGE)).await;
    let Ok(Ok(Some(bytes))) = first else { return };
    let operation = wire::decode::<wire::Operation>(&bytes).ok().and_then(|read| read.operation);
    match operation {
        Some(Operation::Attach(attach)) if attach.run == run => drop(entrance.enter(stream)),
        Some(Operation::Attach(_)) => stream.reset(Reason::Unknown as u64),
        // A client serves no operations.
        _ => stream.reset(Reason::Malformed as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_session::{Options, testing::connections};

    /// The two ends of one start; the server's streams are received as a client does.
    async fn pair(limit: usize) -> (Streams, Streams) {
        let (client, server) = connections(Options::default()).await.unwrap();
        (Streams::receiving(client, 7, limit), Streams::receiving(server, 7, limit))
    }

    async fn reset_code(stream: &mut Stream) -> u64 {
        match stream.receive(10).await {
            Err(StreamError::Reset(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn either_side_opens_streams_and_what_follows_is_theirs() {
        let (mut near, mut far) = pair(4).await;
        for _ in 0..20 {
            let mut ours = near.opener().open(Class::Bulk).await.unwrap();
            ours.send(b"first").await.unwrap();
            let mut theirs = far.accept().await;
            assert_eq!(theirs.receive(10).await, Ok(Some(b"first".to_vec())));
            let mut back = far.opener().open(Class::Interactive).await.unwrap();
            back.send(b"back").await.unwrap();
            assert_eq!(near.accept().await.receive(10).await, Ok(Some(b"back".to_vec())));
        }
    }

    #[tokio::test]
    async fn one_too_many_is_refused_and_the_others_go_on() {
        let (client, server) = connections(Options::default()).await.unwrap();
        let (near, _) = Streams::new(client, 7, 4);
        let mut far = Streams::receiving(server, 7, 2);
        let opener = near.opener();
        let mut first = opener.open(Class::Bulk).await.unwrap();
        let mut theirs = far.accept().await;
        let second = opener.open(Class::Bulk).await.unwrap();
        let _second = (second, far.accept().await);
        let mut refused = opener.open(Class::Bulk).await.unwrap();
        assert_eq!(reset_code(&mut refused).await, Reason::Busy as u64);
        first.send(b"a").await.unwrap();
        assert_eq!(theirs.receive(10).await, Ok(Some(b"a".to_vec())));
        // At the opener's own limit nothing is sent at all.
        let _fourth = opener.open(Class::Bulk).await.unwrap();
        assert_eq!(opener.open(Class::Bulk).await.err(), Some(OpenError::Full));
    }

    #[tokio::test]
    async fn streams_of_another_start_or_of_one_that_has_ended_are_refused() {
        let (client, server) = connections(Options::default()).await.unwrap();
        let (other, _) = Streams::new(client.clone(), 8, 4);
        let (near, _) = Streams::new(client.clone(), 7, 4);
        let (far, entrance) = Streams::new(server.clone(), 7, 4);
        // Goes on when the start has ended, as the node does.
        tokio::spawn(receive_all(server, 7, entrance));
        let mut stream = other.opener().open(Class::Bulk).await.unwrap();
        assert_eq!(reset_code(&mut stream).await, Reason::Unknown as u64);
        let mut garbage = client.open(Class::Bulk).unwrap();
        garbage.send(b"\xff").await.unwrap();
        assert_eq!(reset_code(&mut garbage).await, Reason::Malformed as u64);
        drop(far);
        let mut stream = near.opener().open(Class::Bulk).await.unwrap();
        assert_eq!(reset_code(&mut stream).await, Reason::Unknown as u64);
        let none = Streams::none().opener().open(Class::Bulk).await;
        assert_eq!(none.err(), Some(OpenError::Unknown));
    }

    #[tokio::test]
    async fn those_that_nobody_reads_leave_credit_to_the_others() {
        let (near, mut far) = pair(DEFAULT_STREAMS).await;
        let opener = near.opener();
        let mut stalled = Vec::new();
        let much = vec![0; 1 << 20];
        let all = async {
            for _ in 0..DEFAULT_STREAMS - 1 {
                let mut ours = opener.open(Class::Bulk).await.unwrap();
                let theirs = far.accept().await;
                // Nearly all that it may send unasked.
                ours.write(&much[..250 << 10], false).await.unwrap();
                stalled.push((ours, theirs));
            }
            let mut ours = opener.open(Class::Bulk).await.unwrap();
            let mut theirs = far.accept().await;
            let (sent, received) = tokio::join!(ours.send(&much), theirs.receive(much.len()));
            sent.unwrap();
            assert!(received.unwrap().is_some_and(|bytes| bytes == much));
        };
        timeout(Duration::from_secs(60), all).await.unwrap();
    }
}
