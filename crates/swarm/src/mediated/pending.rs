//! Chunks that are being obtained.

use std::time::Duration;

use crate::PeerId;

/// A chunk on its way into the cache.
pub(super) struct Pending {
    /// The provider; the coordinator for the source.
    pub(super) from: PeerId,
    pub(super) since: Duration,
    /// When it is fetched elsewhere. The source needs no limit.
    pub(super) until: Option<Duration>,
    /// Providers that have failed.
    pub(super) tried: Vec<PeerId>,
}
