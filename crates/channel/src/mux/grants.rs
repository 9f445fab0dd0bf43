//! What this side has granted the peer: the credit of the connection and of its streams, and which
//! new limits are to be told.

use std::time::Instant;

use crate::Options;
use crate::credit::{INITIAL_CONNECTION, INITIAL_STREAM, Pace, Window};
use crate::frame::Frame;
use crate::stream::{Direction, Stream};

/// The windows of the connection and of its streams.
pub(crate) struct Grants {
    /// The window of the connection.
    pub(crate) connection: Window,
    pub(crate) pace: Pace,
    /// What a new stream starts with, and how far any window grows.
    stream: u64,
    most: u64,
    /// Whether the new limit of the connection, and of which streams, is to be told.
    connection_due: bool,
    streams_due: Vec<u64>,
    /// Whether a window has moved: time to measure the round trip again.
    measure: bool,
}

impl Grants {
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        let most = options.connection_window.max(INITIAL_CONNECTION);
        Self {
            connection: Window::new(INITIAL_CONNECTION, most, now),
            pace: Pace { now, rtt: None },
            stream: options.stream_window.clamp(INITIAL_STREAM, most),
            most,
            connection_due: false,
            streams_due: Vec::new(),
            measure: false,
        }
    }

    /// The window of a new stream.
    pub(crate) fn window(&self) -> Window {
        Window::new(INITIAL_STREAM, self.most, self.pace.now)
    }

    /// Gives a new stream the credit that it starts with, if it is more than the protocol's.
    pub(crate) fn widen(&mut self, id: u64, stream: &mut Stream) {
        if self.stream > INITIAL_STREAM {
            stream.window.widen(self.stream);
            self.tell(id, stream);
        }
    }

    /// The peer's credit that was used on a stream is free again, there and on the connection.
    pub(crate) fn release(&mut self, id: u64, stream: &mut Stream, cost: u64) {
        if stream.window.release(cost, self.pace) {
            self.measure = true;
            self.tell(id, stream);
        }
        self.release_connection(cost);
    }

    /// As [`Self::release`], for a stream that is gone.
    pub(crate) fn release_connection(&mut self, cost: u64) {
        if self.connection.release(cost, self.pace) {
            self.measure = true;
            self.connection_due = true;
        }
    }

    /// Throws away what a stream has received, and releases its credit.
    pub(crate) fn discard(&mut self, id: u64, stream: &mut Stream) {
        stream.inbox.clear();
        self.release(id, stream, stream.window.held());
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
