//! One stream of a connection: ordered messages, both ways.

mod receive;
mod send;
mod state;

use std::any::Any;
use std::sync::Arc;

use levada_channel::StreamId;
use levada_transport::Traffic;

pub use receive::ReceiveHalf;
pub use send::SendHalf;

use crate::StreamError;
use crate::shared::{Handle, State};
use state::Core;

/// Both directions of a stream. Dropping it before it is finished resets it.
pub struct Stream {
    send: SendHalf,
    receive: ReceiveHalf,
}

/// Resets a stream while other tasks use it.
pub struct StreamAborter(Arc<Core>);

impl StreamAborter {
    /// Resets both directions of the stream with `code`.
    pub fn reset(&self, code: u64) {
        self.0.reset(code);
    }
}

impl Stream {
    pub(crate) fn new(handle: Arc<Handle>, state: &mut State, id: StreamId) -> Self {
        let core = Arc::new(Core::new(handle, state, id));
        Self { send: SendHalf::new(core.clone()), receive: ReceiveHalf::new(core) }
    }

    /// Says that other connections of this process send as much over the same uplink as the
    /// connection of this stream. While that has an interactive stream, few bytes wait in the
    /// transport, and its rate, which changes as the others come and go, is not paced.
    pub fn share_uplink(&self) {
        self.send.share_uplink();
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

    /// See [`SendHalf::send_all`].
    pub fn send_all<'a, M: AsRef<[u8]>>(
        &'a mut self,
        messages: &'a [M],
    ) -> impl Future<Output = Result<(), StreamError>> + 'a {
        self.send.send_all(messages)
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
    pub fn read<'a>(
        &'a mut self,
        buffer: &'a mut [u8],
    ) -> impl Future<Output = Result<Option<(usize, bool)>, StreamError>> + 'a {
        self.receive.read(buffer)
    }

    /// Resets both directions of the stream with `code`.
    pub fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    /// See [`SendHalf::closed`].
    pub fn closed(&self) -> impl Future<Output = StreamError> + Send + Sync + Unpin + use<> {
        self.send.closed()
    }

    /// Stores `value` until both halves of the stream are dropped, and drops it then: a permit of a
    /// limit, for example. A stream stores one value; returns whether it took this one.
    pub fn keep(&self, value: impl Any + Send + Sync) -> bool {
        self.send.core.kept.set(Box::new(value)).is_ok()
    }

    /// Counts the stream and the bytes of its messages in `traffic`. Only the first call has
    /// an effect. Sent bytes are counted in steps of 16 KiB, and at the end; received ones when the
    /// reader takes them.
    pub fn count_in(&self, traffic: &Arc<Traffic>) {
        self.send.core.traffic.get_or_init(|| {
            let entry = traffic.enter();
            // They were taken together with what was read before.
            entry.add_received(self.receive.unread());
            entry
        });
    }

    /// A handle that can reset the stream while other tasks use it.
    pub fn aborter(&self) -> StreamAborter {
        StreamAborter(self.send.core.clone())
    }

    /// The two directions, for two tasks.
    pub fn split(self) -> (SendHalf, ReceiveHalf) {
        (self.send, self.receive)
    }
}
