//! Further streams of a session, beside the one on which it was started. Either side opens them on
//! the same connection; the first message of such a stream, `Attach`, names the start that it
//! belongs to. They end with that start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use levada_core::wire::{self, Reason, operation::Operation};
use levada_session::{Class, Connection, SessionError, Stream, StreamError, Traffic};
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// The default number of streams that one start may have open at a time, beside its first one.
pub const DEFAULT_STREAMS: usize = 128;

/// The first version of the protocol with further streams.
const VERSION: u32 = 2;
/// How long the peer may take to send the first message of a stream that it has opened.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams that the peer has opened and that wait for a permit, for each start.
pub const QUEUE: usize = 64;
/// How long a stream waits for a permit, at either side, before it is refused.
pub const WAIT: Duration = Duration::from_secs(30);
/// The receive window of a connection with further streams, in bytes: the window of other
/// connections, and the initial window of each further stream, those in the queue included. Streams
/// that are not read then leave credit to the others.
const BASE_WINDOW: u64 = 16 << 20;
const WINDOW_PER_STREAM: u64 = 256 << 10;

/// The further streams of one start of a session. Dropping it refuses later streams; accepted and
/// opened ones stay open.
pub struct Streams {
    opener: Opener,
    incoming: UnboundedReceiver<Stream>,
    /// The task of [`Self::receiving`].
    receiver: Option<AbortHandle>,
}

/// Opens further streams.
#[derive(Clone)]
pub struct Opener(Arc<Start>);

/// Delivers streams that the peer has opened to [`Streams::accept`]. It does not keep the start
/// alive.
#[derive(Clone)]
pub struct IncomingSender {
    start: Weak<Start>,
    incoming: UnboundedSender<Stream>,
}

struct Start {
    /// `None` if this start can have no further streams.
    connection: Option<Connection>,
    run: u64,
    limit: usize,
    permits: Arc<Semaphore>,
    /// Limits the streams that the peer has opened and that wait for a permit.
    queue: Arc<Semaphore>,
    wait: Duration,
    /// Whether the receive window of the connection has been raised.
    window_raised: AtomicBool,
    /// The traffic in which streams are counted.
    traffic: OnceLock<Arc<Traffic>>,
}

/// Why a further stream could not be opened.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// The limit is reached.
    #[error("the session has reached its limit of open streams")]
    Full,
    /// The other side speaks an older version of the protocol.
    #[error("the other side does not support sessions with several streams")]
    Unsupported,
    /// The connection ended.
    #[error(transparent)]
    Lost(#[from] StreamError),
}

/// Whether both ends of `connection` support further streams.
pub fn supported(connection: &Connection) -> bool {
    connection.version() >= VERSION
}

impl Streams {
    /// The further streams of the start number `run` of `connection`: at most `limit` at a time, of
    /// both sides together.
    pub fn new(connection: Connection, run: u64, limit: usize) -> (Self, IncomingSender) {
        Self::with_wait(Some(connection), run, limit, WAIT)
    }

    /// At the client: as [`Self::new`], for a connection that has no other start, and on which the
    /// node opens no other streams. A task accepts them until this value is dropped.
    pub fn receiving(connection: Connection, run: u64, limit: usize) -> Self {
        let (mut streams, sender) = Self::new(connection.clone(), run, limit);
        streams.receiver = Some(tokio::spawn(receive_all(connection, run, sender)).abort_handle());
        streams
    }

    /// The streams of a start that has none.
    pub fn none() -> Self {
        Self::with_wait(None, 0, 0, WAIT).0
    }

    fn with_wait(
        connection: Option<Connection>,
        run: u64,
        limit: usize,
        wait: Duration,
    ) -> (Self, IncomingSender) {
        let permits = Arc::new(Semaphore::new(limit));
        let queue = Arc::new(Semaphore::new(QUEUE));
        let start = Arc::new(Start {
            connection,
            run,
            limit,
            permits,
            queue,
            wait,
            window_raised: AtomicBool::new(false),
            traffic: OnceLock::new(),
        });
        // Bounded by the permits: each stream in it has one.
        let (sender, incoming) = unbounded_channel();
        let sender = IncomingSender { start: Arc::downgrade(&start), incoming: sender };
        (Self { opener: Opener(start), incoming, receiver: None }, sender)
    }

