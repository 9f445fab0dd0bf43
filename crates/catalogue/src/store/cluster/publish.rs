//! Publishing and yanking versions: a record in the log, which is refused if another one was
//! faster.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep, timeout_at};

use super::connect::unavailable;
use super::engine::{RETRY_DELAY, Write, WriteError};
use super::inner::Cluster;
use crate::model::{Draft, Key, Published, Version};
use crate::store::embedded::is_same;
use crate::store::embedded::replica::{Author, Record, Stored};
use crate::store::{Outcome, StoreError};

/// How many versions of one call are written at a time.
const IN_FLIGHT: usize = 16;
/// The delay before the next look at what was faster.
const CATCH_UP_DELAY: Duration = Duration::from_millis(5);

/// A change that is retried until it is decided, or for too long.
pub struct Attempt {
    until: Instant,
    /// A record may have been written without an answer.
    pub is_uncertain: bool,
}

impl Attempt {
    pub fn begin(limit: Duration) -> Self {
        Self { until: Instant::now() + limit, is_uncertain: false }
    }

    /// Writes, for as long as there is time: the number, or `None` to look what is there now, and
    /// to retry.
    pub async fn next(
        &mut self,
        write: impl Future<Output = Result<u64, WriteError>>,
    ) -> Result<Option<u64>, StoreError> {
        match timeout_at(self.until, write).await.unwrap_or(Err(WriteError::Uncertain)) {
            Ok(number) => return Ok(Some(number)),
            Err(WriteError::Changed) => {}
            Err(WriteError::Failed(error)) if !self.is_uncertain => return Err(error),
            Err(WriteError::Failed(_) | WriteError::Retry) => sleep(RETRY_DELAY).await,
            Err(WriteError::Uncertain) => {
                self.is_uncertain = true;
                // A lost connection is reported at once, and each retry would be, too.
                sleep(RETRY_DELAY).await;
            }
        }
        match () {
            () if Instant::now() < self.until => Ok(None),
            () if self.is_uncertain => Err(StoreError::Uncertain),
            () => Err(unavailable("it has no leader, or it is too busy")),
        }
    }
}

impl Cluster {
    /// Publishes each of `drafts`.
    pub async fn publish_each(
        &self,
        drafts: &[Draft],
        author: Author,
    ) -> Vec<Result<Outcome, StoreError>> {
        // Of versions that share a package, only one would succeed at a time.
        let has_packages = drafts.iter().any(|draft| draft.package.is_some());
        let in_flight = if has_packages { 1 } else { IN_FLIGHT };
        let each = stream::iter(drafts).map(|draft| self.publish(draft, author));
        each.buffered(in_flight).collect().await
    }

    /// Publishes a draft.
    pub async fn publish(&self, draft: &Draft, author: Author) -> Result<Outcome, StoreError> {
        draft.check()?;
        let mut attempt = self.attempt()?;
        let record = Record::Published(draft.clone(), author);
        let subject = self.engine.subjects.version(&draft.key, &draft.version);
        loop {
            if let Some(found) = self.local.get(&draft.key, &draft.version)? {
                return self.compare(draft, &found, author, attempt.is_uncertain).await;
            }
            let write = Write { subject: subject.clone(), record: &record, expected: Some(0) };
            let claimed = self.claim(draft)?;
            let writing = async {
                let Some((number, stored)) = &claimed else {
                    return self.engine.write(write).await;
                };
                let record = Record::Stored(*stored);
                let subject = self.engine.subjects.package(&stored.digest);
                let claim = Write { subject, record: &record, expected: Some(*number) };
                self.engine.write_both(claim, write).await
            };
            if let Some(number) = attempt.next(writing).await? {
                self.reached(number).await;
                return self.published(draft, author, number).await;
            }
            self.catch_up(&subject, &attempt).await;
            if let Some((_, stored)) = &claimed {
                self.catch_up(&self.engine.subjects.package(&stored.digest), &attempt).await;
            }
        }
    }

    /// The beginning of a change, unless another node writes what this version cannot read.
    pub fn attempt(&self) -> Result<Attempt, StoreError> {
        match self.position.borrow().newer {
            Some(format) => Err(StoreError::Newer(format)),
            None => Ok(Attempt::begin(self.write_timeout)),
        }
    }

