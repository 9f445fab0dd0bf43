//! A share in mediated mode: peers have a connection to the coordinator only, which passes chunks
//! from one to another.
//!
//! The source is read once: each chunk goes to `replicas` peers, its *providers*. Then every peer
//! requests what it lacks, at most [`MAX_REQUESTS`](crate::message::MAX_REQUESTS) chunks at a time,
//! in cyclic order from the position of the coordinator's *scan*. The coordinator serves requests
//! in the order of chunks (C-SCAN): a chunk that is in its cache is sent to all that wait; any
//! other is fetched once from a provider, verified, put into the cache, and sent. So peers that
//! read in the same order share each fetch.

mod cache;
mod coordinator;
mod counters;
mod distribution;
mod fetching;
mod member;
mod members;
mod owners;
mod peer;
mod pending;
mod placing;
mod requests;
mod scan;
mod serving;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use counters::Counters;
pub use member::Member;
pub use peer::Peer;

/// The most copies of a chunk that are kept track of.
pub const MAX_REPLICAS: usize = 16;

/// How a share is mediated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Each chunk is given to so many providers, from 1 to [`MAX_REPLICAS`].
    pub replicas: usize,
    /// So many chunks are in the cache, at least 1.
    pub cache: usize,
    /// Distribution starts when so many peers are there.
    pub wait: usize,
    /// Who provides which chunk.
    pub placement: Placement,
}

/// Who provides which chunk, with n peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Chunk c is given to the peers c mod n, c + 1 mod n and so on, as long as they keep up.
    #[default]
    Stripes,
    /// Each peer has a range of the content, and those of its predecessors. Peers that join later
    /// provide nothing at first.
    Blocks,
}

impl Settings {
    /// The settings of a coordinator that is started again, after `admitted` peers were admitted
    /// before. If so many were there as it waits for, the distribution had begun. Those that are
    /// complete since then do not come back, and others would wait for them.
    pub fn restarted(self, admitted: usize) -> Self {
        let wait = if admitted >= self.wait { 1 } else { self.wait };
        Self { wait, ..self }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { replicas: 2, cache: 128, wait: 1, placement: Placement::Stripes }
    }
}
