//! Follows the log: applies each of its records to the replica, in order and once.
//!
//! An ordered consumer of the client library stalls for 10 to 22 s when its server dies. This
//! reader asks for heartbeats, and starts a new consumer behind the last applied record when one is
//! missing. A server that is cut off from the others goes on sending heartbeats, and no records: so
//! a reader without records asks the leader of the log.
//!
//! While some records are applied, the next are received.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::push;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::message::Message;
use async_nats::jetstream::stream::{Info, Stream};
use futures_util::{FutureExt, StreamExt};
use levada_core::{UnixTime, sha256};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cache::Cache;
use super::connect::unavailable;
use super::engine::{Engine, RETRY_DELAY};
use super::position::Position;
use super::record::{self, Undecoded};
use crate::store::StoreError;
use crate::store::embedded::Inner;
use crate::store::embedded::replica::{Applied, Entry};

/// The interval of the consumer's heartbeats. The reader starts a new consumer after twice that
/// time without a message.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// The least time between two transactions. What has come meanwhile is applied by one, which costs
/// less than one for each record; a record that comes alone does not wait.
const PACE: Duration = Duration::from_millis(3);
/// After this time without a record, the reader asks the leader for the last one.
const QUIET_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the engine keeps a consumer without a reader.
const INACTIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest delay before a retry.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Between two lines of the log about a fault that lasts.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// How many records are applied at once.
const BATCH: usize = 512;
/// And how many bytes, about.
const BATCH_BYTES: usize = 8 << 20;
/// How long changes wait until their words are indexed, together with those that come meanwhile.
const INDEX_DELAY: Duration = Duration::from_millis(500);
/// While more changes than these are missing, words are not indexed.
const FAR_BEHIND: u64 = 2 * BATCH as u64;

/// What applies the records of the log.
pub struct Follower {
    pub local: Arc<Inner>,
    pub engine: Arc<Engine>,
    pub cache: Arc<Mutex<Cache>>,
    pub position: watch::Sender<Position>,
    pub revision: watch::Sender<u64>,
    /// When the log last said that the catalogue's log is not followed; `None` while it is.
    pub reported: Mutex<Option<Instant>>,
}

impl Follower {
    /// Follows the log, and starts again after each failure, until all receivers of the position
    /// are dropped.
    pub async fn run(self) {
        let run = async {
            let mut delay = RETRY_DELAY;
            loop {
                let before = self.position.borrow().applied;
                let Err(error) = self.follow().await else { continue };
                self.position.send_modify(|position| position.fail(&error));
                self.report_fault(&error);
                let has_progress = self.position.borrow().applied > before;
                delay = if has_progress { RETRY_DELAY } else { MAX_RETRY_DELAY.min(delay * 2) };
                sleep(delay).await;
            }
        };
        tokio::select! {
            () = run => {}
            () = self.keep_indexed() => {}
            () = self.position.closed() => {}
        }
    }

