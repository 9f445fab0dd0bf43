//! Lists and search, page by page.

use std::sync::Arc;

use super::cursor;
use crate::http::json::{self, HitJson, ItemJson, Page};
use crate::http::problem::{of_store, problem};
use crate::http::query::Query;
use crate::http::reply::{HandlerResult, Job, Reply};
use crate::http::request::Request;
use crate::http::response::{CachePolicy, Response};
use crate::http::site::Site;
use crate::model::{Key, Kind};
use crate::store::{Hit, MAX_PAGE, SearchCursor, StoreError};

/// The maximum length of a query, in characters.
pub(in crate::http) const MAX_QUERY_CHARS: usize = 255;

/// `/v1/objects`.
pub(super) fn objects(site: &Arc<Site>, request: &Request<'_>) -> HandlerResult {
    let query = Query::parse(request.query, &["kind", "prefix", "cursor", "limit"])?;
    let kind = query.kind()?;
    let limit = query.limit()?;
    let prefix = query.text("prefix").unwrap_or_default().to_owned();
    let after = query.text("cursor").map(cursor::key).transpose()?;
    let site = Arc::clone(site);
    Ok(Reply::Job(Job::new(move || match list(&site, kind, &prefix, after.as_ref(), limit) {
        Ok((keys, next)) => {
            let item = |key: &Key| ItemJson::new(key, site.index.object(key).as_deref());
            let items = keys.iter().map(item).collect();
            page(&Page { items, next: next.map(|key| cursor::of_key(&key)) })
        }
        Err(error) => of_store(&error),
    })))
}

/// A page of the objects that are shown, and the key behind which the next page begins.
pub(in crate::http) fn list(
    site: &Site,
    kind: Option<Kind>,
    prefix: &str,
    after: Option<&Key>,
    limit: u32,
) -> Result<(Vec<Key>, Option<Key>), StoreError> {
    let more = |behind: Option<&Key>, size| site.store.list(kind, prefix, behind.or(after), size);
    let (keys, full) = read_shown(limit, more, |key| site.index.shows(key))?;
    let next = keys.last().filter(|_| full).cloned();
    Ok((keys, next))
}

/// Up to `limit` items that are shown, and whether the page is full. It continues behind hidden
/// items, because a short page or a cursor to one of them would reveal that they exist.
fn read_shown<T: Clone>(
    limit: u32,
    mut more: impl FnMut(Option<&T>, u32) -> Result<Vec<T>, StoreError>,
    is_shown: impl Fn(&T) -> bool,
) -> Result<(Vec<T>, bool), StoreError> {
    let mut shown = Vec::new();
    let mut behind = None;
    let mut size = limit;
    loop {
        let page = more(behind.as_ref(), size)?;
        let is_last = page.len() < size as usize;
        behind = page.last().cloned();
        shown.extend(page.into_iter().filter(&is_shown));
        shown.truncate(limit as usize);
        let full = shown.len() == limit as usize;
        if full || is_last {
            return Ok((shown, full));
        }
        size = MAX_PAGE;
    }
}

/// `/v1/search`.
pub(super) fn search(site: &Arc<Site>, request: &Request<'_>) -> HandlerResult {
    let query = Query::parse(request.query, &["q", "kind", "cursor", "limit"])?;
    let kind = query.kind()?;
    let limit = query.limit()?;
    let words = query.required("q")?;
    if words.chars().count() > MAX_QUERY_CHARS {
        return Err(problem(400, format!("`q` has at most {MAX_QUERY_CHARS} characters")));
    }
    let words = words.to_owned();
    let after = query.text("cursor").map(cursor::hit).transpose()?;
    let site = Arc::clone(site);
    Ok(Reply::Job(Job::new(move || match find(&site, &words, kind, after.as_ref(), limit) {
        Ok((items, next)) => page(&Page { items, next }),
        Err(error) => of_store(&error),
    })))
}

/// A page of hits, and the cursor to the next page.
pub(in crate::http) fn find(
    site: &Site,
    words: &str,
    kind: Option<Kind>,
    after: Option<&SearchCursor>,
    limit: u32,
) -> Result<(Vec<HitJson>, Option<String>), StoreError> {
    let more = |behind: Option<&Hit>, size| {
        site.store.search(words, kind, behind.map(|hit| &hit.cursor).or(after), size)
    };
    let (hits, full) = read_shown(limit, more, |hit| site.index.shows(&hit.key))?;
    let next = hits.last().filter(|_| full).map(|hit| cursor::of_hit(&hit.cursor));
    let items = hits.into_iter().map(|hit| HitJson {
        kind: hit.key.kind.as_str(),
        name: hit.key.name.as_str().to_owned(),
        version: hit.version.to_string(),
    });
    Ok((items.collect(), next))
}

/// The response with a page, which caches must not store: the next publication may change it.
fn page(value: &impl serde::Serialize) -> Response {
    Response::text(200, "application/json", json::text(value))
        .any_origin()
        .cache_policy(CachePolicy::NoStore)
}
