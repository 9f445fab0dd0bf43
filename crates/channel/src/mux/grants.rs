//! Credit granted to the peer: the windows of the connection and of its streams, and the window
//! updates that are due.

use std::time::Instant;

use crate::Options;
use crate::credit::{INITIAL_CONNECTION, INITIAL_STREAM, PathState, Window};
use crate::frame::Frame;
use crate::stream::{Direction, Receiver};
use crate::varint;

/// A stream's limit moves when its window divided by this can be granted anew. Consumed bytes that
/// are not yet granted again reduce what the sender may have in flight: with half a window, as was
/// tried, a sender that bbr paces evenly reached only half of what the window allows.
const UPDATE_DIVISOR: u64 = 8;

/// The windows of the connection and of its streams.
///
/// The unread data of stalled readers fills the connection's window. So the windows of streams grow
/// out of a common budget of three quarters of it, which leaves a quarter to streams that never
/// grew, and no stream's window exceeds half of it.
pub(crate) struct Grants {
    /// The window of the connection.
    pub(crate) connection: Window,
    pub(crate) path: PathState,
    /// The window of a new stream.
    initial_stream_window: u64,
    /// The largest window of a stream.
    max_stream_window: u64,
    /// The connection's window after [`Self::raise`]; None once that was called.
    withheld: Option<u64>,
    /// By how many bytes the windows of all streams together may still grow.
    growth_budget: u64,
    /// Whether a window update of the connection is due.
    connection_update_due: bool,
    /// The streams of which one is due.
    stream_updates_due: Vec<u64>,
    /// Whether a window has moved, so that the round trip is to be measured again.
    rtt_probe_due: bool,
}

impl Grants {
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        let whole = options.connection_window.clamp(INITIAL_CONNECTION, varint::MAX);
        let mut grants = Self {
            connection: Window::new(INITIAL_CONNECTION, now),
            path: PathState { now, rtt: None },
            initial_stream_window: options.stream_window.max(INITIAL_STREAM),
            max_stream_window: whole / 2,
            withheld: Some(whole),
            growth_budget: 0,
            connection_update_due: false,
            stream_updates_due: Vec::new(),
            rtt_probe_due: false,
        };
        if !options.initial_credit_only {
            grants.raise();
        }
        grants
    }

    /// Grants the withheld credit, and allows the windows of streams to grow from now on. Repeating
    /// it does nothing.
    pub(crate) fn raise(&mut self) {
        let Some(whole) = self.withheld.take() else { return };
        self.growth_budget = whole / 4 * 3;
        // The connection grants all that it can hold, so that only the windows of streams slow a
        // sender down.
        self.raise_receive_window(whole);
    }

    /// Whether the peer's credit is the protocol's initial one.
    pub(crate) fn is_initial(&self) -> bool {
        self.withheld.is_some()
    }

    /// The window of a new stream.
    pub(crate) fn window(&self) -> Window {
        Window::new(INITIAL_STREAM, self.path.now)
    }

    /// Raises the connection's window to at least `bytes`. The growth budget stays, so that the
    /// addition serves the streams that never grew.
    pub(crate) fn raise_receive_window(&mut self, bytes: u64) {
        let more = bytes.min(varint::MAX).saturating_sub(self.connection.size());
        if more > 0 {
            self.connection.grow(more);
            self.connection_update_due = true;
        }
    }

    /// Grants a new stream its initial window, if that exceeds the protocol's.
    pub(crate) fn grant_initial(&mut self, id: u64, receiver: &mut Receiver) {
        if self.grow(&mut receiver.window, self.initial_stream_window - INITIAL_STREAM) {
            self.queue_window_update(id, receiver);
        }
    }

    /// Grows a stream's window by at most `by`, as far as the limits allow; false if it did not
    /// grow.
    fn grow(&mut self, window: &mut Window, by: u64) -> bool {
        let by = by.min(self.max_stream_window - window.size()).min(self.growth_budget);
        self.growth_budget -= by;
        window.grow(by);
        by > 0
    }

    /// Releases credit that was used on a stream, there and on the connection. The stream's limit
    /// moves when enough of its window can be granted anew ([`UPDATE_DIVISOR`]), and its window
    /// doubles for a fast reader.
    pub(crate) fn release(&mut self, id: u64, receiver: &mut Receiver, cost: u64) {
        let window = &mut receiver.window;
        let gain = window.release(cost);
        if receiver.direction == Direction::Open {
            if window.should_grow(self.path) == Some(true) && self.grow(window, window.size()) {
                self.queue_window_update(id, receiver);
            }
            if gain >= receiver.window.size() / UPDATE_DIVISOR {
                receiver.window.advance();
                // The PING shares a record with the window update.
                self.rtt_probe_due = true;
                self.queue_window_update(id, receiver);
            }
        }
        self.release_connection(cost);
    }

    /// As [`Self::release`], for a stream without state. Stalled readers may hold nearly the whole
    /// window, so the limit moves when half of the rest can be granted anew.
    pub(crate) fn release_connection(&mut self, cost: u64) {
        let gain = self.connection.release(cost);
        let free = self.connection.size() - self.connection.held();
        if gain > 0 && gain >= free / 2 {
            self.connection.advance();
            self.connection_update_due = true;
        }
    }

    /// Discards what a stream has received, and releases its credit and the growth of its window.
    /// Nothing more will be held for it.
    pub(crate) fn discard(&mut self, id: u64, receiver: &mut Receiver) {
        receiver.buffer.clear();
        self.release(id, receiver, receiver.window.held());
        self.growth_budget += receiver.window.size() - INITIAL_STREAM;
        receiver.window = self.window();
    }

    /// Queues a window update of a stream that still receives.
    fn queue_window_update(&mut self, id: u64, receiver: &mut Receiver) {
        if receiver.direction == Direction::Open && !receiver.window_due {
            receiver.window_due = true;
            self.stream_updates_due.push(id);
        }
    }

    /// Takes the request to measure the round trip again.
    pub(crate) fn take_rtt_probe(&mut self) -> bool {
        std::mem::take(&mut self.rtt_probe_due)
    }

    /// Whether window updates are due.
    pub(crate) fn has_updates(&self) -> bool {
        self.connection_update_due || !self.stream_updates_due.is_empty()
    }

    /// Takes the window update of the connection, if one is due.
    pub(crate) fn take_connection_update(&mut self) -> Option<Frame<'static>> {
        let due = std::mem::take(&mut self.connection_update_due);
        due.then(|| Frame::Window { stream: 0, limit: self.connection.limit() })
    }

    /// Takes a stream of which a window update may be due.
    pub(crate) fn take_stream_update(&mut self) -> Option<u64> {
        self.stream_updates_due.pop()
    }
}
