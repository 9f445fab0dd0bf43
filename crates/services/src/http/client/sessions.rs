//! The sessions of a local origin: opened when a request needs one, kept for the next one, and reported.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use levada_client::{ClientError, Running};
use levada_contexts::{PathSession, Right};
use levada_core::Identity;
use levada_service::Streams;
use levada_service::stdio::{Message, MessageReader};
use levada_service::streams::Opener;
use levada_session::{Class, Connection, ReceiveHalf, SendHalf, Stream};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http::layout::Layout;

/// Sessions with middleboxes at a time: each carries one exchange, and browsers open six connections to an origin.
const SESSIONS: usize = 6;
/// Exchanges at a time over an ordinary session: a node allows 128 streams unless it is configured otherwise.
const EXCHANGES: usize = 64;
/// How long each step of an orderly end may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a session that is started.
pub type Open<T> =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>> + Send + Sync>;

/// How sessions with the node are opened.
pub enum Route {
    /// Through middleboxes.
    Path(Open<PathSession>),
    /// Without.
    Streams(Open<(Running, Streams)>),
}

/// What a middlebox was granted, by both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedMiddlebox {
    /// Its identity.
    pub identity: Identity,
    /// The contexts that it may read or write.
    pub grants: Vec<(&'static str, Right)>,
}

/// What happened to a session.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    /// It was started.
    Opened {
        /// Numbers the sessions of this process, from 1.
        number: u64,
        /// Whether it resumed keys of an earlier one.
        resumed: bool,
        /// The middleboxes, the first next to this side.
        middleboxes: Vec<GrantedMiddlebox>,
    },
    /// It has ended.
    Ended {
        /// The number of the session.
        number: u64,
        /// Why; None if this side has ended it.
        error: Option<String>,
    },
}

/// Receives the events.
pub type Report = Arc<dyn Fn(SessionEvent) + Send + Sync>;

/// The sessions of a local origin.
pub(super) struct Sessions {
    route: Route,
    report: Report,
    opened: AtomicU64,
    idle: Mutex<Vec<IdlePath>>,
    paths: Semaphore,
    shared: Mutex<Option<Arc<StreamSession>>>,
    exchanges: Semaphore,
    /// Requests that wait for a session or a stream.
    waiting: AtomicUsize,
}

