//! The connections of local clients. Their number is bounded; one without a request makes room for
//! a new one.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use levada_session::{Evicted, HalfOpen, HalfOpenEntry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::sleep;

/// Connections at a time.
const CONNECTIONS: usize = 256;
/// How long to wait for one that ends by itself before the next one without a request is closed.
const PAUSE: Duration = Duration::from_millis(50);
/// All clients are on this machine.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The connections of local clients.
pub(super) struct Connections {
    permits: Arc<Semaphore>,
    idle: HalfOpen,
}

impl Connections {
    pub(super) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(CONNECTIONS)), idle: HalfOpen::default() }
    }

    /// Waits until there is room for a further connection. One without a request is closed for it,
    /// the oldest first.
    pub(super) async fn room(&self) -> OwnedSemaphorePermit {
        loop {
            let permit = self.permits.clone();
            if let Ok(permit) = permit.try_acquire_owned() {
                return permit;
            }
            self.idle.make_room(1).await;
            sleep(PAUSE).await;
        }
    }

    /// A new connection, without a request.
    pub(super) fn add(&self) -> (Idle, Evictions) {
        let (evictions, received) = mpsc::unbounded_channel();
        let idle = Idle { idle: self.idle.clone(), entry: Arc::default(), evictions };
        idle.begin();
        (idle, Evictions(received))
    }
}

/// Whether a connection has a request. Clones share it.
#[derive(Clone)]
pub(super) struct Idle {
    idle: HalfOpen,
    entry: Arc<Mutex<Option<HalfOpenEntry>>>,
    evictions: mpsc::UnboundedSender<Evicted>,
}

impl Idle {
    /// The connection waits for a request.
    fn begin(&self) {
        let (entry, evicted) = self.idle.enter(SOURCE);
        *self.entry.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
        // The connection may have ended.
        let _ = self.evictions.send(evicted);
    }

    /// A request has come. Until its response is dropped, the connection is not closed for another
    /// one.
    pub(super) fn pause(&self) -> Busy {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner).take();
        Busy(self.clone())
    }
}

/// A connection has a request, until this is dropped.
pub(super) struct Busy(Idle);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.begin();
    }
}

/// The evictions of one connection, of each time in which it has no request.
pub(super) struct Evictions(mpsc::UnboundedReceiver<Evicted>);

impl Evictions {
    /// Waits until the connection is to be closed.
    pub(super) async fn wait(mut self) {
        let Some(mut evicted) = self.0.recv().await else { return std::future::pending().await };
        loop {
            tokio::select! {
                () = evicted.wait() => return,
                Some(next) = self.0.recv() => evicted = next,
            }
        }
    }
}

/// A response that keeps its connection busy until its body has ended.
pub(super) struct BusyBody<B> {
    pub(super) body: B,
    pub(super) _busy: Busy,
}

impl<B: Body<Data = Bytes> + Unpin> Body for BusyBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
