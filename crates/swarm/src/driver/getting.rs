//! The peer's side.

mod linking;
mod neighbours;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use levada_core::Identity;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep_until;

use super::events::{Event, GetError, Progress};
use super::link::Link;
use super::links::Links;
use super::meeting::Network;
use super::store::{Store, lock};
use crate::content::{ContentError, PartialFile, finish};
use crate::mode::{Mode, Peer};
use crate::peer::Input;
use crate::{Output, PeerId};
use neighbours::Neighbours;

/// Events that wait for the task that owns the state machine.
const QUEUE: usize = 1024;

/// A download.
pub struct Get {
    /// The streams to the coordinator.
    pub coordinator: Link,
    /// Who passes chunks on. A peer needs none of the settings of mediated mode.
    pub mode: Mode,
    /// Where chunks are stored.
    pub file: PartialFile,
    /// How other peers are reached.
    pub network: Network,
    /// What happens is reported here; reports are dropped while it is full.
    pub progress: Sender<Progress>,
    /// Of this number the random choices follow.
    pub seed: u64,
    /// Whether chunks are passed on to others.
    pub upload: bool,
}

/// What a download has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Bytes of chunks received from each peer; None is the coordinator.
    pub received: HashMap<Option<Identity>, u64>,
    /// Bytes of chunks sent to peers.
    pub sent: u64,
    /// Paths of a folder with replaced characters.
    pub renamed: usize,
}

impl Get {
    /// Receives all chunks, gives the file its name or unpacks the folder, and goes on providing
    /// chunks until `stop` resolves.
    ///
    /// # Errors
    /// [`GetError`]. What was received stays on disk.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<Got, GetError> {
        let (events, inbox) = channel(QUEUE);
        let geometry = self.file.geometry();
        let have = self.file.have().clone();
        let file = Arc::new(Mutex::new(self.file));
        let store = Store::Partial(file.clone());
        let mut links = Links::new(store, geometry.chunk_size().bytes(), None, events.clone());
        links.add(PeerId::COORDINATOR, self.coordinator, None);
        let addresses = self.network.addresses.clone();
        let mut peer = Peer::new(self.mode, geometry, have, addresses, self.seed);
        if !self.upload {
            peer.receive_only();
        }
        let mut runner = Runner {
            peer,
            links,
            neighbours: Neighbours::new(self.network, events),
            start: Instant::now(),
            progress: self.progress,
            requested: HashMap::new(),
            got: Got::default(),
            gave_up: false,
            file,
        };
        let result = runner.run(inbox, stop).await;
        let file = runner.file.clone();
        // After a failure, too: what has come is not lost.
        let synced = spawn_blocking(move || lock(&file).sync()).await;
        result?;
        synced.map_err(|_| GetError::CoordinatorLost)??;
        Ok(runner.got)
    }
}

struct Runner {
    peer: Peer,
    links: Links,
    neighbours: Neighbours,
    start: Instant,
    progress: Sender<Progress>,
    /// The moments at which chunks were requested that are still missing.
    requested: HashMap<u32, Instant>,
    got: Got,
    /// The link to the coordinator was ended here.
    gave_up: bool,
    file: Arc<Mutex<PartialFile>>,
}

