//! How much of something each source may do at a time; what is more waits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The longest wait for a permit: less than a client waits for an answer.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Gives permits.
pub(crate) struct SourcePermits {
    at_a_time: usize,
    /// Only sources with a permit, or that wait for one; the others are removed as soon as one is
    /// added.
    sources: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl SourcePermits {
    /// Each source has `at_a_time` permits.
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self { at_a_time, sources: Mutex::default() }
    }

    /// Waits for a permit of `source`, which lasts until the result is dropped. `None` after 20 s.
    pub(crate) async fn permit(&self, source: IpAddr) -> Option<OwnedSemaphorePermit> {
        timeout(MAX_WAIT, self.semaphore(source).acquire_owned()).await.ok()?.ok()
    }

    /// A permit of `source`, if one is free.
    pub(crate) fn try_permit(&self, source: IpAddr) -> Option<OwnedSemaphorePermit> {
        self.semaphore(source).try_acquire_owned().ok()
    }

    fn semaphore(&self, source: IpAddr) -> Arc<Semaphore> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = sources.get(&source).and_then(Weak::upgrade) {
            return semaphore;
        }
        sources.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.at_a_time));
        sources.insert(source, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_source_waits_for_its_own_permits_only() {
        let permits = SourcePermits::new(2);
        let [one, two]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let first = permits.permit(one).await.unwrap();
        let _second = permits.permit(one).await.unwrap();
        assert!(permits.permit(one).await.is_none());
        assert!(permits.permit(two).await.is_some());
        assert!(permits.try_permit(one).is_none() && permits.try_permit(two).is_some());
        drop(first);
        assert!(permits.permit(one).await.is_some());
        assert_eq!(permits.sources.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn sources_without_a_permit_are_forgotten() {
        let permits = SourcePermits::new(1);
        for n in 0..1000 {
            drop(permits.permit(IpAddr::V4(n.into())).await);
        }
        assert_eq!(permits.sources.lock().unwrap().len(), 1);
    }
}