    /// The next stream that the peer has opened. Its first message, `Attach`, has been read. Never
    /// returns if there can be none.
    pub async fn accept(&mut self) -> Stream {
        match self.incoming.recv().await {
            Some(stream) => stream,
            None => std::future::pending().await,
        }
    }

    /// Counts later streams, and the bytes of their messages, in `traffic`. Only the first call has
    /// an effect.
    pub fn count_in(&self, traffic: &Arc<Traffic>) {
        self.opener.0.traffic.get_or_init(|| traffic.clone());
    }

    /// A handle that opens streams of this start.
    pub fn opener(&self) -> Opener {
        self.opener.clone()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.opener.0.permits.close();
        self.receiver.iter().for_each(AbortHandle::abort);
    }
}

impl Opener {
    /// Opens a stream, which [`Streams::accept`] returns at the other side.
    ///
    /// # Errors
    /// [`OpenError`] if there are too many, or the connection ended.
    pub async fn open(&self, class: Class) -> Result<Stream, OpenError> {
        let connection = self.0.connection()?;
        let permit = self.0.permits.clone().try_acquire_owned().map_err(|error| match error {
            TryAcquireError::NoPermits => OpenError::Full,
            TryAcquireError::Closed => OpenError::Lost(StreamError::Finished),
        });
        self.open_with(connection, permit?, class).await
    }

    /// As [`Self::open`]; waits up to [`WAIT`] for a permit.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub async fn open_or_wait(&self, class: Class) -> Result<Stream, OpenError> {
        let connection = self.0.connection()?;
        let permit = timeout(self.0.wait, self.0.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| OpenError::Full)?;
        let permit = permit.map_err(|_| OpenError::Lost(StreamError::Finished))?;
        self.open_with(connection, permit, class).await
    }

    /// How many streams of this start are open.
    pub fn in_use(&self) -> usize {
        self.0.limit.saturating_sub(self.0.permits.available_permits())
    }

    async fn open_with(
        &self,
        connection: &Connection,
        permit: OwnedSemaphorePermit,
        class: Class,
    ) -> Result<Stream, OpenError> {
        let start = &self.0;
        start.raise_window(connection);
        let mut stream = connection.open(class).map_err(|error| match error {
            SessionError::Channel(levada_session::ChannelError::TooManyStreams) => OpenError::Full,
            error => OpenError::Lost(error.into()),
        })?;
        stream.keep(permit);
        start.count(&stream);
        let attach = Operation::Attach(wire::Attach { run: start.run });
        stream.send(&wire::encode(&wire::Operation::from(attach))).await?;
        Ok(stream)
    }
}

impl Start {
    fn connection(&self) -> Result<&Connection, OpenError> {
        let connection = self.connection.as_ref().filter(|connection| supported(connection));
        connection.ok_or(OpenError::Unsupported)
    }

    fn count(&self, stream: &Stream) {
        if let Some(traffic) = self.traffic.get() {
            stream.count_in(traffic);
        }
    }

    fn raise_window(&self, connection: &Connection) {
        if !self.window_raised.swap(true, Ordering::Relaxed) {
            let streams = (self.limit + QUEUE) as u64;
            connection.raise_receive_window(BASE_WINDOW + streams * WINDOW_PER_STREAM);
        }
    }
}

impl IncomingSender {
    /// Delivers a stream that the peer has opened and whose first message, `Attach`, was read.
    /// Without a permit it waits in the queue for up to [`WAIT`]; if the queue is full, or the time
    /// is over, it is reset with [`Reason::Busy`].
    ///
    /// # Errors
    /// The reason with which it was reset.
    pub fn deliver(&self, mut stream: Stream) -> Result<(), Reason> {
        let refused = match self.start.upgrade() {
            None => Reason::Unknown,
            Some(start) => match start.permits.clone().try_acquire_owned() {
                Ok(permit) => return self.send(&start, stream, permit),
                Err(_) if start.permits.is_closed() => Reason::Unknown,
                Err(_) => match start.queue.clone().try_acquire_owned() {
                    Ok(slot) => {
                        start.connection.iter().for_each(|one| start.raise_window(one));
                        tokio::spawn(self.clone().deliver_queued(stream, slot, &start));
                        return Ok(());
                    }
                    Err(_) => Reason::Busy,
                },
            },
        };
        stream.reset(refused as u64);
        Err(refused)
    }

