//! One stream of a connection: ordered messages, both ways.

use std::any::Any;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use levada_channel::{Class, Inbox, StreamError as ChannelError, StreamId, Taken};

use tokio::task::coop::poll_proceed;

use crate::connection::Handle;
use crate::shared::State;
use crate::{SessionError, StreamError};

/// Both directions of a stream. Dropping it before it is finished resets it.
pub struct Stream {
    send: SendHalf,
    receive: ReceiveHalf,
}

/// The sending direction. Dropping it before [`SendHalf::finish`] resets the stream.
pub struct SendHalf {
    core: Arc<Core>,
    finished: bool,
    /// A part of a message was taken and its sending was given up: nothing may follow it.
    torn: bool,
    /// Bytes written since other tasks last had their turn.
    since_turn: usize,
}

/// The receiving direction.
pub struct ReceiveHalf {
    core: Arc<Core>,
    /// What has come, taken from the channel in one go and read without its lock.
    inbox: Inbox,
    /// What came of a message whose receiving was given up.
    partial: Vec<u8>,
}

struct Core {
    handle: Arc<Handle>,
    id: StreamId,
    interactive: bool,
    /// See [`Stream::keep`].
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The code of a reset that a dropped handle sends.
const DROPPED: u64 = 0;
/// After so many bytes a task that is never refused lets others have their turn.
const TURN: usize = 64 << 10;
/// What a message counts beside its bytes.
const MESSAGE_COST: usize = 64;
/// The peer is told of credit when this much was read: seldom, and long before it lacks any.
const TELL: u64 = 32 << 10;

impl Drop for Core {
    fn drop(&mut self) {
        let mut state = self.handle.shared().lock();
        state.streams -= 1;
        state.interactive -= usize::from(self.interactive);
        state.forget(self.id);
    }
}

impl Core {
    fn reset(&self, code: u64) {
        self.handle.shared().lock().reset(self.id, code);
    }

    fn lost(&self) -> Option<StreamError> {
        let state = self.handle.shared().lock();
        let ended = || state.ended.clone().map(StreamError::from);
        state.channel.reset_code(self.id).map(StreamError::Reset).or_else(ended)
    }

    /// Why the channel refused, with the reason of the connection's end if that is it.
    fn error(state: &State, error: ChannelError) -> StreamError {
        match (error, &state.ended) {
            (ChannelError::Reset(code), _) => StreamError::Reset(code),
            (_, Some(ended)) => StreamError::Connection(ended.clone()),
            (ChannelError::Closed, None) => StreamError::Connection(SessionError::Closed),
            _ => StreamError::Finished,
        }
    }
}

/// Ends a stream from outside, whoever holds it.
pub struct StreamAborter(Arc<Core>);

impl StreamAborter {
    /// Gives the stream up in both directions; the peer sees `code`.
    pub fn reset(&self, code: u64) {
        self.0.reset(code);
    }
}

impl Stream {
    pub(crate) fn new(handle: Arc<Handle>, state: &mut State, id: StreamId) -> Self {
        let interactive = state.channel.class(id) == Some(Class::Interactive);
        state.streams += 1;
        state.interactive += usize::from(interactive);
        let core = Arc::new(Core { handle, id, interactive, kept: OnceLock::new() });
        Self {
            send: SendHalf { core: core.clone(), finished: false, torn: false, since_turn: 0 },
            receive: ReceiveHalf { core, inbox: Inbox::default(), partial: Vec::new() },
        }
    }

