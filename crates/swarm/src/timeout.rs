//! The time after which a chunk is late, in direct and in mediated mode.

use std::time::Duration;

/// The lower bound.
const MIN_TIMEOUT: Duration = Duration::from_secs(3);
/// The upper bound.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// The time after which a chunk is expected from another party, if chunks take `average`.
pub(crate) fn late_after(average: Duration) -> Duration {
    (average * 8).clamp(MIN_TIMEOUT, MAX_TIMEOUT)
}