    /// The outcome of a publication whose record is in the log: it may conflict with an earlier one
    /// that the engine did not compare it with.
    async fn published(
        &self,
        draft: &Draft,
        author: Author,
        number: u64,
    ) -> Result<Outcome, StoreError> {
        match self.local.get(&draft.key, &draft.version)? {
            Some(found) if found.revision != number => {
                self.compare(draft, &found, author, true).await
            }
            None if self.position.borrow().applied >= number => Err(StoreError::Rejected(number)),
            _ => Ok(Outcome::Created(number)),
        }
    }

    /// Of a version that exists: whether it is the draft, or another one, which the audit log
    /// notes.
    async fn compare(
        &self,
        draft: &Draft,
        found: &Published,
        author: Author,
        is_uncertain: bool,
    ) -> Result<Outcome, StoreError> {
        let Author { identity, time } = author;
        if is_same(draft, found) {
            let is_own = is_uncertain && (found.publisher, found.published) == (identity, time);
            return Ok(if is_own { Outcome::Created(found.revision) } else { Outcome::Same });
        }
        let key = draft.key.clone();
        let version = draft.version.clone();
        self.note(&Record::Conflict(key, version, author)).await?;
        Ok(Outcome::Conflict)
    }

    /// The last record about the package of a draft, and what claims it.
    fn claim(&self, draft: &Draft) -> Result<Option<(u64, Stored)>, StoreError> {
        let Some(package) = &draft.package else { return Ok(None) };
        let digest = package.digest;
        let found = self.local.stored(&digest)?;
        let (number, stored) = found.ok_or(StoreError::NoSuchBlob(digest))?;
        if stored.length != package.length {
            let claimed = package.length;
            let found = stored.length;
            return Err(StoreError::PackageLength { digest, claimed, found });
        }
        Ok(Some((number, Stored { claim: true, ..stored })))
    }

    /// Yanks a version, or restores it.
    pub async fn yank(
        &self,
        key: &Key,
        version: &Version,
        yanked: bool,
        author: Author,
    ) -> Result<Outcome, StoreError> {
        let mut attempt = self.attempt()?;
        let subject = self.engine.subjects.version(key, version);
        let record = Record::Yanked { key: key.clone(), version: version.clone(), yanked, author };
        loop {
            let Some(found) = self.local.get(key, version)? else {
                let key = key.clone();
                let version = version.clone();
                return Err(StoreError::NoSuchVersion { key, version });
            };
            if found.yanked == yanked {
                let is_own = attempt.is_uncertain;
                return Ok(if is_own { Outcome::Created(found.revision) } else { Outcome::Same });
            }
            let expected = Some(found.revision);
            let write = Write { subject: subject.clone(), record: &record, expected };
            if let Some(number) = attempt.next(self.engine.write(write)).await? {
                self.reached(number).await;
                return Ok(Outcome::Created(number));
            }
            self.catch_up(&subject, &attempt).await;
        }
    }

    /// Writes a record that is only for the audit log. It may be there twice if the engine does not
    /// answer.
    pub async fn note(&self, record: &Record) -> Result<(), StoreError> {
        let mut attempt = self.attempt()?;
        loop {
            let subject = self.engine.subjects.audit();
            let writing = self.engine.write(Write { subject, record, expected: None });
            if let Some(number) = attempt.next(writing).await? {
                self.reached(number).await;
                return Ok(());
            }
        }
    }

    /// Waits until the replica has the last record with a subject.
    pub async fn catch_up(&self, subject: &str, attempt: &Attempt) {
        // Without an answer, the next attempt fails.
        if let Ok(Ok(number)) = timeout_at(attempt.until, self.engine.last(subject)).await {
            self.reached(number).await;
        }
        // A record that was refused for another one may be ahead of what the leader shows.
        sleep(CATCH_UP_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_without_an_answer_is_retried_at_intervals() {
        let mut attempt = Attempt::begin(10 * RETRY_DELAY);
        let mut last = Ok(None);
        let mut tries = 0;
        while matches!(last, Ok(None)) && tries < 100 {
            last = attempt.next(async { Err(WriteError::Uncertain) }).await;
            tries += 1;
        }
        assert!(matches!(last, Err(StoreError::Uncertain)) && tries <= 10, "{tries}");
    }
}
