//! The coordinator's side.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use levada_core::Identity;
use levada_session::StreamError;
use tokio::sync::mpsc::{Receiver, Sender, WeakSender, channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep_until, timeout};

use super::cache::ChunkCache;
use super::events::Event;
use super::link::Link;
use super::links::Links;
use super::pairing::{Carries, Half, Paired, Pairing};
use super::rate::Rate;
use super::status::ShareStatus;
use super::store::Store;
use crate::content::{ContentError, Source};
use crate::coordinator::Input;
use crate::mode::{Coordinator, Mode};
use crate::{ContentId, Description, Output, PeerId, UdpStream};

/// Events that wait for the task that owns the state machine.
const QUEUE: usize = 1024;
/// In a share with UDP, peers of which one stream has come and the other has not.
const MOST_HALVES: usize = 1024;
/// In a share with UDP, how long a peer may try to connect over QUIC until it says what its
/// connection carries.
const CARRIES_TIMEOUT: Duration = Duration::from_secs(30);

/// A running share. Dropping it ends it.
pub struct Share {
    id: ContentId,
    description: Description,
    pairing: Pairing,
    events: Sender<Event>,
    task: AbortHandle,
}

/// How a content is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareOptions {
    /// Its name at the peers: one component of a path.
    pub name: PathBuf,
    /// Who passes chunks on.
    pub mode: Mode,
    /// The stream that goes by UDP; `None` if both go by TCP.
    pub udp: Option<UdpStream>,
    /// The most that the coordinator sends to all peers together, in bytes of chunks per second.
    pub upload_limit: Option<u64>,
    /// Any number, of which the random choices follow.
    pub seed: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Share {
    /// Starts to share `source`.
    pub fn start(source: Arc<Source>, options: ShareOptions) -> Self {
        let ShareOptions { name, mode, udp, upload_limit, seed } = options;
        let id = source.id();
        let chunk = id.geometry.chunk_size();
        let is_folder = source.is_folder();
        let is_mediated = mode != Mode::Direct;
        let description = Description { chunk, is_folder, is_mediated, udp, name };
        let (events, inbox) = channel(QUEUE);
        let cache = is_mediated.then(|| Arc::new(ChunkCache::new(source.clone())));
        let store = cache.clone().map_or(Store::Source(source), Store::Cache);
        let runner = Runner {
            coordinator: Coordinator::new(mode, id.geometry, seed),
            links: Links::new(store, chunk.bytes(), upload_limit, events.clone()),
            over_udp: HashMap::new(),
            cache,
            arrived: None,
            events: events.downgrade(),
            start: Instant::now(),
            status: ShareStatus::default(),
            sending: Rate::default(),
            receiving: Rate::default(),
        };
        let task = tokio::spawn(runner.run(inbox)).abort_handle();
        Self { id, description, pairing: Pairing::new(MOST_HALVES), events, task }
    }

    /// The content.
    pub fn id(&self) -> ContentId {
        self.id
    }

    /// Serves a peer that has proved `identity` and its right, until it leaves or the future is
    /// dropped.
    ///
    /// # Errors
    /// [`StreamError`] if the peer does not receive the first message.
    pub async fn serve(&self, identity: Identity, mut link: Link) -> Result<(), StreamError> {
        link.control.send(&self.description.encode()).await?;
        let (link, paired) = match self.description.udp {
            None => (link, None),
            Some(_) => match self.link(identity, link).await? {
                Some(found) => found,
                None => return Ok(()),
            },
        };
        let (alive, ended) = oneshot::channel();
        let over_udp = paired.is_some();
        if self.events.send(Event::Joined { identity, link, over_udp, alive }).await.is_ok() {
            let _ = ended.await;
        }
        Ok(())
    }

    /// The link of a peer in a share with UDP: `link`, or one stream of it and one of another
    /// session of this peer, whose call waits for the end of this one. `None` in that call, or if
    /// the peer says or sends nothing in time.
    async fn link(
        &self,
        identity: Identity,
        mut link: Link,
    ) -> Result<Option<(Link, Option<Paired>)>, StreamError> {
        let said = timeout(CARRIES_TIMEOUT, link.control.receive(Carries::MAX)).await;
        let Ok(said) = said else { return Ok(None) };
        let half = match said?.as_deref().and_then(Carries::decode) {
            Some(Carries::Both) => return Ok(Some((link, None))),
            Some(Carries::Control) => Half::Control(link.control),
            Some(Carries::Data) => {
                // The peer waits for the end of this stream.
                drop(link.control);
                Half::Data(link.data)
            }
            None => return Ok(None),
        };
        let pair = self.pairing.pair(identity, half).await;
        Ok(pair.map(|(link, paired)| (link, Some(paired))))
    }

    /// What was done so far.
    pub async fn status(&self) -> ShareStatus {
        let (reply, answer) = oneshot::channel();
        let _ = self.events.send(Event::Status(reply)).await;
        answer.await.unwrap_or_default()
    }
}

struct Runner {
    coordinator: Coordinator,
    links: Links,
    /// The peers that have one stream over QUIC.
    over_udp: HashMap<PeerId, Identity>,
    /// Only in mediated mode.
    cache: Option<Arc<ChunkCache>>,
    /// The chunk that has come last, until the state machine has said whether it keeps it.
    arrived: Option<(u32, Bytes)>,
    events: WeakSender<Event>,
    start: Instant,
    /// Without what the state machine knows, and without rates.
    status: ShareStatus,
    sending: Rate,
    receiving: Rate,
}

