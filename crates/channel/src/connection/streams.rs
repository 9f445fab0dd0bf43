//! The calls on streams: each checks the connection and passes on to the multiplexer.

use super::Connection;
use crate::{Class, Error, Read, RecvBuffer, StreamError, StreamId, Taken};

impl Connection {
    /// Opens a stream and writes the frame that announces it.
    ///
    /// # Errors
    /// [`Error::NotConnected`] before [`crate::Event::Connected`], [`Error::TooManyStreams`] until
    /// one has ended on both sides, [`Error::Closed`]. The connection stays open.
    pub fn open(&mut self, class: Class) -> Result<StreamId, Error> {
        self.check_alive()?;
        if !self.can_send() && !self.closed {
            return Err(Error::NotConnected);
        }
        self.mux.open(&mut self.tls, class)
    }

    /// All streams that were not forgotten.
    #[cfg(test)]
    pub(crate) fn streams(&self) -> Vec<StreamId> {
        self.mux.streams()
    }

    /// The class of a stream; None if it is unknown.
    pub fn class(&self, id: StreamId) -> Option<Class> {
        self.mux.class(id)
    }

    /// Writes a part of a message, and ends it if `end` and all of `data` was accepted. Returns how
    /// many bytes were accepted; None if none could be, and then [`crate::Event::Writable`]
    /// follows.
    ///
    /// # Errors
    /// [`StreamError`] if the stream is reset, finished or unknown, or the connection closed.
    pub fn write(
        &mut self,
        id: StreamId,
        data: &[u8],
        end: bool,
    ) -> Result<Option<usize>, StreamError> {
        self.mux.write(&mut self.tls, id, data, end)
    }

    /// Ends this side's direction of a stream: no more messages follow. Never blocks; repeating it
    /// does nothing. A message that was begun and not ended cannot be finished: the stream is reset
    /// with code 0 then.
    ///
    /// # Errors
    /// [`StreamError`] if the stream is or gets reset or is unknown, or the connection closed.
    pub fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.mux.finish(&mut self.tls, id)
    }

    /// Aborts both directions of a stream and drops what had arrived. Unknown streams are ignored.
    pub fn reset(&mut self, id: StreamId, code: u64) {
        self.mux.reset(&mut self.tls, id, code);
    }

    /// The code with which a direction of a stream was aborted, by either side; None if neither
    /// was, or the stream is unknown.
    pub fn reset_code(&self, id: StreamId) -> Option<u64> {
        self.mux.reset_code(id)
    }

    /// Reads bytes of one message into `buf`, never beyond its end.
    ///
    /// # Errors
    /// [`StreamError`] if the stream is reset or unknown, or the connection was closed and all that
    /// had arrived was read.
    pub fn read(&mut self, id: StreamId, buf: &mut [u8]) -> Result<Read, StreamError> {
        self.mux.read(id, buf)
    }

    /// As [`Self::read`], but appends the bytes to `buf`, at most `max` of them.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_to(
        &mut self,
        id: StreamId,
        buf: &mut Vec<u8>,
        max: usize,
    ) -> Result<Read, StreamError> {
        self.mux.read_to(id, buf, max)
    }

    /// Moves all that has arrived on a stream to `recv_buffer`, if that is empty, so that it can be
    /// read without this connection. What was read from it must be passed to [`Self::release`].
    /// `reader_memory` is the memory, in bytes, of what the reader keeps of earlier reads, such as
    /// an incomplete message.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn take(
        &mut self,
        id: StreamId,
        recv_buffer: &mut RecvBuffer,
        reader_memory: usize,
    ) -> Result<Taken, StreamError> {
        self.mux.take(id, recv_buffer, reader_memory)
    }

    /// `freed` credit of what was taken from a stream was read (see [`RecvBuffer::take_freed`]),
    /// and is granted to the peer again. Unknown streams are ignored.
    pub fn release(&mut self, id: StreamId, freed: u64) {
        self.mux.release(id, freed);
    }

    /// Frees the state of a stream that its owner no longer uses. If either direction is still
    /// open, the stream is reset with code 0.
    pub fn forget(&mut self, id: StreamId) {
        self.mux.forget(&mut self.tls, id);
    }
}
