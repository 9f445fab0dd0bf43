//! Changes of the catalogue as server-sent events (the HTML Standard, "Server-sent events").
//!
//! A stream has no queue. It reads the changes behind the last one that it has sent when the client
//! has taken that one. A client that reads too slowly is disconnected, and resumes with the
//! revision of the last change that it received.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::json;
use crate::index::Index;
use crate::model::Kind;
use crate::store::{Change, Store};

/// How many changes are sent at once.
const BATCH: u32 = 256;

/// Which changes a stream sends.
pub(super) struct Filter {
    pub kind: Option<Kind>,
    pub prefix: String,
}

impl Filter {
    fn matches(&self, change: &Change) -> bool {
        self.kind.is_none_or(|kind| kind == change.key.kind)
            && change.key.name.as_str().starts_with(&self.prefix)
    }
}

/// Where a stream reads changes, and when it ends.
pub(super) struct Source {
    pub index: Arc<Index>,
    pub store: Arc<dyn Store>,
    /// Set when the server stops.
    pub stopping: Arc<AtomicBool>,
    /// The time between two events, after which the position is sent as a keep-alive.
    pub keepalive: Duration,
}

/// A stream of changes.
pub struct EventStream {
    source: Source,
    /// Changes up to this revision were sent or filtered out.
    after: u64,
    filter: Filter,
    revision: watch::Receiver<u64>,
    started: bool,
    /// Counts against the maximum number of watches.
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("after", &self.after).finish_non_exhaustive()
    }
}

impl EventStream {
    /// A stream of the changes behind the revision `after`. `revision` follows the index.
    pub(super) fn new(
        source: Source,
        filter: Filter,
        after: u64,
        revision: watch::Receiver<u64>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { source, after, filter, revision, started: false, _permit: permit }
    }

    /// The next events, or a keep-alive. `None` if the stream has ended: the server stops, or the
    /// store failed.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        if !self.started {
            self.started = true;
            return Some(format!("retry: 2000\n{}", self.position()).into_bytes());
        }
        let until = Instant::now() + self.source.keepalive;
        loop {
            if self.source.stopping.load(Ordering::Relaxed) {
                return None;
            }
            // A change that arrives after this line ends the wait below.
            self.revision.mark_unchanged();
            let (text, more) = self.read().await?;
            if !text.is_empty() {
                return Some(text.into_bytes());
            }
            if more {
                continue;
            }
            tokio::select! {
                changed = self.revision.changed() => changed.ok()?,
                () = sleep_until(until) => return Some(self.position().into_bytes()),
            }
        }
    }

    /// Sends the client its position, so that after a filtered period it does not resume behind a
    /// revision that the store has compacted.
    fn position(&self) -> String {
        format!("id: {}\n\n", self.after)
    }

    /// The events that are available, and whether there may be more.
    async fn read(&mut self) -> Option<(String, bool)> {
        let recent = self.source.index.recent(self.after, BATCH as usize);
        let mut text = String::new();
        if let Some((changes, reached)) = recent {
            changes.iter().for_each(|change| self.write(change, &mut text));
            let more = reached > self.after;
            self.after = reached;
            return Some((text, more));
        }
        let store = Arc::clone(&self.source.store);
        let after = self.after;
        let read = tokio::task::spawn_blocking(move || store.changes(after, BATCH)).await;
        let changes = read.ok()?.ok()?;
        let shown = changes.iter().filter(|change| self.source.index.shows(&change.key));
        shown.for_each(|change| self.write(change, &mut text));
        self.after = changes.last().map_or(self.after, |last| last.revision);
        Some((text, !changes.is_empty()))
    }

    fn write(&self, change: &Change, text: &mut String) {
        if self.filter.matches(change) {
            // JSON without line feeds: one line of data.
            let event = change.event.as_str();
            let data = json::change(change);
            text.push_str(&format!("id: {}\nevent: {event}\ndata: {data}\n\n", change.revision));
        }
    }
}