    /// Waits for a permit; `_slot` is the stream's slot in the queue. The future does not keep the
    /// start alive.
    fn deliver_queued(
        self,
        mut stream: Stream,
        _slot: OwnedSemaphorePermit,
        start: &Start,
    ) -> impl Future<Output = ()> + Send + use<> {
        let permits = start.permits.clone();
        let wait = start.wait;
        async move {
            let permit = timeout(wait, permits.acquire_owned()).await;
            match (permit, self.start.upgrade()) {
                (Ok(Ok(permit)), Some(start)) => drop(self.send(&start, stream, permit)),
                (Err(_), Some(_)) => stream.reset(Reason::Busy as u64),
                _ => stream.reset(Reason::Unknown as u64),
            }
        }
    }

    fn send(
        &self,
        start: &Start,
        stream: Stream,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), Reason> {
        start.connection.iter().for_each(|connection| start.raise_window(connection));
        stream.keep(permit);
        start.count(&stream);
        // If the receiver was dropped, so is the stream, which resets it.
        self.incoming.send(stream).map_err(|_| Reason::Unknown)
    }
}

/// Accepts the streams that the peer opens, all of which must belong to the start number `run`,
/// until the connection ends.
async fn receive_all(connection: Connection, run: u64, sender: IncomingSender) {
    // Streams whose first message has not arrived. The channel limits how many the peer has open.
    let mut unattached = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept() => match stream {
                Some(stream) => drop(unattached.spawn(receive(stream, run, sender.clone()))),
                None => return,
            },
            Some(_) = unattached.join_next() => {}
        }
    }
}

