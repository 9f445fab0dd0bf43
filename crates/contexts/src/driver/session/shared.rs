//! What the driver and the handles of a session share.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use levada_session::parts::Accounted;

use crate::{ContextError, PathConnection, PathError, PathEvent, Received};

/// The driver reads nothing more while this many bytes wait for the application.
const MAX_QUEUED: usize = 256 * 1024;
/// What an event takes in memory besides its data, about.
const EVENT: usize = 64;

pub(in crate::driver) struct Shared(Mutex<State>);

/// What the driver and the handles share.
pub(in crate::driver) struct State {
    pub(in crate::driver) connection: PathConnection,
    events: VecDeque<PathEvent>,
    /// Bytes of `events`.
    queued: usize,
    pub(in crate::driver) ended: Option<PathError>,
    /// No handle is left.
    pub(in crate::driver) abandoned: bool,
    /// This side has sent its end.
    pub(in crate::driver) closed: bool,
    /// The peer has sent its end.
    pub(in crate::driver) peer_closed: bool,
    /// Whether the session's memory counts against a budget, because the peer has not proved a
    /// right.
    pub(in crate::driver) accounted: bool,
    waiting: Vec<Waker>,
    driver: Option<Waker>,
}

impl Shared {
    pub(super) fn new(connection: PathConnection) -> Self {
        Self(Mutex::new(State {
            connection,
            events: VecDeque::new(),
            queued: 0,
            ended: None,
            abandoned: false,
            closed: false,
            peer_closed: false,
            accounted: false,
            waiting: Vec::new(),
            driver: None,
        }))
    }

    pub(in crate::driver) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `condition` returns a value; it is evaluated again after everything that
    /// happens.
    pub(super) async fn wait<T>(&self, mut condition: impl FnMut(&mut State) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut state = self.lock();
            match condition(&mut state) {
                Some(found) => Poll::Ready(found),
                None => {
                    state.register(cx);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Accounted for Shared {
    /// The peer gets an ALERT with the code of a party that is busy.
    fn abandon(&self, _: u64, _: &str) {
        let mut state = self.lock();
        state.connection.busy();
        state.events.clear();
        state.queued = 0;
        let what = "unread data of peers that have not proved a right";
        state.end(ContextError::Flood(what).into());
        state.wake_driver();
    }
}

impl State {
    /// A call of the connection, unless the session has ended.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&mut PathConnection) -> Result<T, ContextError>,
    ) -> Result<T, PathError> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        Ok(call(&mut self.connection)?)
    }

    fn register(&mut self, cx: &Context<'_>) {
        if !self.waiting.iter().any(|known| known.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
    }

    pub(in crate::driver) fn register_driver(&mut self, cx: &Context<'_>) {
        if !self.driver.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            self.driver = Some(cx.waker().clone());
        }
    }

    pub(in crate::driver) fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    pub(in crate::driver) fn wake_all(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// Takes the events of the connection.
    pub(in crate::driver) fn dispatch(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            // Writers wait for it.
            if event == PathEvent::Writable {
                continue;
            }
            self.peer_closed |= event == PathEvent::Closed;
            self.queued += length(&event);
            self.events.push_back(event);
        }
        self.wake_all();
    }

    /// Whether the driver may read more.
    pub(in crate::driver) fn wants_input(&self) -> bool {
        self.queued < MAX_QUEUED && self.connection.wants_input() && !self.abandoned
    }

    /// What the session holds in memory, in bytes, about.
    pub(in crate::driver) fn memory(&self) -> usize {
        self.queued + self.connection.memory()
    }

    /// The first reason stays.
    pub(in crate::driver) fn end(&mut self, error: PathError) {
        self.ended.get_or_insert(error);
        self.wake_all();
    }

    pub(super) fn next(&mut self) -> Option<Result<Option<PathEvent>, PathError>> {
        if let Some(event) = self.events.pop_front() {
            let full = self.queued >= MAX_QUEUED;
            self.queued -= length(&event);
            // A session that counts against a budget may wait for the memory.
            if self.accounted || full && self.queued < MAX_QUEUED {
                self.wake_driver();
            }
            return Some(Ok(Some(event)));
        }
        if self.peer_closed {
            return Some(Ok(None));
        }
        self.ended.clone().map(Err)
    }
}

fn length(event: &PathEvent) -> usize {
    EVENT
        + match event {
            PathEvent::Received(
                Received::Data { data, .. } | Received::Control(data) | Received::Error(data),
            ) => data.len(),
            _ => 0,
        }
}
