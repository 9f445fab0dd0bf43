//! The output of a driver: sealed records go to the transport.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::AsyncWrite;

use super::{Driver, Progress};

/// The largest output buffer, in bytes, of a connection that has nothing to send: one of many may
/// send rarely.
pub(super) const LARGEST_IDLE_OUTPUT: usize = 32 * 1024;

impl Driver {
    /// Writes sealed records until none is left or the transport is full.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            let mut state = self.shared.lock();
            state.channel.written();
            state.dispatch_events();
            if !state.channel.wants_transmit() {
                drop(state);
                if self.output.capacity() > LARGEST_IDLE_OUTPUT {
                    self.release_output();
                }
                return Progress::Waiting;
            }
            state.channel.transmit(Instant::now(), &mut self.output);
            state.dispatch_events();
            let uplink = state.uplink();
            self.rtt = state.channel.rtt();
            drop(state);
            self.rate.limit_unsent(self.transport.as_mut(), uplink);
            if self.output.is_empty() {
                return Progress::Waiting;
            }
        }
        match Pin::new(&mut self.transport).poll_write(cx, &self.output[self.sent..]) {
            Poll::Pending => {
                self.rate.on_blocked();
                Progress::Waiting
            }
            Poll::Ready(Ok(length)) if length > 0 => {
                self.sent += length;
                self.rate.on_sent(length, self.rtt);
                Progress::Moved
            }
            Poll::Ready(Ok(_)) => self.transport_failed(&io::ErrorKind::WriteZero.into()),
            Poll::Ready(Err(error)) => {
                self.drain_read(cx);
                self.transport_failed(&error)
            }
        }
    }

    /// Releases the output buffer if it holds nothing.
    pub(super) fn release_output(&mut self) {
        if self.sent == self.output.len() {
            (self.output, self.sent) = (Vec::new(), 0);
        }
    }
}