    /// See [`SendHalf::send`].
    pub fn send<'a>(
        &'a mut self,
        message: &'a [u8],
    ) -> impl Future<Output = Result<(), StreamError>> + 'a {
        self.send.send(message)
    }

    /// See [`SendHalf::write`].
    pub fn write<'a>(
        &'a mut self,
        part: &'a [u8],
        end: bool,
    ) -> impl Future<Output = Result<(), StreamError>> + 'a {
        self.send.write(part, end)
    }

    /// See [`SendHalf::finish`].
    pub async fn finish(&mut self) -> Result<(), StreamError> {
        self.send.finish().await
    }

    /// See [`ReceiveHalf::receive`].
    pub async fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, StreamError> {
        self.receive.receive(max).await
    }

    /// See [`ReceiveHalf::receive_into`].
    pub async fn receive_into(
        &mut self,
        buffer: &mut Vec<u8>,
        max: usize,
    ) -> Result<bool, StreamError> {
        self.receive.receive_into(buffer, max).await
    }

    /// See [`ReceiveHalf::read`].
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<(usize, bool)>, StreamError> {
        self.receive.read(buffer).await
    }

    /// Gives the stream up in both directions; the peer sees `code`.
    pub fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    /// Keeps `value` until both directions of the stream are given up, and drops it then: a place in a limit,
    /// for example. A stream keeps one value; whether it took this one.
    pub fn keep(&self, value: impl Any + Send + Sync) -> bool {
        self.send.core.kept.set(Box::new(value)).is_ok()
    }

    /// A handle that can end the stream while others use it.
    pub fn aborter(&self) -> StreamAborter {
        StreamAborter(self.send.core.clone())
    }

    /// The two directions, for two tasks.
    pub fn split(self) -> (SendHalf, ReceiveHalf) {
        (self.send, self.receive)
    }
}

impl SendHalf {
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

    /// Sends a part of a message, and its end if `end`. A message may have any length. If the future is
    /// dropped when a piece of the part has been taken already, the stream cannot be used further.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    // No layers of `async`: what a small message costs is mostly what stands around its bytes.
    pub fn write<'a>(
        &'a mut self,
        part: &'a [u8],
        end: bool,
    ) -> impl Future<Output = Result<(), StreamError>> + 'a {
        let mut written = 0;
        poll_fn(move |cx| self.poll_write(cx, part, end, &mut written))
    }

    /// `part[..written]` was taken by earlier calls.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        part: &[u8],
        end: bool,
        written: &mut usize,
    ) -> Poll<Result<(), StreamError>> {
        if self.torn && *written == 0 {
            self.reset(DROPPED);
            return Poll::Ready(Err(StreamError::Finished));
        }
        if self.since_turn >= TURN {
            ready!(poll_proceed(cx)).made_progress();
            self.since_turn = 0;
        }
        let core = &*self.core;
        let mut state = core.handle.shared().lock();
        loop {
            match state.channel.write(core.id, &part[*written..], end) {
                Ok(Some(length)) if *written + length == part.len() => {
                    state.kick();
                    self.torn = false;
                    self.since_turn += MESSAGE_COST + part.len();
                    return Poll::Ready(Ok(()));
                }
                Ok(Some(length)) => {
                    *written += length;
                    self.torn = true;
                }
                Ok(None) => {
                    if let Some(ended) = &state.ended {
                        return Poll::Ready(Err(ended.clone().into()));
                    }
                    state.writer_sleeps(core.id, cx.waker());
                    state.kick();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(Core::error(&state, error))),
            }
        }
    }

    /// Ends this direction: the peer sees the end after the last message.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    pub async fn finish(&mut self) -> Result<(), StreamError> {
        if self.finished {
            return Ok(());
        }
        let mut state = self.core.handle.shared().lock();
        match state.channel.finish(self.core.id) {
            Ok(()) => {
                self.finished = true;
                state.kick();
                Ok(())
            }
            Err(error) => {
                state.kick();
                Err(Core::error(&state, error))
            }
        }
    }

    /// Gives the stream up in both directions; the peer sees `code`.
    pub fn reset(&mut self, code: u64) {
        self.finished = true;
        self.core.reset(code);
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        if !self.finished {
            self.reset(DROPPED);
        }
    }
}