    /// Reports a fault, at most once a minute.
    fn report_fault(&self, error: &StoreError) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            *reported = Some(Instant::now());
            tracing::warn!(%error, "the catalogue gets no changes of other nodes; reading goes on");
        }
    }

    fn report_following(&self) {
        let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner).take();
        if reported.is_some() {
            tracing::info!("the catalogue gets the changes of other nodes again");
        }
    }

    /// Follows the log until a request fails or a heartbeat is missing.
    async fn follow(&self) -> Result<(), StoreError> {
        let applied = self.local.applied()?;
        let applied = applied.ok_or_else(|| unavailable("the replica has no log"))?;
        let (stream, known) = self.same_log(&applied).await?;
        let config = push::Config {
            deliver_subject: self.engine.client().new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: applied.number + 1 },
            ack_policy: AckPolicy::None,
            flow_control: true,
            idle_heartbeat: HEARTBEAT,
            inactive_threshold: INACTIVE_TIMEOUT,
            num_replicas: 1,
            memory_storage: true,
            ..push::Config::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| unavailable(&error))?;
        let messages = consumer.messages().await.map_err(|error| unavailable(&error))?;
        self.position.send_modify(|position| {
            (position.known, position.fault) = (known.max(position.known), None);
        });
        self.report_following();
        let (batches, received) = mpsc::channel(1);
        let mut applying = pin!(self.apply_all(received));
        tokio::select! {
            applied = &mut applying => applied,
            received = self.receive(messages, batches) => {
                // What has been received before the fault is applied.
                applying.await?;
                received
            }
        }
    }

    /// The log, and its last record. Fails if it is not the one that the replica repeats, or has
    /// lost records that are applied.
    async fn same_log(&self, applied: &Applied) -> Result<(Stream<Info>, u64), StoreError> {
        let (stream, log) = self.engine.log().await?;
        let last = stream.cached_info().state.last_sequence;
        let other = || {
            let text = "the engine has another log than the replica of this node: remove the folder \
                        `replica` of its catalogue, and start it again";
            unavailable(text)
        };
        if log != applied.log || last < applied.number {
            return Err(other());
        }
        if applied.number > 0 {
            let record = stream.get_raw_message(applied.number).await;
            let record = record.map_err(|error| unavailable(&error))?;
            if sha256(&[&record.payload]) != applied.digest {
                return Err(other());
            }
        }
        Ok((stream, last))
    }

    /// Receives records until a request fails or a heartbeat is missing.
    async fn receive(
        &self,
        mut messages: push::Messages,
        batches: mpsc::Sender<Vec<Entry>>,
    ) -> Result<(), StoreError> {
        let mut delivered = 0;
        let mut begun = Instant::now();
        loop {
            let Ok(next) = timeout(QUIET_TIMEOUT, messages.next()).await else {
                let (stream, _) = self.engine.log().await?;
                self.note_known(stream.cached_info().state.last_sequence);
                continue;
            };
            let first = next.ok_or_else(|| unavailable("the connection is closed"))?;
            sleep_until(begun + PACE).await;
            begun = Instant::now();
            let mut entries = Vec::new();
            let mut bytes = 0;
            let mut next = Some(first);
            while let Some(message) = next {
                let message = message.map_err(|error| unavailable(&error))?;
                bytes += message.payload.len();
                match self.entry(&message, &mut delivered) {
                    Ok(entry) => entries.push(entry),
                    Err(error) => {
                        // What came before is applied.
                        let _ = batches.send(entries).await;
                        return Err(error);
                    }
                }
                let is_full = entries.len() >= BATCH || bytes >= BATCH_BYTES;
                next = if is_full { None } else { messages.next().now_or_never().flatten() };
            }
            if batches.send(entries).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Checks that no message is missing: the client library drops those that arrive faster than
    /// they are read.
    fn entry(&self, message: &Message, delivered: &mut u64) -> Result<Entry, StoreError> {
        let info = message.info().map_err(|error| unavailable(&error))?;
        *delivered += 1;
        if info.consumer_sequence != *delivered {
            return Err(unavailable("records came faster than they could be applied"));
        }
        let record = match record::from_bytes(&message.payload) {
            Ok(record) => Some(record),
            Err(Undecoded::Unreadable) => None,
            Err(Undecoded::Newer(format)) => return Err(StoreError::Newer(format)),
        };
        self.note_known(info.stream_sequence + info.pending);
        let time = UnixTime(u64::try_from(info.published.unix_timestamp()).unwrap_or(0));
        let digest = sha256(&[&message.payload]);
        Ok(Entry { number: info.stream_sequence, time, digest, record })
    }

    fn note_known(&self, known: u64) {
        self.position.send_if_modified(|position| {
            let is_more = known > position.known;
            position.known = position.known.max(known);
            is_more
        });
    }

    /// Applies what is received, until an application fails or nothing can come any more.
    async fn apply_all(&self, mut received: mpsc::Receiver<Vec<Entry>>) -> Result<(), StoreError> {
        while let Some(entries) = received.recv().await {
            self.apply(entries).await?;
        }
        Ok(())
    }

    async fn apply(&self, entries: Vec<Entry>) -> Result<(), StoreError> {
        let Some(applied) = entries.last().map(|entry| entry.number) else { return Ok(()) };
        let local = Arc::clone(&self.local);
        let cache = Arc::clone(&self.cache);
        let work = move || {
            let (deleted, rejected) = local.apply(&entries)?;
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            deleted.iter().for_each(|digest| cache.remove(digest));
            Ok::<_, StoreError>((local.revision()?, rejected))
        };
        let done = tokio::task::spawn_blocking(work).await;
        let (revision, rejected) = done.map_err(|error| unavailable(&error))??;
        self.position.send_modify(|position| {
            report_rejected(rejected);
            position.rejected += rejected;
            position.applied = applied;
            position.known = position.known.max(applied);
        });
        self.revision.send_if_modified(|last| std::mem::replace(last, revision) != revision);
        Ok(())
    }

    /// Indexes the words of what is applied. A search that comes before does it itself.
    async fn keep_indexed(&self) {
        let mut revision = self.revision.subscribe();
        loop {
            while !self.is_far_behind() {
                let local = Arc::clone(&self.local);
                match tokio::task::spawn_blocking(move || local.index_next()).await {
                    Ok(Ok(true)) => {}
                    Ok(Ok(false)) => break,
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "words are not indexed");
                        sleep(MAX_RETRY_DELAY).await;
                    }
                    // The store is closed.
                    Err(_) => return,
                }
            }
            if revision.changed().await.is_err() {
                return;
            }
            sleep(INDEX_DELAY).await;
        }
    }

    fn is_far_behind(&self) -> bool {
        self.position.borrow().missing() > FAR_BEHIND
    }
}

fn report_rejected(records: u64) {
    if records > 0 {
        tracing::error!(
            records,
            "records of the catalogue's log conflict with earlier ones and are not applied; `levada catalogue log` shows them"
        );
    }
}
