//! The state that the driver and all handles of one connection share.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Instant;

use levada_channel::{Connection as Channel, Event, StreamId};

use crate::budget::Accounted;
use crate::rate::Uplink;
use crate::{SessionError, StreamError};

/// Shared state behind one lock, held only for as long as bytes are sealed, opened or copied.
pub(crate) struct Shared(Mutex<State>);

pub(crate) struct State {
    pub(crate) channel: Channel,
    /// Set once, when the connection ends; every operation returns it from then on.
    pub(crate) ended: Option<SessionError>,
    pub(crate) connected: bool,
    /// Whether the connection's memory counts against a budget, because the peer has not proved a
    /// right.
    pub(crate) accounted: bool,
    /// The transport has accepted the last byte of the connection.
    pub(crate) flushed: bool,
    /// Streams with a handle.
    pub(crate) streams: usize,
    /// Those of them that are interactive.
    pub(crate) interactive: usize,
    /// See [`crate::Stream::share_uplink`].
    pub(crate) shares_uplink: bool,
    readers: HashMap<StreamId, Waker>,
    writers: HashMap<StreamId, Waker>,
    /// Tasks that wait in [`crate::SendHalf::closed`].
    close_watchers: HashMap<StreamId, Vec<Waker>>,
    opened: VecDeque<StreamId>,
    /// Tasks that wait for a new stream, the last byte sent or the end of the connection.
    watchers: Vec<Waker>,
    driver: Option<Waker>,
}

impl Shared {
    pub(crate) fn new(channel: Channel) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            channel,
            ended: None,
            connected: false,
            accounted: false,
            flushed: false,
            streams: 0,
            interactive: 0,
            shares_uplink: false,
            readers: HashMap::new(),
            writers: HashMap::new(),
            close_watchers: HashMap::new(),
            opened: VecDeque::new(),
            watchers: Vec::new(),
            driver: None,
        })))
    }

    /// Waits until `condition` returns a value. It is evaluated again after each new stream, when
    /// the last byte is sent, and at the end of the connection.
    pub(crate) async fn wait_for<T>(
        &self,
        mut condition: impl FnMut(&mut State) -> Option<T>,
    ) -> T {
        poll_fn(|cx| {
            let mut state = self.lock();
            if let Some(found) = condition(&mut state) {
                return Poll::Ready(found);
            }
            state.register_watcher(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Ignores poisoning: a panic in another thread must not end the node, and the state is
    /// consistent enough to be closed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Accounted for Shared {
    fn abandon(&self, code: u64, reason: &str) {
        self.lock().abandon(code, reason);
    }
}

/// Closes the connection when the last handle is dropped.
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.channel.close(0, "");
        state.dispatch_events();
        state.wake_driver();
    }
}

impl State {
    pub(crate) fn uplink(&self) -> Uplink {
        match (self.interactive, self.shares_uplink) {
            (0, _) => Uplink::Bulk,
            (_, false) => Uplink::Interactive,
            (_, true) => Uplink::Shared,
        }
    }

    /// Wakes the driver if the channel has bytes for the transport.
    pub(crate) fn request_transmit(&mut self) {
        // Without a waker the driver runs already, or is woken.
        if self.driver.is_some() && self.channel.wants_transmit() {
            self.wake_driver();
        }
    }

    pub(crate) fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    pub(crate) fn register_driver(&mut self, waker: &Waker) {
        store_waker(&mut self.driver, waker);
    }

    pub(crate) fn register_reader(&mut self, id: StreamId, waker: &Waker) {
        self.readers.insert(id, waker.clone());
    }

    pub(crate) fn register_writer(&mut self, id: StreamId, waker: &Waker) {
        self.writers.insert(id, waker.clone());
    }

    fn register_watcher(&mut self, waker: &Waker) {
        add_waker(&mut self.watchers, waker);
    }

    /// Why a stream can no longer be used; None while it can, or if its directions have finished.
    pub(crate) fn close_reason(&self, id: StreamId) -> Option<StreamError> {
        let ended = || self.ended.clone().map(StreamError::from);
        self.channel.reset_code(id).map(StreamError::Reset).or_else(ended)
    }

    /// See [`crate::SendHalf::closed`].
    pub(crate) fn poll_stream_closed(&mut self, id: StreamId, waker: &Waker) -> Poll<StreamError> {
        if let Some(reason) = self.close_reason(id) {
            return Poll::Ready(reason);
        }
        if self.channel.class(id).is_none() {
            // Both halves were dropped.
            return Poll::Ready(StreamError::Finished);
        }
        add_waker(self.close_watchers.entry(id).or_default(), waker);
        Poll::Pending
    }

    pub(crate) fn next_opened(&mut self) -> Option<StreamId> {
        self.opened.pop_front()
    }

    pub(crate) fn forget(&mut self, id: StreamId) {
        self.readers.remove(&id);
        self.writers.remove(&id);
        self.channel.forget(id);
        self.wake_close_watchers(id);
        if self.accounted {
            // The driver may wait for the memory that was freed.
            self.wake_driver();
        }
        self.request_transmit();
    }

    /// Closes the connection, and frees all unread data.
    pub(crate) fn abandon(&mut self, code: u64, reason: &str) {
        self.channel.abandon(code, reason);
        self.opened.clear();
        self.dispatch_events();
        self.wake_driver();
    }

    /// Passes the channel's events to the waiting tasks.
    pub(crate) fn dispatch_events(&mut self) {
        while let Some(event) = self.channel.poll_event() {
            match event {
                // The driver looks at it: no task has a handle before the handshake is complete.
                Event::Connected => self.connected = true,
                Event::Opened(id) => {
                    self.opened.push_back(id);
                    self.wake_watchers();
                }
                Event::Readable(id) => wake(self.readers.remove(&id)),
                Event::Writable(id) => wake(self.writers.remove(&id)),
                Event::Reset(id) => self.wake_close_watchers(id),
                Event::Closed(close) if close.by_peer => {
                    let code = close.code;
                    let reason = close.reason;
                    self.end(SessionError::ClosedByPeer { code, reason });
                }
                Event::Closed(_) => self.end(SessionError::Closed),
            }
        }
    }

    /// Ends the connection and wakes all waiting tasks. The first reason stays.
    pub(crate) fn end(&mut self, error: SessionError) {
        self.ended.get_or_insert(error);
        self.wake_watchers();
        for (_, waker) in self.readers.drain().chain(self.writers.drain()) {
            waker.wake();
        }
        self.close_watchers.drain().flat_map(|(_, wakers)| wakers).for_each(Waker::wake);
        self.wake_driver();
    }

    pub(crate) fn flushed(&mut self) {
        self.flushed = true;
        self.wake_watchers();
    }

    /// Resets both directions of a stream and wakes the tasks that wait on it.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64) {
        self.channel.reset(id, code);
        self.dispatch_events();
        self.wake_stream(id);
        self.request_transmit();
    }

    /// Wakes all tasks that wait on a stream.
    pub(crate) fn wake_stream(&mut self, id: StreamId) {
        wake(self.readers.remove(&id));
        wake(self.writers.remove(&id));
        self.wake_close_watchers(id);
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.channel.timeout()
    }

    fn wake_close_watchers(&mut self, id: StreamId) {
        self.close_watchers.remove(&id).into_iter().flatten().for_each(Waker::wake);
    }

    fn wake_watchers(&mut self) {
        for waker in self.watchers.drain(..) {
            waker.wake();
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Adds a waker, unless one of the same task is there.
fn add_waker(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|known| known.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}

fn store_waker(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) if known.will_wake(waker) => {}
        _ => *slot = Some(waker.clone()),
    }
}