impl ReceiveHalf {
    /// The next message; `None` once the peer has finished.
    ///
    /// # Errors
    /// [`StreamError::TooLong`] if it has more than `max` bytes; otherwise what ended the stream.
    pub async fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, StreamError> {
        if !receive_into(&self.core, &mut self.inbox, &mut self.partial, max).await? {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.partial)))
    }

    /// Appends the next message to `buffer`; false once the peer has finished. If the future is
    /// dropped, `buffer` keeps the part that came, and the next call goes on behind it.
    ///
    /// # Errors
    /// [`StreamError::TooLong`] if `buffer` would hold more than `max` bytes; otherwise what ended the stream.
    pub async fn receive_into(
        &mut self,
        buffer: &mut Vec<u8>,
        max: usize,
    ) -> Result<bool, StreamError> {
        receive_into(&self.core, &mut self.inbox, buffer, max).await
    }

    /// Reads a part of a message into `buffer` (not empty): its length, and whether the message ends with it.
    /// `None` once the peer has finished.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<(usize, bool)>, StreamError> {
        loop {
            if let Some(part) = self.inbox.read(buffer) {
                tell(&self.core, &mut self.inbox);
                return Ok(Some(part));
            }
            if !fill(&self.core, &mut self.inbox, 0).await? {
                return Ok(None);
            }
        }
    }
}

impl ReceiveHalf {
    /// What has come of the next message, as far as it can be read at once, and whether the message ends with it.
    /// Nothing is copied, and nothing counts as read before [`Self::consume`]. `None` once the peer has finished.
    ///
    /// # Errors
    /// [`StreamError`] if the stream or the connection ended.
    pub async fn peek(&mut self) -> Result<Option<(&[u8], bool)>, StreamError> {
        while self.inbox.is_empty() {
            if !fill(&self.core, &mut self.inbox, 0).await? {
                return Ok(None);
            }
        }
        Ok(self.inbox.peek())
    }

    /// Counts the first `length` bytes of what [`Self::peek`] gave as read.
    pub fn consume(&mut self, length: usize) {
        self.inbox.consume(length);
        tell(&self.core, &mut self.inbox);
    }

    /// Why the stream is of no use any more, if that is so: a look for those who wait for something else than
    /// the stream, and would not notice. A direction that has ended in good order is no reason.
    pub fn lost(&self) -> Option<StreamError> {
        self.core.lost()
    }
}

async fn receive_into(
    core: &Core,
    inbox: &mut Inbox,
    buffer: &mut Vec<u8>,
    max: usize,
) -> Result<bool, StreamError> {
    loop {
        // One byte more than allowed, to see that a message is too long.
        let room = max.saturating_add(1).saturating_sub(buffer.len());
        let part = inbox.read_to(buffer, room);
        if part.is_some() {
            tell(core, inbox);
        }
        match part {
            Some(_) if buffer.len() > max => {
                // Its rest must not be taken for another message.
                core.reset(DROPPED);
                return Err(StreamError::TooLong(max));
            }
            Some((_, true)) => return Ok(true),
            Some(_) => {}
            None if !fill(core, inbox, buffer.capacity()).await? => return Ok(false),
            None => {}
        }
    }
}

/// Tells the channel what was read, if that is much.
fn tell(core: &Core, inbox: &mut Inbox) {
    if inbox.freed() >= TELL {
        let mut state = core.handle.shared().lock();
        state.channel.release(core.id, inbox.take_freed());
        state.kick();
    }
}

/// Takes what has come, once there is something; false once the peer has finished. `beside` is the memory of what was
/// read before, in bytes.
async fn fill(core: &Core, inbox: &mut Inbox, beside: usize) -> Result<bool, StreamError> {
    poll_fn(|cx| {
        let coop = ready!(poll_proceed(cx));
        let mut state = core.handle.shared().lock();
        state.channel.release(core.id, inbox.take_freed());
        let taken = match state.channel.take(core.id, inbox, beside) {
            Ok(Taken::Blocked) => return sleep(core, &mut state, cx),
            Ok(Taken::Messages) => Ok(true),
            Ok(Taken::Finished) => Ok(false),
            Err(error) => Err(Core::error(&state, error)),
        };
        state.kick();
        coop.made_progress();
        Poll::Ready(taken)
    })
    .await
}

/// Nothing is here to be read: waits for more, unless the connection is over and nothing can come.
fn sleep<T>(core: &Core, state: &mut State, cx: &Context<'_>) -> Poll<Result<T, StreamError>> {
    if let Some(ended) = &state.ended {
        return Poll::Ready(Err(ended.clone().into()));
    }
    state.reader_sleeps(core.id, cx.waker());
    state.kick();
    Poll::Pending
}