async fn receive(mut stream: Stream, run: u64, sender: IncomingSender) {
    let first = timeout(FIRST_MESSAGE_TIMEOUT, stream.receive(wire::MAX_MESSAGE)).await;
    let Ok(Ok(Some(bytes))) = first else { return };
    let operation = wire::decode::<wire::Operation>(&bytes).ok().and_then(|read| read.operation);
    match operation {
        Some(Operation::Attach(attach)) if attach.run == run => drop(sender.deliver(stream)),
        Some(Operation::Attach(_)) => stream.reset(Reason::Unknown as u64),
        // A client serves no operations.
        _ => stream.reset(Reason::Malformed as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_session::{Options, testing::connections};

    /// The two ends of one start. The server, too, receives streams as a client does.
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
    async fn both_sides_open_streams_and_use_them() {
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
    async fn the_bytes_of_further_streams_are_counted_at_both_ends() {
        let (near, mut far) = pair(4).await;
        let [sent, received] = [(); 2].map(|()| Arc::new(Traffic::default()));
        near.count_in(&sent);
        far.count_in(&received);
        let mut ours = near.opener().open(Class::Bulk).await.unwrap();
        // They may arrive together with the first message, before the stream is counted.
        ours.send_all(&[[0; 1000]; 30]).await.unwrap();
        let mut theirs = far.accept().await;
        for _ in 0..30 {
            assert_eq!(theirs.receive(1000).await.unwrap().unwrap().len(), 1000);
        }
        assert_eq!((sent.open(), received.open()), (1, 1));
        drop((ours, theirs));
        assert_eq!((sent.open(), received.open()), (0, 0));
        assert_eq!(received.received(), 30_000);
        assert!((30_000..30_100).contains(&sent.sent()), "{}", sent.sent());
    }

    #[tokio::test]
    async fn a_stream_above_the_limit_is_refused_after_the_wait_and_the_others_continue() {
        let (client, server) = connections(Options::default()).await.unwrap();
        let (near, _) = Streams::new(client, 7, 4);
        let (mut far, sender) =
            Streams::with_wait(Some(server.clone()), 7, 2, Duration::from_millis(200));
        tokio::spawn(receive_all(server, 7, sender));
        let opener = near.opener();
        let mut first = opener.open(Class::Bulk).await.unwrap();
        let mut theirs = far.accept().await;
        let second = opener.open(Class::Bulk).await.unwrap();
        let _second = (second, far.accept().await);
        let mut refused = opener.open(Class::Bulk).await.unwrap();
        assert_eq!(reset_code(&mut refused).await, Reason::Busy as u64);
        first.send(b"a").await.unwrap();
        assert_eq!(theirs.receive(10).await, Ok(Some(b"a".to_vec())));
        // Above the opener's own limit nothing is sent.
        let _fourth = opener.open(Class::Bulk).await.unwrap();
        assert_eq!(opener.open(Class::Bulk).await.err(), Some(OpenError::Full));
    }

    #[tokio::test]
    async fn streams_above_the_limit_wait_for_a_permit_at_both_sides() {
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
            // Dropping it releases the permit for the next one.
            let mut theirs = far.accept().await;
            seen.push(theirs.receive(1).await.unwrap().unwrap()[0]);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..2 + QUEUE as u8));
        drop(opened);
        let (few, _) = Streams::new(near.opener().0.connection.clone().unwrap(), 8, 1);
        let first = few.opener().open(Class::Bulk).await.unwrap();
        let opener = few.opener();
        let second = tokio::spawn(async move { opener.open_or_wait(Class::Bulk).await.map(drop) });
        assert_eq!(few.opener().open(Class::Bulk).await.err(), Some(OpenError::Full));
        drop(first);
        second.await.unwrap().unwrap();
        // The end of the start ends the wait.
        let _third = few.opener().open_or_wait(Class::Bulk).await.unwrap();
        let opener = few.opener();
        let fourth = tokio::spawn(async move { opener.open_or_wait(Class::Bulk).await.map(drop) });
        tokio::task::yield_now().await;
        drop(few);
        assert_eq!(fourth.await.unwrap(), Err(OpenError::Lost(StreamError::Finished)));
    }

    #[tokio::test]
    async fn streams_of_another_start_or_of_one_that_has_ended_are_refused() {
        let (client, server) = connections(Options::default()).await.unwrap();
        let (other, _) = Streams::new(client.clone(), 8, 4);
        let (near, _) = Streams::new(client.clone(), 7, 4);
        let (far, sender) = Streams::new(server.clone(), 7, 4);
        // Receives after the end of the start, too, as the node does.
        tokio::spawn(receive_all(server, 7, sender));
        let mut stream = other.opener().open(Class::Bulk).await.unwrap();
        assert_eq!(reset_code(&mut stream).await, Reason::Unknown as u64);
        let mut garbage = client.open(Class::Bulk).unwrap();
        garbage.send(b"\xff").await.unwrap();
        assert_eq!(reset_code(&mut garbage).await, Reason::Malformed as u64);
        drop(far);
        let mut stream = near.opener().open(Class::Bulk).await.unwrap();
        assert_eq!(reset_code(&mut stream).await, Reason::Unknown as u64);
        let none = Streams::none().opener().open(Class::Bulk).await;
        assert_eq!(none.err(), Some(OpenError::Unsupported));
    }

    #[tokio::test]
    async fn streams_that_are_not_read_leave_credit_to_the_others() {
        let (near, mut far) = pair(DEFAULT_STREAMS).await;
        let opener = near.opener();
        let mut stalled = Vec::new();
        let data = vec![0; 1 << 20];
        let all = async {
            for _ in 0..DEFAULT_STREAMS - 1 {
                let mut ours = opener.open(Class::Bulk).await.unwrap();
                let theirs = far.accept().await;
                // Nearly the whole initial window of the stream.
                ours.write(&data[..250 << 10], false).await.unwrap();
                stalled.push((ours, theirs));
            }
            let mut ours = opener.open(Class::Bulk).await.unwrap();
            let mut theirs = far.accept().await;
            let (sent, received) = tokio::join!(ours.send(&data), theirs.receive(data.len()));
            sent.unwrap();
            assert!(received.unwrap().is_some_and(|received| received == data));
        };
        timeout(Duration::from_secs(60), all).await.unwrap();
    }
}
