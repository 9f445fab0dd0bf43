//! The state that the handles of one stream share.

use std::any::Any;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};

use levada_channel::{Class, StreamError as ChannelError, StreamId};
use levada_transport::TrafficEntry;

use crate::shared::{Handle, State};
use crate::{SessionError, StreamError};

/// The code of a reset that a dropped handle sends.
pub(super) const DROPPED: u64 = 0;

/// A stream of a connection; it ends when the last handle is dropped.
pub(super) struct Core {
    pub(super) handle: Arc<Handle>,
    pub(super) id: StreamId,
    interactive: bool,
    /// See [`crate::Stream::keep`].
    pub(super) kept: OnceLock<Box<dyn Any + Send + Sync>>,
    /// See [`crate::Stream::count_in`].
    pub(super) traffic: OnceLock<TrafficEntry>,
}

impl Core {
    pub(super) fn new(handle: Arc<Handle>, state: &mut State, id: StreamId) -> Self {
        let interactive = state.channel.class(id) == Some(Class::Interactive);
        state.streams += 1;
        state.interactive += usize::from(interactive);
        let traffic = OnceLock::new();
        Self { handle, id, interactive, kept: OnceLock::new(), traffic }
    }

    pub(super) fn reset(&self, code: u64) {
        self.handle.shared().lock().reset(self.id, code);
    }

    /// See [`crate::SendHalf::closed`]. The future holds no `Core`, so that it does not delay the
    /// stream's end.
    pub(super) fn closed(&self) -> impl Future<Output = StreamError> + Send + Sync + Unpin + use<> {
        let shared = self.handle.shared().clone();
        let id = self.id;
        poll_fn(move |cx| shared.lock().poll_stream_closed(id, cx.waker()))
    }

    pub(super) fn lost(&self) -> Option<StreamError> {
        self.handle.shared().lock().close_reason(self.id)
    }

    /// The channel's error as this crate's, with the cause if the connection has ended.
    pub(super) fn error(state: &State, error: ChannelError) -> StreamError {
        match (error, &state.ended) {
            (ChannelError::Reset(code), _) => StreamError::Reset(code),
            (_, Some(ended)) => StreamError::Connection(ended.clone()),
            (ChannelError::Closed, None) => StreamError::Connection(SessionError::Closed),
            _ => StreamError::Finished,
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let mut state = self.handle.shared().lock();
        state.streams -= 1;
        state.interactive -= usize::from(self.interactive);
        state.forget(self.id);
    }
}
