//! Records that wait for an audit at the receiving endpoint.

use std::collections::VecDeque;

use super::received::Received;
use crate::ContextError;
use crate::audit::AUDIT_EVERY;
use crate::counter::MAX_INSERTED;
use crate::record::MAX_PLAIN;

/// Memory of a record besides its data, about.
pub(crate) const PIECE_MEMORY: usize = 64;
/// A limit on the memory of records of the endpoint, in bytes.
const MAX_OWN: usize = AUDIT_EVERY as usize * (MAX_PLAIN + PIECE_MEMORY);
/// A limit on the memory of records that one middlebox inserted, in bytes.
const MAX_INSERTED_MEMORY: usize = MAX_INSERTED as usize * (MAX_PLAIN + PIECE_MEMORY);

/// Records that were received and are not audited.
pub(super) struct Waiting {
    all: VecDeque<Received>,
    /// Their memory, about.
    bytes: usize,
    most: usize,
}

impl Waiting {
    /// Nothing waits yet; `writers` middleboxes may insert.
    pub(super) fn new(writers: usize) -> Self {
        let most = MAX_OWN + writers * MAX_INSERTED_MEMORY;
        Self { all: VecDeque::new(), bytes: 0, most }
    }

    /// Memory in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record with `length` bytes of plaintext.
    pub(super) fn push(&mut self, received: Received, length: usize) -> Result<(), ContextError> {
        self.bytes += length + PIECE_MEMORY;
        if self.bytes > self.most {
            return Err(ContextError::Flood("records without an audit"));
        }
        self.all.push_back(received);
        Ok(())
    }

    /// Tells whether there is data of the endpoint, or of a middlebox behind hop `author`.
    pub(super) fn has_foreign(&self, author: u8) -> bool {
        let foreign = |received: &Received| match received {
            Received::Data { origin, .. } => *origin == 0 || *origin > author,
            _ => false,
        };
        self.all.iter().any(foreign)
    }

    /// Hands up everything.
    pub(super) fn hand_up(&mut self, out: &mut VecDeque<Received>) {
        self.bytes = 0;
        out.append(&mut self.all);
    }

    /// Hands up the data, and keeps what stands in context 0.
    pub(super) fn hand_up_data(&mut self, out: &mut VecDeque<Received>) {
        let (data, control) = self.take();
        out.extend(data);
        self.all = control;
        self.bytes = 0;
    }

    /// Hands up what stands in context 0, and keeps the data.
    pub(super) fn hand_up_control(&mut self, out: &mut VecDeque<Received>) {
        let (data, control) = self.take();
        out.extend(control);
        self.all = data;
    }

    /// Hands up what stands in context 0, and discards the data.
    pub(super) fn discard_data(&mut self, out: &mut VecDeque<Received>) {
        self.hand_up_control(out);
        self.all.clear();
        self.bytes = 0;
    }

    /// Takes the data, and what stands in context 0.
    fn take(&mut self) -> (VecDeque<Received>, VecDeque<Received>) {
        let all = std::mem::take(&mut self.all).into_iter();
        all.partition(|one| matches!(one, Received::Data { .. }))
    }
}
