//! How far a replica is behind the log.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::store::{Lag, StoreError};

/// How far the replica is.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// The last record that is applied.
    pub applied: u64,
    /// The last record that the log is known to have.
    pub known: u64,
    /// Why the log is not followed at the moment, and since when.
    pub fault: Option<(String, Instant)>,
    /// The format of a record that this version cannot read.
    pub newer: Option<u32>,
    /// Records that could not be applied.
    pub rejected: u64,
}

impl Position {
    /// Notes why the log is not followed.
    pub fn fail(&mut self, error: &StoreError) {
        if let StoreError::Newer(format) = error {
            self.newer = Some(*format);
        }
        let since = self.fault.take().map_or_else(Instant::now, |(_, since)| since);
        let text = match error {
            StoreError::Unavailable(why) => why.clone(),
            other => other.to_string(),
        };
        self.fault = Some((text, since));
    }

    /// How far the replica is behind.
    pub fn lag(&self) -> Lag {
        let (fault, away) = match &self.fault {
            Some((fault, since)) => (Some(fault.clone()), since.elapsed()),
            None => (None, Duration::ZERO),
        };
        Lag { changes: self.missing(), fault, away, rejected: self.rejected }
    }

    /// How many records are known and not applied yet.
    pub fn missing(&self) -> u64 {
        self.known.saturating_sub(self.applied)
    }
}

/// Waits until a record is applied; false if that takes too long.
pub async fn reached(
    position: &mut watch::Receiver<Position>,
    number: u64,
    limit: Duration,
) -> bool {
    let reached = position.wait_for(|position| position.applied >= number);
    matches!(timeout(limit, reached).await, Ok(Ok(_)))
}
