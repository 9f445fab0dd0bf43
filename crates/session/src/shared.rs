//! The state that the driver and every handle of one connection share.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Instant;

use levada_channel::{Connection as Channel, Event, StreamId};

use crate::SessionError;

/// Shared state behind one lock, held only for as long as bytes are sealed, opened or copied.
pub(crate) struct Shared(Mutex<State>);

pub(crate) struct State {
    pub(crate) channel: Channel,
    /// Set once, when the connection is over; every operation returns it from then on.
    pub(crate) ended: Option<SessionError>,
    pub(crate) connected: bool,
    /// Whether the peer has yet to prove a right, and its connection is accounted for.
    pub(crate) accounted: bool,
    /// The last byte that will ever leave has left.
    pub(crate) flushed: bool,
    /// Streams with a handle.
    pub(crate) streams: usize,
    /// Those of them that are interactive.
    pub(crate) interactive: usize,
    readers: HashMap<StreamId, Waker>,
    writers: HashMap<StreamId, Waker>,
    opened: VecDeque<StreamId>,
    /// Tasks that wait for the handshake, for a new stream or for the end.
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
            readers: HashMap::new(),
            writers: HashMap::new(),
            opened: VecDeque::new(),
            watchers: Vec::new(),
            driver: None,
        })))
    }

    /// Waits until `look` finds what it looks for. It looks again whenever the handshake, a new stream,
    /// or the end may have changed that.
    pub(crate) async fn watch<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = self.lock();
            if let Some(found) = look(&mut state) {
                return Poll::Ready(found);
            }
            state.watcher_sleeps(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// A panic in another thread must not take the whole node down: the state is still consistent
    /// enough to be closed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    /// Wakes the driver if the channel has something for the transport.
    pub(crate) fn kick(&mut self) {
        if self.channel.wants_transmit() {
            self.wake_driver();
        }
    }

    pub(crate) fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    pub(crate) fn driver_sleeps(&mut self, waker: &Waker) {
        remember(&mut self.driver, waker);
    }

    pub(crate) fn reader_sleeps(&mut self, id: StreamId, waker: &Waker) {
        self.readers.insert(id, waker.clone());
    }

    pub(crate) fn writer_sleeps(&mut self, id: StreamId, waker: &Waker) {
        self.writers.insert(id, waker.clone());
    }

    fn watcher_sleeps(&mut self, waker: &Waker) {
        if !self.watchers.iter().any(|known| known.will_wake(waker)) {
            self.watchers.push(waker.clone());
        }
    }

    pub(crate) fn next_opened(&mut self) -> Option<StreamId> {
        self.opened.pop_front()
    }

    pub(crate) fn forget(&mut self, id: StreamId) {
        self.readers.remove(&id);
        self.writers.remove(&id);
        self.channel.forget(id);
        if self.accounted {
            // It may wait for the memory that is free now.
            self.wake_driver();
        }
        self.kick();
    }

    /// Closes the connection, and frees what has come and was not read.
    pub(crate) fn abandon(&mut self, code: u64, reason: &str) {
        self.channel.abandon(code, reason);
        self.opened.clear();
        self.dispatch_events();
        self.wake_driver();
    }

    /// Hands the channel's events to whoever waits for them.
    pub(crate) fn dispatch_events(&mut self) {
        while let Some(event) = self.channel.poll_event() {
            match event {
                Event::Connected => {
                    self.connected = true;
                    self.wake_watchers();
                }
                Event::Opened(id) => {
                    self.opened.push_back(id);
                    self.wake_watchers();
                }
                Event::Readable(id) => wake(self.readers.remove(&id)),
                Event::Writable(id) => wake(self.writers.remove(&id)),
                Event::Closed(close) if close.by_peer => {
                    let (code, reason) = (close.code, close.reason);
                    self.end(SessionError::ClosedByPeer { code, reason });
                }
                Event::Closed(_) => self.end(SessionError::Closed),
            }
        }
    }

    /// The connection is over: everybody who waits is told. The first reason stays.
    pub(crate) fn end(&mut self, error: SessionError) {
        self.ended.get_or_insert(error);
        self.wake_watchers();
        for (_, waker) in self.readers.drain().chain(self.writers.drain()) {
            waker.wake();
        }
        self.wake_driver();
    }

    pub(crate) fn flushed(&mut self) {
        self.flushed = true;
        self.wake_watchers();
    }

    /// Gives a stream up in both directions and tells the tasks that wait on it.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64) {
        self.channel.reset(id, code);
        self.dispatch_events();
        wake(self.readers.remove(&id));
        wake(self.writers.remove(&id));
        self.kick();
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.channel.timeout()
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

fn remember(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) if known.will_wake(waker) => {}
        _ => *place = Some(waker.clone()),
    }
}