/// What carries one exchange.
pub(super) enum Exchange<'a> {
    Path(UsedPath, SemaphorePermit<'a>),
    Stream(SendHalf, ReceiveHalf, SemaphorePermit<'a>),
}

/// A session with middleboxes in use.
pub(super) struct UsedPath {
    pub(super) session: PathSession,
    number: u64,
    /// It was idle between two exchanges, so its end may not have been noticed.
    pub(super) kept: bool,
}

/// An idle session. A task waits for its end.
struct IdlePath {
    take: oneshot::Sender<()>,
    waiting: JoinHandle<Option<UsedPath>>,
}

/// Counts a request that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An ordinary session, which carries all exchanges.
struct StreamSession {
    opener: Opener,
    connection: Connection,
    send: Mutex<SendHalf>,
    /// This side ends the session.
    closing: Arc<AtomicBool>,
    ended: watch::Receiver<bool>,
}

impl Sessions {
    pub(super) fn new(route: Route, report: Report) -> Self {
        Self {
            route,
            report,
            opened: AtomicU64::new(0),
            idle: Mutex::default(),
            paths: Semaphore::new(SESSIONS),
            shared: Mutex::default(),
            exchanges: Semaphore::new(EXCHANGES),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Opens a first session, which shows whether every party allows it.
    pub(super) async fn open_first(&self) -> Result<(), ClientError> {
        match &self.route {
            Route::Path(open) => {
                let path = self.opened_path(open().await?);
                self.keep(path).await;
            }
            Route::Streams(open) => {
                let session = self.opened_streams(open().await?);
                *self.shared.lock().await = Some(session);
            }
        }
        Ok(())
    }

    /// What carries one exchange: waits while the limit is reached.
    pub(super) async fn exchange(&self) -> Result<Exchange<'_>, ClientError> {
        match &self.route {
            Route::Path(open) => {
                let permit = self.permit(&self.paths).await?;
                let path = match self.take_idle().await {
                    Some(path) => path,
                    None => self.opened_path(open().await?),
                };
                Ok(Exchange::Path(path, permit))
            }
            Route::Streams(open) => {
                let permit = self.permit(&self.exchanges).await?;
                let (send, receive) = self.stream(open).await?.split();
                Ok(Exchange::Stream(send, receive, permit))
            }
        }
    }

    async fn permit<'a>(&self, of: &'a Semaphore) -> Result<SemaphorePermit<'a>, ClientError> {
        let _waiting = Waiting::new(&self.waiting);
        of.acquire().await.map_err(|_| ClientError::Local("the local origin is closed".to_owned()))
    }

    /// Returns true while requests wait for a session or a stream.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// A new session with middleboxes, in the place of one that has ended.
    pub(super) async fn new_path(&self) -> Result<UsedPath, ClientError> {
        match &self.route {
            Route::Path(open) => Ok(self.opened_path(open().await?)),
            Route::Streams(_) => Err(ClientError::Local("there are no middleboxes".to_owned())),
        }
    }

    fn number(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn opened_path(&self, session: PathSession) -> UsedPath {
        let number = self.number();
        let middleboxes = granted(&session);
        (self.report)(SessionEvent::Opened { number, resumed: session.resumed(), middleboxes });
        UsedPath { session, number, kept: false }
    }

    async fn take_idle(&self) -> Option<UsedPath> {
        let mut idle = self.idle.lock().await;
        while let Some(IdlePath { take, waiting }) = idle.pop() {
            // If it has ended, nothing receives this.
            let _ = take.send(());
            if let Ok(Some(path)) = waiting.await {
                return Some(path);
            }
        }
        None
    }

    /// Keeps a session for the next exchange.
    pub(super) async fn keep(&self, mut path: UsedPath) {
        path.kept = true;
        let (take, mut taken) = oneshot::channel();
        let report = self.report.clone();
        let waiting = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = path.session.closed() => {
                    let error = "the node or a middlebox has ended it".to_owned();
                    report(SessionEvent::Ended { number: path.number, error: Some(error) });
                    None
                }
                _ = &mut taken => Some(path),
            }
        });
        self.idle.lock().await.push(IdlePath { take, waiting });
    }

    /// Ends a session after a failed exchange.
    pub(super) fn failed(&self, path: UsedPath, error: String) {
        // The other parties must not wait for more; a session that has failed needs no abort.
        let _ = path.session.abort(b"the client has given up an exchange");
        (self.report)(SessionEvent::Ended { number: path.number, error: Some(error) });
    }

    /// A new stream of the session, which is opened again if it has ended.
    async fn stream(&self, open: &Open<(Running, Streams)>) -> Result<Stream, ClientError> {
        let session = self.shared_session(open).await?;
        match session.opener.open_or_wait(Class::Bulk).await {
            Ok(stream) => Ok(stream),
            Err(_) if !session.is_open() => {
                let session = self.shared_session(open).await?;
                session.opener.open_or_wait(Class::Bulk).await.map_err(open_error)
            }
            Err(error) => Err(open_error(error)),
        }
    }

    /// The one session. While it is opened, other exchanges wait here for it.
    async fn shared_session(
        &self,
        open: &Open<(Running, Streams)>,
    ) -> Result<Arc<StreamSession>, ClientError> {
        let mut shared = self.shared.lock().await;
        if let Some(session) = shared.as_ref().filter(|session| session.is_open()) {
            return Ok(session.clone());
        }
        let session = self.opened_streams(open().await?);
        *shared = Some(session.clone());
        Ok(session)
    }

    fn opened_streams(&self, (running, streams): (Running, Streams)) -> Arc<StreamSession> {
        let number = self.number();
        let connection = running.connection.clone();
        let resumed = connection.resumed();
        (self.report)(SessionEvent::Opened { number, resumed, middleboxes: Vec::new() });
        let (send, receive) = running.stream.split();
        let (over, ended) = watch::channel(false);
        let opener = streams.opener();
        let closing = Arc::new(AtomicBool::new(false));
        let report = self.report.clone();
        let orderly = closing.clone();
        tokio::spawn(async move {
            let error = end_of(receive).await;
            // From here on no stream can be opened.
            drop(streams);
            let error = (!orderly.load(Ordering::Relaxed)).then_some(error);
            report(SessionEvent::Ended { number, error });
            let _ = over.send(true);
        });
        Arc::new(StreamSession { opener, connection, send: Mutex::new(send), closing, ended })
    }

    /// Ends all sessions that are not in use.
    pub(super) async fn close(&self) {
        while let Some(UsedPath { session, number, .. }) = self.take_idle().await {
            if session.close().is_ok() {
                let _ = timeout(CLOSE_TIMEOUT, session.flushed()).await;
            }
            (self.report)(SessionEvent::Ended { number, error: None });
        }
        if let Some(session) = self.shared.lock().await.take() {
            session.close().await;
        }
    }
}

impl StreamSession {
    fn is_open(&self) -> bool {
        !*self.ended.borrow() && self.connection.is_open()
    }

    async fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let mut ended = self.ended.clone();
        let end = async {
            let mut send = self.send.lock().await;
            if send.send(&Message::End.to_bytes()).await.is_ok() {
                let _ = ended.wait_for(|ended| *ended).await;
                let _ = send.finish().await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, end).await;
        self.connection.close(0, "");
        let _ = timeout(CLOSE_TIMEOUT, self.connection.flushed()).await;
    }
}

fn open_error(error: levada_service::streams::OpenError) -> ClientError {
    ClientError::Unreachable(error.to_string())
}

/// Why an ordinary session has ended, when it has.
async fn end_of(mut receive: ReceiveHalf) -> String {
    let mut messages = MessageReader::new();
    let mut reason = None;
    loop {
        match messages.next(&mut receive).await {
            Ok(Some(Message::Failure(text))) => reason = Some(text.to_owned()),
            Ok(Some(Message::Exit(_))) => {
                return reason.unwrap_or_else(|| "the service has ended it".to_owned());
            }
            Ok(Some(_)) => return "the service sent an unexpected message".to_owned(),
            Ok(None) => return "the service has left".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

/// What each middlebox of a session was granted.
fn granted(session: &PathSession) -> Vec<GrantedMiddlebox> {
    let Some(path) = session.path() else { return Vec::new() };
    let names = Layout::of(&path).map(Layout::names).unwrap_or_default();
    let of_hop = |(hop, middlebox): (u8, &levada_contexts::Hop)| {
        let rights = (1u8..).zip(&names).map(|(number, name)| (*name, path.right(number, hop)));
        let grants = rights.filter(|(_, right)| *right != Right::None).collect();
        GrantedMiddlebox { identity: middlebox.party.identity, grants }
    };
    (1u8..).zip(&path.hops).map(of_hop).collect()
}
