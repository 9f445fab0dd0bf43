//! Copies of chunks at the neighbours of a party.

/// The number of neighbours that have a chunk, or are to get it, for each chunk.
pub(super) struct Copies {
    /// The number of neighbours that have it.
    present: Vec<u16>,
    /// The number of neighbours that it was offered to, or is on its way to.
    sending: Vec<u16>,
}

impl Copies {
    /// For a content of `chunks`, of which no neighbour has any.
    pub(super) fn new(chunks: u32) -> Self {
        Self { present: vec![0; chunks as usize], sending: vec![0; chunks as usize] }
    }

    /// The number of neighbours that have a chunk; 0 if the content has no such chunk.
    pub(super) fn present(&self, index: u32) -> u16 {
        self.present.get(index as usize).copied().unwrap_or_default()
    }

    /// The number of neighbours that have a chunk, or are to get it.
    pub(super) fn all(&self, index: u32) -> u16 {
        self.present[index as usize] + self.sending[index as usize]
    }

    /// One more neighbour has the chunk.
    pub(super) fn add(&mut self, index: u32) {
        self.present[index as usize] += 1;
    }

    /// One neighbour less has it.
    pub(super) fn remove(&mut self, index: u32) {
        self.present[index as usize] -= 1;
    }

    /// It is offered to a neighbour, or accepted after all.
    pub(super) fn begin_sending(&mut self, index: u32) {
        self.sending[index as usize] += 1;
    }

    /// It is no longer offered to a neighbour, or on its way.
    pub(super) fn end_sending(&mut self, index: u32) {
        self.sending[index as usize] -= 1;
    }
}
