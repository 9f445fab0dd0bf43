//! `/v1/watch`: changes as they happen, as server-sent events.

use std::sync::Arc;

use crate::http::body::Body;
use crate::http::decimal;
use crate::http::events::{EventStream, Filter};
use crate::http::problem::{busy, of_store, problem};
use crate::http::query::Query;
use crate::http::reply::{HandlerResult, Job, Reply};
use crate::http::request::{Header, Method, Request};
use crate::http::response::{CachePolicy, Response};
use crate::http::site::Site;

/// `/v1/watch`.
pub(super) fn watch(site: &Arc<Site>, request: &Request<'_>) -> HandlerResult {
    let query = Query::parse(request.query, &["after", "kind", "prefix"])?;
    let filter =
        Filter { kind: query.kind()?, prefix: query.text("prefix").unwrap_or_default().to_owned() };
    // A browser that reconnects repeats the first URL; its position is in the header.
    let after = match last_event_id(request)? {
        Some(id) => Some(id),
        None => query.number("after")?,
    };
    let Ok(permit) = Arc::clone(&site.limits.watches).try_acquire_owned() else {
        return Err(busy(false));
    };
    let site = Arc::clone(site);
    let is_head = request.method == Method::Head;
    Ok(Reply::Job(Job::new(move || {
        let revision = site.index.revision();
        let after = after.unwrap_or_else(|| *revision.borrow());
        if let Err(error) = site.store.changes(after, 1) {
            return of_store(&error);
        }
        let response = Response::new(200)
            .field("Content-Type", "text/event-stream")
            // Tells a proxy not to buffer the stream.
            .field("X-Accel-Buffering", "no")
            .any_origin()
            .cache_policy(CachePolicy::NoStore);
        if is_head {
            return response;
        }
        let stream = EventStream::new(site.event_source(), filter, after, revision, permit);
        response.body(Body::Events(Box::new(stream)))
    })))
}

fn last_event_id(request: &Request<'_>) -> Result<Option<u64>, Response> {
    let invalid = || problem(400, "Last-Event-ID is not the number of a change");
    match request.headers.last_event_id {
        Header::Absent | Header::Value(b"") => Ok(None),
        Header::Repeated => Err(invalid()),
        Header::Value(value) => decimal::exact(value).map(Some).ok_or_else(invalid),
    }
}
