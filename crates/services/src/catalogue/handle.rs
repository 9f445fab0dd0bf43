//! The store of a running process, shared by all its users in this process.

use std::sync::{Arc, OnceLock};

use levada_catalogue::model::{Draft, Key, Version};
use levada_catalogue::store::{Lag, Outcome, Store, StoreError};
use levada_core::{Clock, Identity, UnixTime};
use tokio::sync::watch;

use super::blocking::{HandleError, blocking};
use super::low_priority::LowPriority;
use super::offer::SwarmOffer;
use super::upload::Uploads;

/// A store, its change notifications, and its unfinished uploads.
pub struct CatalogueHandle {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    revision: watch::Sender<u64>,
    pub(super) uploads: Uploads,
    low_priority: Option<LowPriority>,
    swarm: OnceLock<Arc<SwarmOffer>>,
}

impl CatalogueHandle {
    /// A handle for `store`. All later changes must go through this handle, so that watchers are
    /// notified.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let revision = watch::Sender::new(0);
        let uploads = Uploads::default();
        let low_priority = LowPriority::start();
        Self { store, clock, revision, uploads, low_priority, swarm: OnceLock::new() }
    }

    /// Offers long packages through the swarm of a node from now on. Only the first call has an
    /// effect.
    pub fn offer_swarm(&self, offer: Arc<SwarmOffer>) {
        let _ = self.swarm.set(offer);
    }

    pub(super) fn swarm(&self) -> Option<&Arc<SwarmOffer>> {
        self.swarm.get()
    }

    /// The store itself, for reading.
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Whether this handle has the only reference to the store.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.store) == 1
    }

    /// Receives the revision of each change made through this handle, 0 before the first; or of
    /// each change of a store that others change, too.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.store.followed().unwrap_or_else(|| self.revision.subscribe())
    }

    /// How far the catalogue is behind the nodes that it is shared with.
    pub fn lag(&self) -> Option<Lag> {
        self.store.lag()
    }

    /// The current time of the handle's clock.
    pub fn now(&self) -> UnixTime {
        self.clock.now()
    }

    /// Runs `work` on a thread for blocking work.
    ///
    /// # Errors
    /// [`HandleError::Store`] with the error of `work`; [`HandleError::Closing`].
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, HandleError> {
        let store = self.store.clone();
        blocking(move || work(&*store)).await
    }

    /// Runs `work`, which must be short, on the low-priority thread, in order of the calls. It does
    /// not delay readers; on a busy machine it may start much later. If the future is dropped
    /// before `work` has started, `work` does not run; afterwards it runs to completion.
    ///
    /// # Errors
    /// [`HandleError::Store`] with the error of `work`; [`HandleError::Closing`].
    pub async fn low_priority<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, HandleError> {
        let Some(low_priority) = &self.low_priority else { return self.with(work).await };
        let store = self.store.clone();
        let done = low_priority.run(move || work(&*store)).await;
        Ok(done.ok_or(HandleError::Closing)??)
    }

    /// Changes the store by `work`, and notifies watchers.
    async fn change(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<Outcome, StoreError> + Send + 'static,
    ) -> Result<Outcome, HandleError> {
        let revision = self.revision.clone();
        let work = move |store: &dyn Store| {
            let outcome = work(store)?;
            notify(&revision, outcome);
            Ok(outcome)
        };
        // A store that is shared waits for others, and uses no processor meanwhile.
        match self.store.followed() {
            Some(_) => self.with(work).await,
            None => self.low_priority(work).await,
        }
    }

    /// Publishes `draft` on behalf of `by`, and notifies watchers.
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

    /// Stores the packages `contents`, publishes `drafts` in order, and notifies watchers. The
    /// result has an outcome for each draft. All drafts share one transaction, unless one of them
    /// fails.
    ///
    /// # Errors
    /// As for [`Store::add_blobs`].
    pub async fn publish_all(
        &self,
        drafts: Vec<Draft>,
        contents: Vec<Vec<u8>>,
        by: Option<Identity>,
    ) -> Result<Vec<Result<Outcome, StoreError>>, HandleError> {
        let now = self.now();
        let revision = self.revision.clone();
        self.with(move |store| {
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            store.add_blobs(&contents)?;
            let outcomes = store.publish_each(&drafts, by, now);
            outcomes.iter().flatten().for_each(|outcome| notify(&revision, *outcome));
            Ok(outcomes)
        })
        .await
    }

    /// Yanks a version, or restores it if not `yanked`, and notifies watchers.
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

fn notify(revision: &watch::Sender<u64>, outcome: Outcome) {
    if let Outcome::Created(new) = outcome {
        // Changes of two threads may arrive out of order; the revision must not decrease.
        revision.send_modify(|last| *last = new.max(*last));
    }
}
