//! Requests that read descriptors: get, versions, list, search and watch.

use std::cmp::Ordering;

use levada_catalogue::model::version::{latest_order, precedence};
use levada_catalogue::model::{Key, Kind, MAX_NAME, Published, Version};
use levada_catalogue::store::{SearchCursor, Store, StoreError};
use levada_core::wire::catalogue::{self as wire, answer::Answer as Response};

use super::message::{self, VersionSelector, unknown};
use super::pipe::PipeError;
use super::rules::{Right, Rights};
use super::session::{RequestError, Session};

/// How many keys, hits or changes are read from the store at a time.
const PAGE_SIZE: u32 = 256;
/// The same for versions with their descriptors, which may have 1 MiB each.
const FULL_PAGE_SIZE: u32 = 8;

/// One page of a list.
struct Page {
    items: Vec<wire::Item>,
    /// The last key of this page, after which the next begins; `None` if this is the last page.
    next: Option<Key>,
}

/// The filter and the detail of a list.
#[derive(Clone)]
struct Query {
    kind: Option<Kind>,
    prefix: String,
    detail: wire::Detail,
    rights: Rights,
}

impl Session<'_> {
    pub(super) async fn get(&mut self, call: wire::Get) -> Result<(), RequestError> {
        let key = message::key(&call.key)?;
        self.check_right(Right::Read, &key)?;
        let selector = VersionSelector::parse(&call.version)?;
        let name = key.to_string();
        let found = self.handle.with(move |store| find_full(store, &key, &selector)).await?;
        let found = found.ok_or_else(|| match call.version.as_str() {
            "" => unknown(&format!("there is no {name}, or all its versions are yanked")),
            version => unknown(&format!("{name} has no version {version}")),
        })?;
        let swarm = self.offers(found.package.as_ref());
        let entry = wire::Entry { swarm, ..message::entry(found, true) };
        Ok(self.respond(Response::Entry(entry)).await?)
    }

    pub(super) async fn versions(&mut self, call: wire::Versions) -> Result<(), RequestError> {
        let key = message::key(&call.key)?;
        self.check_right(Right::Read, &key)?;
        let name = key.to_string();
        let found = self.handle.with(move |store| {
            let found = store.versions(&key)?;
            Ok(found.into_iter().map(|one| message::entry(one, false)).collect::<Vec<_>>())
        });
        let found = found.await?;
        if found.is_empty() {
            return Err(unknown(&format!("there is no {name}")).into());
        }
        for entry in found {
            self.respond(Response::Entry(entry)).await?;
        }
        self.done_now().await
    }

    pub(super) async fn list(&mut self, call: wire::List) -> Result<(), RequestError> {
        self.check_any_right(Right::Read)?;
        if call.prefix.len() > MAX_NAME {
            return Err(message::invalid("the prefix is longer than any name").into());
        }
        let detail = call.detail();
        let query = Query {
            kind: message::kind(&call.kind)?,
            prefix: call.prefix,
            detail,
            rights: self.principal.rights.clone(),
        };
        let mut left = if call.limit == 0 { u64::MAX } else { call.limit };
        let mut after = match call.after.as_str() {
            "" => None,
            after => Some(message::key(after)?),
        };
        loop {
            let query = query.clone();
            let from = after;
            let page = self.handle.with(move |store| query.page(store, from.as_ref())).await?;
            for item in page.items {
                if left == 0 {
                    break;
                }
                left -= 1;
                self.respond(Response::Item(item)).await?;
            }
            after = page.next;
            if after.is_none() || left == 0 {
                return self.done_now().await;
            }
        }
    }

    pub(super) async fn search(&mut self, call: wire::Search) -> Result<(), RequestError> {
        self.check_any_right(Right::Read)?;
        let kind = message::kind(&call.kind)?;
        let mut left = if call.limit == 0 { u64::MAX } else { call.limit };
        let mut after: Option<SearchCursor> = None;
        loop {
            let query = call.query.clone();
            let rights = self.principal.rights.clone();
            let found = self.handle.with(move |store| {
                let hits = store.search(&query, kind, after.as_ref(), PAGE_SIZE)?;
                let next = hits.last().map(|hit| hit.cursor.clone());
                let next = next.filter(|_| hits.len() >= PAGE_SIZE as usize);
                let mut items = Vec::new();
                for hit in hits.into_iter().filter(|hit| rights.allows(Right::Read, &hit.key)) {
                    let newest = store.get(&hit.key, &hit.version)?;
                    items.push(item(&hit.key, newest, false));
                }
                Ok((items, next))
            });
            let (items, next) = found.await?;
            for item in items {
                if left == 0 {
                    break;
                }
                left -= 1;
                self.respond(Response::Item(item)).await?;
            }
            if next.is_none() || left == 0 {
                return self.done_now().await;
            }
            after = next;
        }
    }

    pub(super) async fn watch(&mut self, call: wire::Watch) -> Result<(), RequestError> {
        self.check_any_right(Right::Read)?;
        let kind = message::kind(&call.kind)?;
        let mut changed = self.handle.changes();
        let mut after = match call.now {
            true => self.handle.with(|store| store.revision()).await?,
            false => call.after,
        };
        loop {
            // A change after this point ends the wait below.
            changed.mark_unchanged();
            let page = self.handle.with(move |store| store.changes(after, PAGE_SIZE)).await?;
            let is_last = page.len() < PAGE_SIZE as usize;
            for change in page {
                after = change.revision;
                let matches = kind.is_none_or(|kind| kind == change.key.kind)
                    && change.key.name.as_str().starts_with(&call.prefix)
                    && self.principal.rights.allows(Right::Read, &change.key);
                if matches {
                    self.respond(Response::Changed(message::changed(&change))).await?;
                }
            }
            if is_last && !call.follow {
                return self.done(false, after).await;
            }
            if is_last {
                self.wait_for_change(&mut changed).await?;
            }
        }
    }

    /// Waits for a change. The client may finish the session meanwhile, but not send a request.
    async fn wait_for_change(
        &mut self,
        changed: &mut tokio::sync::watch::Receiver<u64>,
    ) -> Result<(), RequestError> {
        tokio::select! {
            // No error: the handle, which has the sender, lives as long as the session.
            _ = changed.changed() => Ok(()),
            message = self.receive.receive(wire::MAX_MESSAGE) => match message? {
                None => Err(RequestError::Finished),
                Some(_) => Err(RequestError::Pipe(PipeError::Malformed)),
            },
        }
    }

    async fn done_now(&mut self) -> Result<(), RequestError> {
        let revision = self.handle.with(|store| store.revision()).await?;
        self.done(false, revision).await
    }
}