impl Runner {
    async fn run(
        &mut self,
        mut inbox: Receiver<Event>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), GetError> {
        self.handle(Input::Linked(PeerId::COORDINATOR));
        let mut stop = std::pin::pin!(stop);
        let mut finishing: Option<JoinHandle<_>> = None;
        let mut complete = false;
        let mut accepts = true;
        loop {
            let has_all = self.peer.is_complete();
            if has_all && !complete && finishing.is_none() {
                let file = self.file.clone();
                finishing = Some(spawn_blocking(move || finish(&file)));
            }
            if !has_all && !self.links.contains(PeerId::COORDINATOR) {
                return Err(match self.gave_up {
                    true => GetError::WrongContent,
                    false => GetError::CoordinatorLost,
                });
            }
            if let Some(lost) = self.peer.lost() {
                return Err(GetError::Lost(lost));
            }
            let due = self.peer.next_timeout().map(|due| (self.start + due).into());
            let timeout = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let finished = async {
                match &mut finishing {
                    Some(running) => running.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                finished = finished => {
                    self.got.renamed = finished.map_err(|_| GetError::Interrupted)??;
                    (complete, finishing) = (true, None);
                    self.report(Progress::Complete);
                }
                event = inbox.recv() => if let Some(event) = event {
                    self.happen(event)?;
                },
                () = timeout => {
                    self.peer.handle_timeout(self.start.elapsed());
                    self.settle();
                }
                connection = self.neighbours.network.incoming.recv(),
                    if accepts && self.neighbours.has_room() => match connection {
                    Some(connection) => self.neighbours.accept(connection),
                    None if has_all => accepts = false,
                    None => return Err(GetError::CoordinatorLost),
                },
                Some(_) = self.neighbours.accepting.join_next() => {}
                Some(_) = self.neighbours.dials.join_next() => {}
                () = &mut stop, if complete => return Ok(()),
            }
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), GetError> {
        match event {
            Event::Message(from, message) => self.handle(Input::Message(from, message)),
            Event::Chunk { from, index, bytes, stored, content: _ } => {
                self.chunk(from, index, bytes, stored)?
            }
            Event::Sent { to, index, bytes, read: _ } => {
                // What cannot be read is not sent; the other side asks elsewhere.
                self.got.sent += bytes;
                self.handle(Input::Sent { to, index });
            }
            Event::Linked(peer, link) if self.neighbours.contains(peer) => self.link(peer, link),
            Event::Unlinked(peer, serial) => {
                if serial > 0 && !self.links.remove(peer, Some(serial)) {
                    return Ok(());
                }
                if peer == PeerId::COORDINATOR && !self.peer.is_complete() {
                    return Err(GetError::CoordinatorLost);
                }
                if serial > 0 && self.relink(peer) {
                    return Ok(());
                }
                if !self.links.contains(peer) {
                    self.neighbours.remove(peer);
                    self.handle(Input::Unlinked(peer));
                    self.report(Progress::Neighbours(self.peer.neighbours()));
                }
            }
            Event::Incoming(identity, link) => self.incoming(identity, link),
            Event::Linked(..) | Event::Loaded(..) | Event::Joined { .. } | Event::Status(..) => {}
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        from: PeerId,
        index: u32,
        bytes: u64,
        stored: Result<bool, ContentError>,
    ) -> Result<(), GetError> {
        let identity = self.neighbours.identity(from);
        let good = stored?;
        let took = self.requested.remove(&index).map_or(Duration::ZERO, |at| at.elapsed());
        if good && !self.peer.have().contains(index) {
            *self.got.received.entry(identity).or_default() += bytes;
            self.report(Progress::Chunk { index, bytes, from: identity, took });
        }
        if let (false, Some(identity)) = (good, identity) {
            self.report(Progress::Wrong(identity));
        }
        self.handle(Input::Chunk { from, index, good });
        Ok(())
    }

    fn handle(&mut self, input: Input) {
        self.peer.handle(self.start.elapsed(), input);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.peer.poll() {
            match output {
                Output::Send(to, message) => {
                    let now = Instant::now();
                    self.requested.extend(message.requests().map(|index| (index, now)));
                    if !self.links.send(to, &message) && self.links.remove(to, None) {
                        self.peer.handle(self.start.elapsed(), Input::Unlinked(to));
                    }
                }
                Output::SendChunk { to, index, levels } => {
                    if !self.links.send_chunk(to, index, levels) {
                        self.peer.handle(self.start.elapsed(), Input::Sent { to, index });
                    }
                }
                Output::Connect { peer, identity, addresses } => {
                    let identity = Identity::from_bytes(identity);
                    self.neighbours.connect(peer, identity, addresses);
                }
                Output::Allow { peer, identity, addresses } => {
                    self.allow(peer, Identity::from_bytes(identity), addresses);
                }
                Output::Disconnect(peer) => {
                    self.gave_up |= peer == PeerId::COORDINATOR;
                    self.links.remove(peer, None);
                    self.neighbours.remove(peer);
                }
                // A peer has no cache.
                Output::Load(_) | Output::Keep { .. } | Output::Evict(_) => {}
            }
        }
    }

    fn report(&self, progress: Progress) {
        let _ = self.progress.try_send(progress);
    }
}