impl Runner {
    async fn run(mut self, mut inbox: Receiver<Event>) {
        loop {
            self.settle();
            self.arrived = None;
            let due = self.coordinator.next_timeout().map(|due| (self.start + due).into());
            let timeout = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = inbox.recv() => match event {
                    Some(event) => self.happen(event),
                    None => return,
                },
                () = timeout => self.coordinator.handle_timeout(self.start.elapsed()),
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.start.elapsed();
        let input = match event {
            Event::Joined { identity, link, over_udp, alive } => {
                let peer = self.coordinator.next_id();
                self.over_udp.extend(over_udp.then_some((peer, identity)));
                self.links.add(peer, link, Some(alive));
                Input::Joined(*identity.as_bytes())
            }
            Event::Message(from, message) => Input::Message(from, message),
            Event::Unlinked(peer, serial) => {
                if !self.links.remove(peer, Some(serial)) {
                    return;
                }
                self.over_udp.remove(&peer);
                Input::Left(peer)
            }
            Event::Sent { to, index, bytes, read } => {
                self.status.sent += bytes;
                self.sending.add(now, bytes);
                match read {
                    Ok(()) => Input::Sent { to, index },
                    Err(error) => {
                        // In mediated mode, it was evicted.
                        if self.cache.is_none() {
                            self.status.unreadable.push((index, error.to_string()));
                        }
                        Input::Unreadable { to, index }
                    }
                }
            }
            Event::Status(reply) => {
                let _ = reply.send(self.status(now));
                return;
            }
            Event::Chunk { from, index, bytes, stored, content } => {
                self.receiving.add(now, bytes);
                let good = stored.unwrap_or(false);
                self.arrived = good.then_some((index, content));
                Input::Chunk { from, index, good }
            }
            Event::Loaded(index, read) => self.loaded(index, read),
            // The coordinator connects to no peer.
            Event::Linked(..) | Event::Incoming(..) => return,
        };
        self.coordinator.handle(now, input);
    }

    fn settle(&mut self) {
        while let Some(output) = self.coordinator.poll() {
            match output {
                Output::Send(to, message) => {
                    if !self.links.send(to, &message) {
                        self.end(to);
                    }
                }
                Output::SendChunk { to, index, levels } => {
                    if !self.links.send_chunk(to, index, levels) {
                        self.coordinator.handle(self.start.elapsed(), Input::Sent { to, index });
                    }
                }
                Output::Disconnect(peer) => self.end(peer),
                Output::Connect { .. } | Output::Allow { .. } => {}
                Output::Load(index) => self.load(index),
                Output::Keep { index, provider } => {
                    let arrived = self.arrived.take_if(|(arrived, _)| *arrived == index);
                    if let Some((cache, (_, bytes))) = self.cache.as_ref().zip(arrived) {
                        cache.insert(index, provider, bytes);
                    }
                }
                Output::Evict(index) => {
                    self.cache.iter().for_each(|cache| cache.remove(index));
                }
            }
        }
    }

    /// Reads a chunk in the blocking pool.
    fn load(&self, index: u32) {
        let Some((cache, events)) = self.cache.clone().zip(self.events.upgrade()) else { return };
        tokio::spawn(async move {
            let read = spawn_blocking(move || cache.source.read(index, 0)).await;
            if let Ok(read) = read {
                let read = read.map(|(_, bytes)| bytes.into());
                let _ = events.send(Event::Loaded(index, read)).await;
            }
        });
    }

    fn loaded(&mut self, index: u32, read: Result<Bytes, ContentError>) -> Input {
        let good = read.is_ok();
        match (read, &self.cache) {
            (Ok(bytes), Some(cache)) => cache.insert(index, PeerId::COORDINATOR, bytes),
            (Err(error), _) => self.status.unreadable.push((index, error.to_string())),
            (Ok(_), None) => {}
        }
        Input::Loaded { index, good }
    }

    fn status(&mut self, now: Duration) -> ShareStatus {
        let identity = |bytes: &[u8; 32]| Identity::from_bytes(*bytes);
        let progress = self.coordinator.progress();
        let peers = progress.iter().map(|(one, chunks)| (identity(one), *chunks)).collect();
        let reachable = self.coordinator.reachable().iter().map(identity).collect();
        let over_udp = self.over_udp.values().copied().collect();
        let expelled = self.coordinator.expelled().iter().map(identity).collect();
        let counters = self.coordinator.counters();
        let distributed_for = counters.distributed.map(|at| now.saturating_sub(at));
        ShareStatus {
            peers,
            reachable,
            over_udp,
            expelled,
            counters,
            distributed_for,
            sent_rate: self.sending.per_second(now),
            received_rate: self.receiving.per_second(now),
            ..self.status.clone()
        }
    }

    fn end(&mut self, peer: PeerId) {
        if self.links.remove(peer, None) {
            self.over_udp.remove(&peer);
            self.coordinator.handle(self.start.elapsed(), Input::Left(peer));
        }
    }
}