impl Query {
    fn page(&self, store: &dyn Store, after: Option<&Key>) -> Result<Page, StoreError> {
        let full = self.detail == wire::Detail::Full;
        let size = if full { FULL_PAGE_SIZE } else { PAGE_SIZE };
        let keys = store.list(self.kind, &self.prefix, after, size)?;
        let next = if keys.len() < size as usize { None } else { keys.last().cloned() };
        let mut items = Vec::new();
        for key in keys.iter().filter(|key| self.rights.allows(Right::Read, key)) {
            let newest = match self.detail {
                wire::Detail::Keys => None,
                wire::Detail::Full => find_full(store, key, &VersionSelector::Newest)?,
                wire::Detail::Newest => find(store, key, latest_order, |_| true)?,
            };
            items.push(item(key, newest, full));
        }
        Ok(Page { items, next })
    }
}

fn item(key: &Key, newest: Option<Published>, full: bool) -> wire::Item {
    let newest = newest.map(|newest| message::entry(newest, full));
    wire::Item { key: key.to_string(), newest }
}

/// The highest version that `fits`, without its descriptor. Yanked versions are left out.
fn find(
    store: &dyn Store,
    key: &Key,
    order: fn(&Version, &Version) -> Ordering,
    fits: impl Fn(&Version) -> bool,
) -> Result<Option<Published>, StoreError> {
    let found = store.versions(key)?.into_iter().filter(|one| !one.yanked && fits(&one.version));
    // Of equal versions `max_by` returns the last, which was published later.
    Ok(found.max_by(|one, other| order(&one.version, &other.version)))
}

/// The selected version with its descriptor. A yanked version is selected only by its exact number.
fn find_full(
    store: &dyn Store,
    key: &Key,
    selector: &VersionSelector,
) -> Result<Option<Published>, StoreError> {
    let found = match selector {
        VersionSelector::Exact(version) => return store.get(key, version),
        VersionSelector::Range(range) => {
            find(store, key, precedence, |version| range.matches(version))?
        }
        VersionSelector::Newest => find(store, key, latest_order, |_| true)?,
    };
    let Some(found) = found else { return Ok(None) };
    let full = store.get(key, &found.version)?;
    // If the version was yanked between the two reads, the state of the first read is returned.
    Ok(full.map(|full| Published { descriptor: full.descriptor, ..found }))
}
