//! The store of a running process, shared by all who use it there.

use std::sync::Arc;

use levada_catalogue::model::{Draft, Key, Version};
use levada_catalogue::store::{Outcome, Store, StoreError};
use levada_core::{Clock, Identity, UnixTime};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::low_priority::LowPriority;
use super::upload::Uploads;

/// A store, and what is going on around it: who waits for changes, and which uploads were cut off.
pub struct CatalogueHandle {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    revision: watch::Sender<u64>,
    pub(super) uploads: Uploads,
    low_priority: Option<LowPriority>,
}

/// Why something could not be done with the store.
#[derive(Debug, Error)]
pub enum HandleError {
    /// The store says so.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process is ending.
    #[error("the catalogue is being closed")]
    Closing,
}

impl CatalogueHandle {
    /// Keeps `store`; all changes go through this value from now on.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let (revision, uploads) = (watch::Sender::new(0), Uploads::default());
        Self { store, clock, revision, uploads, low_priority: LowPriority::start() }
    }

    /// The store itself, for reading.
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Whether nobody uses the store at this moment but this value.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.store) == 1
    }

    /// Says when something was changed: the number of the last change that was made here, 0 before the first.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The time.
    pub fn now(&self) -> UnixTime {
        self.clock.now()
    }

    /// Runs `work` on the store, on a thread that may wait for the disk.
    ///
    /// # Errors
    /// [`HandleError::Store`] is what `work` returned.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, HandleError> {
        let store = self.store.clone();
        let done = spawn_blocking(move || work(&*store)).await;
        // Nothing in a store panics; so it was the runtime that gave the work up.
        Ok(done.map_err(|_| HandleError::Closing)??)
    }

    /// Runs `work`, which must be short, where it does not hold up those who read: after what was given to this before,
    /// and on a busy machine much later. It is done to its end if it has begun, whether or not anybody waits; if nobody
    /// does before, it never begins.
    ///
    /// # Errors
    /// [`HandleError::Store`] is what `work` returned; [`HandleError::Closing`].
    pub async fn low_priority<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, HandleError> {
        let Some(low_priority) = &self.low_priority else { return self.with(work).await };
        let store = self.store.clone();
        let done = low_priority.run(move || work(&*store)).await;
        Ok(done.ok_or(HandleError::Closing)??)
    }

    /// Changes the store by `work`, and tells those who watch.
    async fn change(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<Outcome, StoreError> + Send + 'static,
    ) -> Result<Outcome, HandleError> {
        let revision = self.revision.clone();
        self.low_priority(move |store| {
            let outcome = work(store)?;
            tell(&revision, outcome);
            Ok(outcome)
        })
        .await
    }

    /// Publishes, and tells those who watch.
    ///
    /// # Errors
    /// As for [`Store::publish`].
    pub async fn publish(
        &self,
        draft: Draft,
        by: Option<Identity>,
    ) -> Result<Outcome, HandleError> {
        let now = self.now();
        self.change(move |store| store.publish(&draft, by, now)).await
    }

    /// Stores the packages `contents` and publishes `drafts` in order, in one go, and tells those who watch. Each of
    /// them has an outcome of its own.
    ///
    /// # Errors
    /// As for [`Store::add_blobs`].
    pub async fn publish_all(
        &self,
        drafts: Vec<Draft>,
        contents: Vec<Vec<u8>>,
        by: Option<Identity>,
    ) -> Result<Vec<Result<Outcome, StoreError>>, HandleError> {
        let (now, revision) = (self.now(), self.revision.clone());
        self.with(move |store| {
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            store.add_blobs(&contents)?;
            let outcomes: Vec<_> = match store.publish_all(&drafts, by, now) {
                Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
                // One of them is to blame, and the others are not.
                Err(_) => drafts.iter().map(|draft| store.publish(draft, by, now)).collect(),
            };
            outcomes.iter().flatten().for_each(|outcome| tell(&revision, *outcome));
            Ok(outcomes)
        })
        .await
    }

    /// Takes a version back or gives it back, and tells those who watch.
    ///
    /// # Errors
    /// As for [`Store::yank`].
    pub async fn yank(
        &self,
        key: Key,
        version: Version,
        yanked: bool,
        by: Option<Identity>,
    ) -> Result<Outcome, HandleError> {
        let now = self.now();
        self.change(move |store| store.yank(&key, &version, yanked, by, now)).await
    }
}

fn tell(revision: &watch::Sender<u64>, outcome: Outcome) {
    if let Outcome::Created(new) = outcome {
        // Two changes may come here in another order than they were made.
        revision.send_modify(|last| *last = new.max(*last));
    }
}
