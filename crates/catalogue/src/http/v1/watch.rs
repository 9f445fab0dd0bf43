//! `/v1/watch`: changes as they happen, as server-sent events (the HTML Standard, "Server-sent events").
//!
//! A watch has no queue that could grow: it asks for what is behind the last change that it has sent, when the client has
//! taken that. Whoever is too slow is cut off and comes again with the number of the last change that he has.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::Site;
use super::json;
use super::problem::{busy, of_store, problem};
use super::query::Query;
use super::request::{Method, Once, Request};
use super::response::{Body, Keep, Response};
use super::route::{Job, Reply};
use super::v1::Answered;
use crate::model::Kind;
use crate::store::Change;

/// How many changes are sent at once.
const BATCH: u32 = 256;

/// Which changes somebody wants.
struct Filter {
    kind: Option<Kind>,
    prefix: String,
}

impl Filter {
    fn wants(&self, change: &Change) -> bool {
        self.kind.is_none_or(|kind| kind == change.key.kind)
            && change.key.name.as_str().starts_with(&self.prefix)
    }
}

/// `/v1/watch`.
pub(super) fn answer(site: &Arc<Site>, request: &Request<'_>) -> Answered {
    let query = Query::parse(request.query, &["after", "kind", "prefix"])?;
    let filter =
        Filter { kind: query.kind()?, prefix: query.text("prefix").unwrap_or_default().to_owned() };
    // Whoever comes again asks with what he had first, and says in the header what he has now.
    let after = match last_event_id(request)? {
        Some(id) => Some(id),
        None => query.number("after")?,
    };
    let Ok(place) = Arc::clone(&site.watches).try_acquire_owned() else { return Err(busy(false)) };
    let (site, only_head) = (Arc::clone(site), request.method == Method::Head);
    Ok(Reply::Later(Job::new(move || {
        let revision = site.index.revision();
        let after = after.unwrap_or_else(|| *revision.borrow());
        if let Err(error) = site.store.changes(after, 1) {
            return of_store(&error);
        }
        let response = Response::new(200)
            .field("Content-Type", "text/event-stream")
            // A proxy that gathers what it passes on would hold changes back.
            .field("X-Accel-Buffering", "no")
            .shared()
            .keep(Keep::Never);
        if only_head {
            return response;
        }
        let watch = Watch { site, after, filter, revision, begun: false, _place: place };
        response.body(Body::Events(Box::new(watch)))
    })))
}

fn last_event_id(request: &Request<'_>) -> Result<Option<u64>, Response> {
    let wrong = || problem(400, "Last-Event-ID is not the number of a change");
    match request.last_event_id {
        Once::Absent | Once::Value(b"") => Ok(None),
        Once::Repeated => Err(wrong()),
        Once::Value(value) => {
            let text = str::from_utf8(value).map_err(|_| wrong())?;
            if !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong());
            }
            text.parse().map(Some).map_err(|_| wrong())
        }
    }
}

/// A stream of changes.
pub struct Watch {
    site: Arc<Site>,
    /// What came up to here was sent, or is not wanted.
    after: u64,
    filter: Filter,
    revision: watch::Receiver<u64>,
    begun: bool,
    _place: OwnedSemaphorePermit,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("after", &self.after).finish_non_exhaustive()
    }
}

impl Watch {
    /// The next events, or a sign of life. None if it cannot go on.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        if !self.begun {
            self.begun = true;
            return Some(format!("retry: 2000\n{}", self.position()).into_bytes());
        }
        let until = Instant::now() + self.site.config.times.comment;
        loop {
            if self.site.is_stopping() {
                return None;
            }
            // What comes from here on is noticed below.
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

    /// Says where the client is, although nothing was for it; so it does not come again for what is forgotten.
    fn position(&self) -> String {
        format!("id: {}\n\n", self.after)
    }

    /// The events that are there, and whether there may be more.
    async fn read(&mut self) -> Option<(String, bool)> {
        let recent = self.site.index.recent(self.after, BATCH as usize);
        let mut text = String::new();
        if let Some((changes, reached)) = recent {
            changes.iter().for_each(|change| self.write(change, &mut text));
            let more = reached > self.after;
            self.after = reached;
            return Some((text, more));
        }
        let (site, after) = (Arc::clone(&self.site), self.after);
        let asked = tokio::task::spawn_blocking(move || site.store.changes(after, BATCH)).await;
        let changes = asked.ok()?.ok()?;
        let shown = changes.iter().filter(|change| self.site.index.shows(&change.key));
        shown.for_each(|change| self.write(change, &mut text));
        self.after = changes.last().map_or(self.after, |last| last.revision);
        Some((text, !changes.is_empty()))
    }

    fn write(&self, change: &Change, text: &mut String) {
        if self.filter.wants(change) {
            // JSON without line feeds: one line of data.
            let (event, data) = (change.event.as_str(), json::change(change));
            text.push_str(&format!("id: {}\nevent: {event}\ndata: {data}\n\n", change.revision));
        }
    }
}
