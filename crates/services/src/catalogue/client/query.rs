//! Requests that read descriptors: get, versions, list, search and watch.

use levada_catalogue::model::{Key, Kind, Published};
use levada_core::wire::catalogue::{
    self as wire, Detail, answer::Answer as Response, call::Call as Request,
};

use super::{CatalogueClient, CatalogueError, Item, kind_text, published};
use crate::catalogue::message;

impl CatalogueClient {
    /// One version, with its descriptor. `version` is a version, a range, or empty for the newest.
    ///
    /// # Errors
    /// [`CatalogueError`]; its cause is [`Unknown`](wire::Cause::Unknown) if no version matches.
    pub async fn get(&mut self, key: &Key, version: &str) -> Result<Published, CatalogueError> {
        Ok(self.find(key, version).await?.0)
    }

    /// As [`Self::get`]; also whether the catalogue offers the package through the swarm
    /// ([`Self::admit`]).
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub async fn find(
        &mut self,
        key: &Key,
        version: &str,
    ) -> Result<(Published, bool), CatalogueError> {
        let call = wire::Get { key: key.to_string(), version: version.to_owned() };
        self.request(Request::Get(call)).await?;
        let Response::Entry(entry) = self.response().await? else {
            return Err(CatalogueError::Unexpected);
        };
        let swarm = entry.swarm;
        let found = published(entry)?;
        if found.key != *key { Err(CatalogueError::Unexpected) } else { Ok((found, swarm)) }
    }

    /// Passes each version of an object to `each`, ascending and without descriptors.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `each`.
    pub async fn versions<E: From<CatalogueError>>(
        &mut self,
        key: &Key,
        mut each: impl FnMut(Published) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        self.request(Request::Versions(wire::Versions { key: key.to_string() })).await?;
        loop {
            match self.response().await? {
                Response::Entry(entry) => each(published(entry)?)?,
                Response::Done(_) => return Ok(()),
                _ => return Err(CatalogueError::Unexpected.into()),
            }
        }
    }

    /// Passes the objects whose name begins with `prefix` to `each`, in order: at most `limit`, or
    /// all if it is 0.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `each`.
    pub async fn list<E: From<CatalogueError>>(
        &mut self,
        kind: Option<Kind>,
        prefix: &str,
        limit: u64,
        detail: Detail,
        each: impl FnMut(Item) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        let call = wire::List {
            kind: kind_text(kind),
            prefix: prefix.to_owned(),
            after: String::new(),
            limit,
            detail: detail.into(),
        };
        self.request(Request::List(call)).await?;
        self.items(each).await
    }

    /// Passes the objects that match every word of `query` to `each`, the best first: at most
    /// `limit`, or all if it is 0.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `each`.
    pub async fn search<E: From<CatalogueError>>(
        &mut self,
        query: &str,
        kind: Option<Kind>,
        limit: u64,
        each: impl FnMut(Item) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        let call = wire::Search { query: query.to_owned(), kind: kind_text(kind), limit };
        self.request(Request::Search(call)).await?;
        self.items(each).await
    }

    async fn items<E: From<CatalogueError>>(
        &mut self,
        mut each: impl FnMut(Item) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        loop {
            match self.response().await? {
                Response::Item(item) => {
                    let key = message::key(&item.key).map_err(|_| CatalogueError::Unexpected)?;
                    let newest = item.newest.map(published).transpose()?;
                    each(Item { key, newest })?;
                }
                Response::Done(_) => return Ok(()),
                _ => return Err(CatalogueError::Unexpected.into()),
            }
        }
    }

    /// Passes the changes after revision `after` to `each`; with `None`, only changes from now on.
    /// Unless `follow`, ends with the last change, and returns its revision.
    ///
    /// # Errors
    /// [`CatalogueError`], or the error of `each`.
    pub async fn watch<E: From<CatalogueError>>(
        &mut self,
        after: Option<u64>,
        (kind, prefix): (Option<Kind>, &str),
        follow: bool,
        mut each: impl FnMut(wire::Changed) -> Result<(), E> + Send,
    ) -> Result<u64, E> {
        let call = wire::Watch {
            after: after.unwrap_or(0),
            kind: kind_text(kind),
            prefix: prefix.to_owned(),
            follow,
            now: after.is_none(),
        };
        self.request(Request::Watch(call)).await?;
        loop {
            match self.late_response().await? {
                Response::Changed(change) => {
                    message::check_changed(&change).map_err(|_| CatalogueError::Unexpected)?;
                    each(change)?;
                }
                Response::Done(done) => return Ok(done.revision),
                _ => return Err(CatalogueError::Unexpected.into()),
            }
        }
    }
}
