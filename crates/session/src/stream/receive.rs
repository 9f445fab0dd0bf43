//! The receiving direction of a stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use levada_channel::{RecvBuffer, Taken};
use tokio::task::coop::poll_proceed;

use super::state::{Core, DROPPED};
use crate::StreamError;
use crate::shared::State;

/// Credit is released to the channel when this much was read, in bytes: seldom, and long before the
/// peer lacks credit.
const RELEASE_THRESHOLD: u64 = 32 << 10;

/// The receiving direction.
pub struct ReceiveHalf {
    core: Arc<Core>,
    /// Received data, taken from the channel at once and read without its lock.
    recv_buffer: RecvBuffer,
    /// The part of a message that a cancelled [`Self::receive`] has read.
    partial: Vec<u8>,
}

impl ReceiveHalf {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, recv_buffer: RecvBuffer::default(), partial: Vec::new() }
    }

    /// The next message; `None` once the peer has finished.
    ///
    /// # Errors
    /// [`StreamError::TooLong`] if it has more than `max` bytes; otherwise what ended the stream.
    pub async fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, StreamError> {
        if !receive_into(&self.core, &mut self.recv_buffer, &mut self.partial, max).await? {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.partial)))
    }

    /// Appends the next message to `buffer`; false once the peer has finished. If the future is
    /// dropped, `buffer` keeps the part that was read, and the next call appends the rest.
    ///
    /// # Errors
    /// [`StreamError::TooLong`] if `buffer` would hold more than `max` bytes; otherwise what ended
    /// the stream.
    pub async fn receive_into(
        &mut self,
        buffer: &mut Vec<u8>,
        max: usize,
    ) -> Result<bool, StreamError> {
        receive_into(&self.core, &mut self.recv_buffer, buffer, max).await
    }

    /// Reads a part of a message into `buffer` (not empty): its length, and whether the message
    /// ends with it. `None` once the peer has finished.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    // Not an `async fn`: for small messages, to copy its result from one state machine to the next
    // takes longer than to copy the message.
    pub fn read<'a>(
        &'a mut self,
        buffer: &'a mut [u8],
    ) -> impl Future<Output = Result<Option<(usize, bool)>, StreamError>> + 'a {
        poll_fn(move |cx| {
            loop {
                if let Some(part) = self.recv_buffer.read(buffer) {
                    release_credit(&self.core, &mut self.recv_buffer);
                    return Poll::Ready(Ok(Some(part)));
                }
                if !ready!(poll_take(cx, &self.core, &mut self.recv_buffer, 0))? {
                    return Poll::Ready(Ok(None));
                }
            }
        })
    }

    /// The received part of the next message, and whether the message ends with it. Nothing is
    /// copied, and nothing counts as read before [`Self::consume`]. `None` once the peer has
    /// finished.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    pub async fn peek(&mut self) -> Result<Option<(&[u8], bool)>, StreamError> {
        while self.recv_buffer.is_empty() {
            if !take(&self.core, &mut self.recv_buffer, 0).await? {
                return Ok(None);
            }
        }
        Ok(self.recv_buffer.peek())
    }

    /// Marks the first `length` bytes of what [`Self::peek`] returned as read.
    pub fn consume(&mut self, length: usize) {
        self.recv_buffer.consume(length);
        release_credit(&self.core, &mut self.recv_buffer);
    }

    /// The bytes that were taken from the channel and not read yet.
    pub(super) fn unread(&self) -> usize {
        self.recv_buffer.unread()
    }

    /// See [`crate::SendHalf::closed`].
    pub fn closed(&self) -> impl Future<Output = StreamError> + Send + Sync + Unpin + use<> {
        self.core.closed()
    }

    /// Why the stream can no longer be used, if [`Self::closed`] would resolve now.
    pub fn lost(&self) -> Option<StreamError> {
        self.core.lost()
    }
}

async fn receive_into(
    core: &Core,
    recv_buffer: &mut RecvBuffer,
    buffer: &mut Vec<u8>,
    max: usize,
) -> Result<bool, StreamError> {
    loop {
        // One byte more than allowed, to detect a message that is too long.
        let room = max.saturating_add(1).saturating_sub(buffer.len());
        let part = recv_buffer.read_to(buffer, room);
        if part.is_some() {
            release_credit(core, recv_buffer);
        }
        match part {
            Some(_) if buffer.len() > max => {
                // The rest must not be read as another message.
                core.reset(DROPPED);
                return Err(StreamError::TooLong(max));
            }
            Some((_, true)) => return Ok(true),
            Some(_) => {}
            None => {
                // Most messages are passed on together with their memory, and a stream may have
                // few.
                recv_buffer.release_memory();
                if !take(core, recv_buffer, buffer.capacity()).await? {
                    return Ok(false);
                }
            }
        }
    }
}

/// Releases the credit of what was read, once it reaches [`RELEASE_THRESHOLD`].
#[inline]
fn release_credit(core: &Core, recv_buffer: &mut RecvBuffer) {
    if recv_buffer.freed() >= RELEASE_THRESHOLD {
        let mut state = core.handle.shared().lock();
        state.channel.release(core.id, recv_buffer.take_freed());
        state.request_transmit();
    }
}

/// Waits for received data and takes it; false once the peer has finished. `reader_memory` is the
/// memory of what was read before, in bytes.
async fn take(
    core: &Core,
    recv_buffer: &mut RecvBuffer,
    reader_memory: usize,
) -> Result<bool, StreamError> {
    poll_fn(|cx| poll_take(cx, core, recv_buffer, reader_memory)).await
}

/// See [`take`].
fn poll_take(
    cx: &mut Context<'_>,
    core: &Core,
    recv_buffer: &mut RecvBuffer,
    reader_memory: usize,
) -> Poll<Result<bool, StreamError>> {
    let coop = ready!(poll_proceed(cx));
    let mut state = core.handle.shared().lock();
    state.channel.release(core.id, recv_buffer.take_freed());
    let before = recv_buffer.unread();
    let taken = match state.channel.take(core.id, recv_buffer, reader_memory) {
        Ok(Taken::Blocked) => return wait_readable(core, &mut state, cx),
        Ok(Taken::Messages) => Ok(true),
        Ok(Taken::Finished) => Ok(false),
        Err(error) => Err(Core::error(&state, error)),
    };
    state.request_transmit();
    drop(state);
    if let Some(traffic) = core.traffic.get() {
        traffic.add_received(recv_buffer.unread() - before);
    }
    coop.made_progress();
    Poll::Ready(taken)
}

/// Registers the reader for more data, unless the connection has ended.
fn wait_readable<T>(
    core: &Core,
    state: &mut State,
    cx: &Context<'_>,
) -> Poll<Result<T, StreamError>> {
    if let Some(ended) = &state.ended {
        return Poll::Ready(Err(ended.clone().into()));
    }
    state.register_reader(core.id, cx.waker());
    state.request_transmit();
    Poll::Pending
}
