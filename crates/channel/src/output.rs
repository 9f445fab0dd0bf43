//! The output buffer: sealed records for the transport, of which the last may still be open.
//!
//! Frames are written directly behind the header of the open record, which is sealed in place when
//! it is full or when the buffer is taken. So no byte is copied between writing and sealing.

use levada_core::Framing;

use crate::Error;
use crate::record::{DATA, HEADER, MAX_CONTENT, OVERHEAD, RecordKey, TAG};

/// The bytes of a record of a long message without its part of the message: header, head of the
/// frame, type and tag, rounded up.
const RECORD_ROOM: usize = 64;

/// The buffer of outgoing bytes.
#[derive(Default)]
pub(crate) struct Output {
    buffer: Vec<u8>,
    /// Where the open record begins.
    open: Option<usize>,
    /// The length of the buffer at which the open record is full.
    full: usize,
    framing: Framing,
    key: Option<RecordKey>,
    fault: Option<Error>,
}

impl Output {
    /// The buffer, for the handshake's records, which rustls makes.
    pub(crate) fn raw(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.open.is_none(), "the handshake comes before all records");
        &mut self.buffer
    }

    /// Seals under `key` from now on. The open record, if any, must have been sealed.
    pub(crate) fn set_key(&mut self, key: RecordKey) {
        self.key = Some(key);
    }

    /// How messages become records, from the next record on.
    pub(crate) fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// How many bytes are pending.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The memory of the buffer, in bytes: allocated, not only used.
    pub(crate) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// How many records were sealed under the current key.
    pub(crate) fn sequence(&self) -> u64 {
        self.key.as_ref().map_or(0, RecordKey::sequence)
    }

    /// The most bytes that one record holds.
    pub(crate) fn capacity(&self) -> usize {
        match self.framing {
            Framing::Auto => MAX_CONTENT,
            Framing::Block(length) => usize::from(length) - OVERHEAD,
        }
    }

    /// How many bytes still fit in the open record; 0 if none is open.
    pub(crate) fn room(&self) -> usize {
        if self.open.is_some() { self.full - self.buffer.len() } else { 0 }
    }

    /// Allocates, if the buffer is new, what `length` bytes of messages and their records need:
    /// growing to it step by step would end with twice that.
    pub(crate) fn reserve(&mut self, length: usize) {
        if self.buffer.capacity() == 0 && length >= MAX_CONTENT {
            let records = length.div_ceil(MAX_CONTENT);
            self.buffer.reserve_exact(length + records * RECORD_ROOM);
        }
    }

    /// Opens a record. None may be open.
    pub(crate) fn begin(&mut self) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[DATA, 3, 3, 0, 0]);
        self.open = Some(start);
        self.full = start + HEADER + self.capacity();
    }

    /// Where the content of the open record is written; never more than [`Self::room`].
    pub(crate) fn content(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Seals the open record, if any, as of type `kind`.
    pub(crate) fn seal(&mut self, kind: u8) {
        let Some(start) = self.open.take() else { return };
        if let Err(fault) = self.try_seal(start, kind) {
            self.buffer.truncate(start);
            self.set_fault(fault);
        }
    }

    /// Stores the first failure of a call that returns nothing; [`Self::fault`] reports it. The
    /// connection is unusable then.
    pub(crate) fn set_fault(&mut self, fault: Error) {
        self.fault.get_or_insert(fault);
    }

    /// The failure that [`Self::set_fault`] stored.
    pub(crate) fn fault(&self) -> Result<(), Error> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// Takes all bytes; `out` becomes the next buffer.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        debug_assert!(self.open.is_none(), "an open record would be sent in plaintext");
        /// If less than this is taken, a buffer larger than `LARGE_BUFFER` bytes is freed.
        const SMALL_OUTPUT: usize = 4 << 10;
        const LARGE_BUFFER: usize = 64 << 10;
        out.clear();
        if self.buffer.len() < SMALL_OUTPUT && out.capacity() > LARGE_BUFFER {
            *out = Vec::new();
        }
        std::mem::swap(&mut self.buffer, out);
    }

    fn try_seal(&mut self, start: usize, kind: u8) -> Result<(), Error> {
        self.buffer.push(kind);
        if let Framing::Block(length) = self.framing {
            self.buffer.resize(start + usize::from(length) - TAG, 0);
        }
        let sealed = self.buffer.len() - start - HEADER + TAG;
        let length = u16::try_from(sealed).map_err(|_| Error::Internal("a record is too long"))?;
        self.buffer[start + 3..start + HEADER].copy_from_slice(&length.to_be_bytes());
        let record = &mut self.buffer[start..];
        let (header, body) =
            record.split_first_chunk_mut().ok_or(Error::Internal("a record without header"))?;
        let key = self.key.as_mut().ok_or(Error::Internal("no key to seal with"))?;
        let tag = key.seal(*header, body)?;
        self.buffer.extend_from_slice(tag.as_ref());
        Ok(())
    }
}
