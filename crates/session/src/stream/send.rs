//! The sending direction of a stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::coop::poll_proceed;

use super::state::{Core, DROPPED};
use crate::StreamError;

/// A task whose writes are never refused yields after this many bytes.
const YIELD_AFTER: usize = 64 << 10;
/// Sent bytes are added to [`crate::Traffic`] when there are this many: an atomic operation for each
/// short message would cost a part of its time.
const COUNT_AFTER: usize = 16 << 10;
/// The bytes that a message counts for in addition to its content.
const MESSAGE_COST: usize = 64;

/// The sending direction. Dropping it before [`SendHalf::finish`] resets the stream.
pub struct SendHalf {
    pub(super) core: Arc<Core>,
    finished: bool,
    /// A write was cancelled after a part of its data was accepted: nothing may follow that part.
    write_cancelled: bool,
    /// Bytes written since the task last yielded.
    since_yield: usize,
    /// Bytes written that are not in [`crate::Traffic`] yet.
    uncounted: usize,
}

/// What earlier polls of a write accepted: whole parts, and bytes of the next one.
#[derive(Clone, Copy, Default)]
struct Progress {
    parts: usize,
    written: usize,
}

impl SendHalf {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, finished: false, write_cancelled: false, since_yield: 0, uncounted: 0 }
    }

    /// See [`crate::Stream::share_uplink`].
    pub(super) fn share_uplink(&self) {
        self.core.handle.shared().lock().shares_uplink = true;
    }

    /// Sends one whole message; waits for the peer's credit.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    pub fn send<'a>(
        &'a mut self,
        message: &'a [u8],
    ) -> impl Future<Output = Result<(), StreamError>> + 'a {
        self.write(message, true)
    }

    /// Sends a part of a message, and its end if `end`. A message may have any length. If the
    /// future is dropped after some of the part's bytes were accepted, the next write resets the
    /// stream.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    // Not an `async fn`: for small messages the state machines of nested futures cost more than the
    // copy.
    pub fn write<'a>(
        &'a mut self,
        part: &'a [u8],
        end: bool,
    ) -> impl Future<Output = Result<(), StreamError>> + 'a {
        let mut progress = Progress::default();
        poll_fn(move |cx| self.poll_write(cx, &[part], end, &mut progress))
    }

    /// Sends whole messages in order; waits for the peer's credit. For short messages it costs
    /// about half as much as a call of [`Self::send`] for each. If the future is dropped, the
    /// messages accepted so far are sent; if one was accepted in part, the next write resets the
    /// stream.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    pub fn send_all<'a, M: AsRef<[u8]>>(
        &'a mut self,
        messages: &'a [M],
    ) -> impl Future<Output = Result<(), StreamError>> + 'a {
        let mut progress = Progress::default();
        poll_fn(move |cx| self.poll_write(cx, messages, true, &mut progress))
    }

    /// Writes parts of messages, each the end of one if `end`.
    fn poll_write<M: AsRef<[u8]>>(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[M],
        end: bool,
        progress: &mut Progress,
    ) -> Poll<Result<(), StreamError>> {
        if self.write_cancelled && progress.written == 0 {
            self.reset(DROPPED);
            return Poll::Ready(Err(StreamError::Finished));
        }
        while progress.parts < parts.len() {
            if self.since_yield >= YIELD_AFTER {
                ready!(poll_proceed(cx)).made_progress();
                self.since_yield = 0;
            }
            ready!(self.poll_write_locked(cx, parts, end, progress))?;
            if self.uncounted >= COUNT_AFTER {
                self.count();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// As [`Self::poll_write`], until the task should yield: with one lock for all.
    fn poll_write_locked<M: AsRef<[u8]>>(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[M],
        end: bool,
        progress: &mut Progress,
    ) -> Poll<Result<(), StreamError>> {
        let core = &*self.core;
        let mut state = core.handle.shared().lock();
        while let Some(part) = parts.get(progress.parts)
            && self.since_yield < YIELD_AFTER
        {
            let part = part.as_ref();
            match state.channel.write(core.id, &part[progress.written..], end) {
                Ok(Some(length)) if progress.written + length == part.len() => {
                    *progress = Progress { parts: progress.parts + 1, written: 0 };
                    self.write_cancelled = false;
                    self.since_yield += MESSAGE_COST + part.len();
                    self.uncounted += length;
                }
                Ok(Some(length)) => {
                    progress.written += length;
                    self.uncounted += length;
                    self.write_cancelled = true;
                }
                Ok(None) => {
                    if let Some(ended) = &state.ended {
                        return Poll::Ready(Err(ended.clone().into()));
                    }
                    state.register_writer(core.id, cx.waker());
                    state.request_transmit();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(Core::error(&state, error))),
            }
        }
        state.request_transmit();
        Poll::Ready(Ok(()))
    }

    /// Ends this direction: the peer reads the end after the last message. Within a message this
    /// resets the stream.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    pub async fn finish(&mut self) -> Result<(), StreamError> {
        if self.finished {
            return Ok(());
        }
        self.count();
        let mut state = self.core.handle.shared().lock();
        match state.channel.finish(self.core.id) {
            Ok(()) => {
                self.finished = true;
                state.request_transmit();
                Ok(())
            }
            Err(error) => {
                // Finishing within a message resets the stream, which ends the waits of other
                // tasks.
                state.wake_stream(self.core.id);
                state.request_transmit();
                Err(Core::error(&state, error))
            }
        }
    }

    /// Adds what was written to the traffic that the stream counts in.
    fn count(&mut self) {
        let bytes = std::mem::take(&mut self.uncounted);
        if let Some(traffic) = self.core.traffic.get() {
            traffic.add_sent(bytes);
        }
    }

    /// Resets both directions of the stream with `code`.
    pub fn reset(&mut self, code: u64) {
        self.finished = true;
        self.core.reset(code);
    }

    /// Waits until the stream can no longer be used, and returns why. It reads no data, and unread
    /// messages do not delay it.
    ///
    /// It resolves when
    /// - the peer resets the stream, or drops its [`crate::Stream`] or both halves of it, unless
    ///   both directions were finished before: [`StreamError::Reset`];
    /// - this side resets the stream ([`Self::reset`], [`crate::StreamAborter::reset`], or a
    ///   [`SendHalf`] dropped before [`Self::finish`]): [`StreamError::Reset`];
    /// - the connection ends, for any reason: [`StreamError::Connection`];
    /// - both halves of this side were dropped: [`StreamError::Finished`].
    ///
    /// If that has happened before the call, it resolves at once. It does not resolve when the peer
    /// or this side finishes its direction, nor when both do: [`crate::ReceiveHalf::receive`]
    /// reports the peer's finish. While the connection waits for memory of its [`crate::Budget`], a
    /// reset by the peer is not read, and so delayed.
    ///
    /// The future borrows nothing: any number of them may wait, in any task, while both halves are
    /// in use, and it keeps neither the stream nor the connection open. It is cancel-safe: a new
    /// future continues where a dropped one ended. Each poll takes the connection's lock, so a loop
    /// should create it once, outside.
    pub fn closed(&self) -> impl Future<Output = StreamError> + Send + Sync + Unpin + use<> {
        self.core.closed()
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        self.count();
        if !self.finished {
            self.reset(DROPPED);
        }
    }
}
