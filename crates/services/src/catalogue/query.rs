//! What exists: one version, all versions, lists, searches, and changes as they happen.

use std::cmp::Ordering;

use levada_catalogue::model::version::{latest_order, precedence};
use levada_catalogue::model::{Key, Kind, MAX_NAME, Published, Version};
use levada_catalogue::store::{SearchCursor, Store, StoreError};
use levada_core::wire::catalogue::{self as wire, answer::Answer as Said};

use super::message::{self, Wanted, unknown};
use super::pipe::PipeError;
use super::rules::{Right, Rights};
use super::session::{Session, Stop};

/// How many keys, hits or changes are read at a time.
const PAGE: u32 = 256;
/// How many of them with their descriptors, each of which may have a megabyte.
const PAGE_IN_FULL: u32 = 8;

/// A part of a list that was read at once.
struct Page {
    items: Vec<wire::Item>,
    /// Where the next one begins; `None` if this is the last.
    next: Option<Key>,
}

/// What is listed.
#[derive(Clone)]
struct Query {
    kind: Option<Kind>,
    prefix: String,
    detail: wire::Detail,
    rights: Rights,
}

impl Session<'_> {
    pub(super) async fn get(&mut self, call: wire::Get) -> Result<(), Stop> {
        let key = message::key(&call.key)?;
        self.allow(Right::Read, &key)?;
        let wanted = Wanted::read(&call.version)?;
        let name = key.to_string();
        let found = self.handle.with(move |store| find_whole(store, &key, &wanted)).await?;
        let found = found.ok_or_else(|| match call.version.as_str() {
            "" => unknown(&format!("there is no {name}, or every version of it was yanked")),
            version => unknown(&format!("{name} has no version {version}")),
        })?;
        Ok(self.say(Said::Entry(message::entry(found, true))).await?)
    }

    pub(super) async fn versions(&mut self, call: wire::Versions) -> Result<(), Stop> {
        let key = message::key(&call.key)?;
        self.allow(Right::Read, &key)?;
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
            self.say(Said::Entry(entry)).await?;
        }
        self.done_now().await
    }

    pub(super) async fn list(&mut self, call: wire::List) -> Result<(), Stop> {
        self.allow_some(Right::Read)?;
        if call.prefix.len() > MAX_NAME {
            return Err(message::invalid("no name is as long as this prefix").into());
        }
        let detail = call.detail();
        let query = Query {
            kind: message::kind(&call.kind)?,
            prefix: call.prefix,
            detail,
            rights: self.visitor.rights.clone(),
        };
        let mut left = if call.limit == 0 { u64::MAX } else { call.limit };
        let mut after = match call.after.as_str() {
            "" => None,
            after => Some(message::key(after)?),
        };
        loop {
            let (query, from) = (query.clone(), after);
            let page = self.handle.with(move |store| query.page(store, from.as_ref())).await?;
            for item in page.items {
                if left == 0 {
                    break;
                }
                left -= 1;
                self.say(Said::Item(item)).await?;
            }
            after = page.next;
            if after.is_none() || left == 0 {
                return self.done_now().await;
            }
        }
    }

    pub(super) async fn search(&mut self, call: wire::Search) -> Result<(), Stop> {
        self.allow_some(Right::Read)?;
        let kind = message::kind(&call.kind)?;
        let mut left = if call.limit == 0 { u64::MAX } else { call.limit };
        let mut after: Option<SearchCursor> = None;
        loop {
            let (query, rights) = (call.query.clone(), self.visitor.rights.clone());
            let found = self.handle.with(move |store| {
                let hits = store.search(&query, kind, after.as_ref(), PAGE)?;
                let next = hits.last().map(|hit| hit.cursor.clone());
                let next = next.filter(|_| hits.len() >= PAGE as usize);
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
                self.say(Said::Item(item)).await?;
            }
            if next.is_none() || left == 0 {
                return self.done_now().await;
            }
            after = next;
        }
    }

    pub(super) async fn watch(&mut self, call: wire::Watch) -> Result<(), Stop> {
        self.allow_some(Right::Read)?;
        let kind = message::kind(&call.kind)?;
        let mut changed = self.handle.changes();
        let mut after = match call.now {
            true => self.handle.with(|store| store.revision()).await?,
            false => call.after,
        };
        loop {
            // What comes from now on is noticed below.
            changed.mark_unchanged();
            let page = self.handle.with(move |store| store.changes(after, PAGE)).await?;
            let is_last = page.len() < PAGE as usize;
            for change in page {
                after = change.revision;
                let meant = kind.is_none_or(|kind| kind == change.key.kind)
                    && change.key.name.as_str().starts_with(&call.prefix)
                    && self.visitor.rights.allows(Right::Read, &change.key);
                if meant {
                    self.say(Said::Changed(message::changed(&change))).await?;
                }
            }
            if is_last && !call.follow {
                return self.done(false, after).await;
            }
            if is_last {
                self.wait(&mut changed).await?;
            }
        }
    }

    /// Until there is a change, or the other side ends the conversation.
    async fn wait(&mut self, changed: &mut tokio::sync::watch::Receiver<u64>) -> Result<(), Stop> {
        tokio::select! {
            // The handle lives as long as the conversation.
            _ = changed.changed() => Ok(()),
            message = self.receive.receive(wire::MAX_MESSAGE) => match message? {
                None => Err(Stop::Over),
                Some(_) => Err(Stop::Lost(PipeError::Malformed)),
            },
        }
    }

    async fn done_now(&mut self) -> Result<(), Stop> {
        let revision = self.handle.with(|store| store.revision()).await?;
        self.done(false, revision).await
    }
}

impl Query {
    fn page(&self, store: &dyn Store, after: Option<&Key>) -> Result<Page, StoreError> {
        let full = self.detail == wire::Detail::Full;
        let size = if full { PAGE_IN_FULL } else { PAGE };
        let keys = store.list(self.kind, &self.prefix, after, size)?;
        let next = if keys.len() < size as usize { None } else { keys.last().cloned() };
        let mut items = Vec::new();
        for key in keys.iter().filter(|key| self.rights.allows(Right::Read, key)) {
            let newest = match self.detail {
                wire::Detail::Keys => None,
                wire::Detail::Full => find_whole(store, key, &Wanted::Newest)?,
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

/// The version that is wanted, without its descriptor. A yanked one is not.
fn find(
    store: &dyn Store,
    key: &Key,
    order: fn(&Version, &Version) -> Ordering,
    fits: impl Fn(&Version) -> bool,
) -> Result<Option<Published>, StoreError> {
    let found = store.versions(key)?.into_iter().filter(|one| !one.yanked && fits(&one.version));
    // Of equal ones it is the last, which was published later.
    Ok(found.max_by(|one, other| order(&one.version, &other.version)))
}

/// The version that is wanted. A yanked one is found by its own number alone.
fn find_whole(
    store: &dyn Store,
    key: &Key,
    wanted: &Wanted,
) -> Result<Option<Published>, StoreError> {
    let found = match wanted {
        Wanted::Exact(version) => return store.get(key, version),
        Wanted::Range(range) => find(store, key, precedence, |version| range.matches(version))?,
        Wanted::Newest => find(store, key, latest_order, |_| true)?,
    };
    let Some(found) = found else { return Ok(None) };
    let whole = store.get(key, &found.version)?;
    // It may have been taken back in between; it was the one that was wanted.
    Ok(whole.map(|whole| Published { descriptor: whole.descriptor, ..found }))
}
