//! What this side has granted the peer: the credit of the connection and of its streams, and which
//! new limits are to be told.

use std::time::Instant;

use crate::Options;
use crate::credit::{INITIAL_CONNECTION, INITIAL_STREAM, Pace, Window};
use crate::frame::Frame;
use crate::stream::{Direction, Stream};
use crate::varint;

/// A stream's limit moves when this part of its window can be granted anew. What was consumed and not
/// told yet is missing from what the sender may have under way: half a window, as was tried, kept a
/// sender that bbr paces evenly at half of what the window allows.
const PART: u64 = 8;

/// The windows of the connection and of its streams.
///
/// Readers that stop hold what they were sent, and the connection can hold only so much. So the
/// windows of streams grow out of one store, which leaves a quarter of the connection's window to
/// those that never grew, and no stream gets more than half.
pub(crate) struct Grants {
    /// The window of the connection.
    pub(crate) connection: Window,
    pub(crate) pace: Pace,
    /// What a new stream starts with, and how large the window of a stream gets at most.
    first: u64,
    most: u64,
    /// What the connection is granted by [`Self::raise`]; None once it was.
    withheld: Option<u64>,
    /// By how much windows of streams may still grow, all together.
    store: u64,
    /// Whether the new limit of the connection, and of which streams, is to be told.
    connection_due: bool,
    streams_due: Vec<u64>,
    /// Whether a window has moved: time to measure the round trip again.
    measure: bool,
}

impl Grants {
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        let whole = options.connection_window.clamp(INITIAL_CONNECTION, varint::MAX);
        let mut grants = Self {
            connection: Window::new(INITIAL_CONNECTION, now),
            pace: Pace { now, rtt: None },
            first: options.stream_window.max(INITIAL_STREAM),
            most: whole / 2,
            withheld: Some(whole),
            store: 0,
            connection_due: false,
            streams_due: Vec::new(),
            measure: false,
        };
        if !options.initial_credit_only {
            grants.raise();
        }
        grants
    }

    /// Grants the peer what was withheld, and lets the windows of streams grow from now on. Repeating it does nothing.
    pub(crate) fn raise(&mut self) {
        let Some(whole) = self.withheld.take() else { return };
        self.store = whole / 4 * 3;
        // What it can hold is what it grants: a connection slows down for its streams' sake only.
        self.hold(whole);
    }

    /// Whether the peer's credit is the protocol's initial one.
    pub(crate) fn is_initial(&self) -> bool {
        self.withheld.is_some()
    }

    /// The window of a new stream.
    pub(crate) fn window(&self) -> Window {
        Window::new(INITIAL_STREAM, self.pace.now)
    }

    /// The connection holds at least `bytes` for its readers from now on. The windows of streams grow as
    /// before: what is added is for those that never grew.
    pub(crate) fn hold(&mut self, bytes: u64) {
        let more = bytes.min(varint::MAX).saturating_sub(self.connection.size());
        if more > 0 {
            self.connection.grow(more);
            self.connection_due = true;
        }
    }

    /// Gives a new stream the credit that it starts with, if it is more than the protocol's.
    pub(crate) fn widen(&mut self, id: u64, stream: &mut Stream) {
        if self.grow(&mut stream.window, self.first - INITIAL_STREAM) {
            self.tell(id, stream);
        }
    }

    /// Makes the window of a stream larger by as much of `by` as can be; false if by nothing.
    fn grow(&mut self, window: &mut Window, by: u64) -> bool {
        let by = by.min(self.most - window.size()).min(self.store);
        self.store -= by;
        window.grow(by);
        by > 0
    }

    /// The peer's credit that was used on a stream is free again, there and on the connection. The
    /// limit of the stream moves when a part of its window can be granted anew, and the window doubles
    /// for a fast reader.
    pub(crate) fn release(&mut self, id: u64, stream: &mut Stream, cost: u64) {
        let window = &mut stream.window;
        let gain = window.release(cost);
        if stream.receiving == Direction::Open {
            if window.judge(self.pace) == Some(true) && self.grow(window, window.size()) {
                self.tell(id, stream);
            }
            if gain >= stream.window.size() / PART {
                stream.window.advance();
                // Its PING shares a record with the new limit.
                self.measure = true;
                self.tell(id, stream);
            }
        }
        self.release_connection(cost);
    }

    /// As [`Self::release`], for a stream that is gone. What is held for readers that have stopped
    /// may be nearly all, so the limit moves when half of the rest can be granted anew.
    pub(crate) fn release_connection(&mut self, cost: u64) {
        let gain = self.connection.release(cost);
        let free = self.connection.size() - self.connection.held();
        if gain > 0 && gain >= free / 2 {
            self.connection.advance();
            self.connection_due = true;
        }
    }

    /// Throws away what a stream has received, and releases its credit and its window: no more
    /// comes that would have to be held.
    pub(crate) fn discard(&mut self, id: u64, stream: &mut Stream) {
        stream.inbox.clear();
        self.release(id, stream, stream.window.held());
        self.store += stream.window.size() - INITIAL_STREAM;
        stream.window = self.window();
    }

    fn tell(&mut self, id: u64, stream: &mut Stream) {
        if stream.receiving == Direction::Open && !stream.window_due {
            stream.window_due = true;
            self.streams_due.push(id);
        }
    }

    /// Whether to measure the round trip again; asking answers for the time until then.
    pub(crate) fn take_measure(&mut self) -> bool {
        std::mem::take(&mut self.measure)
    }

    /// Whether there are limits to tell.
    pub(crate) fn any_due(&self) -> bool {
        self.connection_due || !self.streams_due.is_empty()
    }

    /// The new limit of the connection, if there is one.
    pub(crate) fn take_connection_due(&mut self) -> Option<Frame<'static>> {
        let due = std::mem::take(&mut self.connection_due);
        due.then(|| Frame::Window { stream: 0, limit: self.connection.limit() })
    }

    /// A stream whose new limit may have to be told.
    pub(crate) fn take_stream_due(&mut self) -> Option<u64> {
        self.streams_due.pop()
    }
}
