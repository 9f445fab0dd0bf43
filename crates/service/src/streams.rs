//! Further streams of a session, beside the one on which it was started. Either side opens them, on the same
//! connection, and names the start that they belong to; they end with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_core::wire::{self, Reason, operation::Operation};
use levada_session::{Class, Connection, SessionError, Stream, StreamError};
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// How many streams one start may have open at a time, beside its first one, if nothing else is configured.
pub const DEFAULT_STREAMS: usize = 128;

/// The first version of the protocol that knows further streams.
const VERSION: u32 = 2;
/// How long the peer may take to say what a stream that it has opened is for.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// Streams that the peer has opened and that wait for a place, for each start.
pub const QUEUE: usize = 64;
/// How long a stream waits for a place, at either side, before it is refused.
pub const WAIT: Duration = Duration::from_secs(30);
/// What a connection holds for readers that do not read: this much for what it is otherwise used for, and as much
/// for each further stream as its sender may send unasked, those in the queue included. So some that are not read leave
/// credit to the others.
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
    /// Places in the queue of those that the peer has opened.
    queue: Arc<Semaphore>,
    wait: Duration,
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
        Self::of(Some(connection), run, limit, WAIT)
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
        Self::of(None, 0, 0, WAIT).0
    }

    fn of(
        connection: Option<Connection>,
        run: u64,
        limit: usize,
        wait: Duration,
    ) -> (Self, Entrance) {
        let places = Arc::new(Semaphore::new(limit));
        let queue = Arc::new(Semaphore::new(QUEUE));
        let held = AtomicBool::new(false);
        let start = Arc::new(Start { connection, run, limit, places, queue, wait, held });
        // As many can be in it as have a place.
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
        let connection = self.0.connection()?;
        let place = self.0.places.clone().try_acquire_owned().map_err(|error| match error {
            TryAcquireError::NoPermits => OpenError::Full,
            TryAcquireError::Closed => OpenError::Lost(StreamError::Finished),
        });
        self.open_at(connection, place?, class).await
    }

    /// As [`Self::open`]; waits up to [`WAIT`] for a place.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub async fn open_in_turn(&self, class: Class) -> Result<Stream, OpenError> {
        let connection = self.0.connection()?;
        let place = timeout(self.0.wait, self.0.places.clone().acquire_owned()).await;
        let place = place.map_err(|_| OpenError::Full)?;
        let place = place.map_err(|_| OpenError::Lost(StreamError::Finished))?;
        self.open_at(connection, place, class).await
    }

    /// How many streams of this start are open.
    pub fn in_use(&self) -> usize {
        self.0.limit.saturating_sub(self.0.places.available_permits())
    }

    async fn open_at(
        &self,
        connection: &Connection,
        place: OwnedSemaphorePermit,
        class: Class,
    ) -> Result<Stream, OpenError> {
        let start = &self.0;
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
    fn connection(&self) -> Result<&Connection, OpenError> {
        let connection = self.connection.as_ref().filter(|connection| supported(connection));
        connection.ok_or(OpenError::Unknown)
    }

    fn hold(&self, connection: &Connection) {
        if !self.held.swap(true, Ordering::Relaxed) {
            connection.raise_receive_window(HELD + (self.limit + QUEUE) as u64 * HELD_PER_STREAM);
        }
    }
}

impl Entrance {
    /// Hands over a stream that the peer has opened and whose first message, `attach`, was read. Without a place for it, it
    /// waits up to [`WAIT`]; without one in the queue either, or when the time is over, it is reset with [`Reason::Busy`].
    ///
    /// # Errors
    /// The reason with which it was reset.
    pub fn enter(&self, mut stream: Stream) -> Result<(), Reason> {
        let refused = match self.start.upgrade() {
            None => Reason::Unknown,
            Some(start) => match start.places.clone().try_acquire_owned() {
                Ok(place) => return self.hand_over(&start, stream, place),
                Err(_) if start.places.is_closed() => Reason::Unknown,
                Err(_) => match start.queue.clone().try_acquire_owned() {
                    Ok(turn) => {
                        start.connection.iter().for_each(|connection| start.hold(connection));
                        tokio::spawn(self.clone().enter_in_turn(stream, turn, &start));
                        return Ok(());
                    }
                    Err(_) => Reason::Busy,
                },
            },
        };
        stream.reset(refused as u64);
        Err(refused)
    }

    /// Waits for a place; `_turn` is the one in the queue. The start is not kept alive by it.
    fn enter_in_turn(
        self,
        mut stream: Stream,
        _turn: OwnedSemaphorePermit,
        start: &Start,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (places, wait) = (start.places.clone(), start.wait);
        async move {
            let place = timeout(wait, places.acquire_owned()).await;
            match (place, self.start.upgrade()) {
                (Ok(Ok(place)), Some(start)) => drop(self.hand_over(&start, stream, place)),
                (Err(_), Some(_)) => stream.reset(Reason::Busy as u64),
                _ => stream.reset(Reason::Unknown as u64),
            }
        }
    }

    fn hand_over(
        &self,
        start: &Start,
        stream: Stream,
        place: OwnedSemaphorePermit,
    ) -> Result<(), Reason> {
        start.connection.iter().for_each(|connection| start.hold(connection));
        stream.keep(place);
        // A receiver that has gone drops the stream, which resets it.
        self.incoming.send(stream).map_err(|_| Reason::Unknown)
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
    async fn one_too_many_waits_and_is_refused_after_a_while_and_the_others_go_on() {
        let (client, server) = connections(Options::default()).await.unwrap();
        let (near, _) = Streams::new(client, 7, 4);
        let (mut far, entrance) =
            Streams::of(Some(server.clone()), 7, 2, Duration::from_millis(200));
        tokio::spawn(receive_all(server, 7, entrance));
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
    async fn those_without_a_place_have_it_in_turn_at_either_side() {
        let (client, server) = connections(Options::default()).await.unwrap();
        let (near, _) = Streams::new(client, 7, 100);
        let mut far = Streams::receiving(server, 7, 2);
        let opener = near.opener();
        let mut opened = Vec::new();
        for number in 0..2 + QUEUE as u8 {
            let mut stream = opener.open(Class::Bulk).await.unwrap();
            stream.send(&[number]).await.unwrap();
            opened.push(stream);
        }
        let mut seen = Vec::new();
        for _ in 0..2 + QUEUE {
            // Its end makes room for the next.
            let mut theirs = far.accept().await;
            seen.push(theirs.receive(1).await.unwrap().unwrap()[0]);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..2 + QUEUE as u8));
        drop(opened);
        let (few, _) = Streams::new(near.opener().0.connection.clone().unwrap(), 8, 1);
        let first = few.opener().open(Class::Bulk).await.unwrap();
        let opener = few.opener();
        let second = tokio::spawn(async move { opener.open_in_turn(Class::Bulk).await.map(drop) });
        assert_eq!(few.opener().open(Class::Bulk).await.err(), Some(OpenError::Full));
        drop(first);
        second.await.unwrap().unwrap();
        // What waits when the start ends is not left waiting.
        let _third = few.opener().open_in_turn(Class::Bulk).await.unwrap();
        let opener = few.opener();
        let fourth = tokio::spawn(async move { opener.open_in_turn(Class::Bulk).await.map(drop) });
        tokio::task::yield_now().await;
        drop(few);
        assert_eq!(fourth.await.unwrap(), Err(OpenError::Lost(StreamError::Finished)));
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
