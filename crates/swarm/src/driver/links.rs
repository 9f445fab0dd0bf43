//! The streams to other parties, and the tasks that read and write them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use levada_session::{ReceiveHalf, SendHalf, StreamError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_blocking};

use super::events::Event;
use super::limit::UploadLimit;
use super::link::Link;
use super::store::Store;
use super::stored::Stored;
use crate::PeerId;
use crate::content::ContentError;
use crate::message::{ChunkHeader, MAX_HEADER, MAX_MESSAGE, Message};

/// Control messages that wait for one party. One that does not read them loses its link.
const CONTROL_QUEUE: usize = 4096;
/// Chunks that wait for one party: more than a state machine sends at a time.
const DATA_QUEUE: usize = 1024;
/// The most bytes of chunks that are read or stored at once; at least one chunk is.
const BATCH: u32 = 1 << 20;

/// All links of one party.
pub(super) struct Links {
    open: HashMap<PeerId, OpenLink>,
    disk: Disk,
    /// The longest message of a data stream.
    most: usize,
    received: Sender<Received>,
    storing: AbortHandle,
    events: Sender<Event>,
    serial: u64,
}

struct OpenLink {
    serial: u64,
    /// Encoded messages, which take less memory while none waits.
    control: Sender<Vec<u8>>,
    data: Sender<(u32, u8)>,
    tasks: [AbortHandle; 5],
}

impl Drop for Links {
    fn drop(&mut self) {
        self.storing.abort();
    }
}

/// How chunks are read and written.
#[derive(Clone)]
struct Disk {
    store: Store,
    limit: Arc<UploadLimit>,
    /// How many chunks are read or written at once.
    batch: usize,
}

/// Dropping it resets the streams.
impl Drop for OpenLink {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Links {
    /// `upload_limit`: the most bytes of chunks that are sent in a second, on all links together.
    pub(super) fn new(
        store: Store,
        chunk_bytes: u32,
        upload_limit: Option<u64>,
        events: Sender<Event>,
    ) -> Self {
        let most = chunk_bytes as usize + MAX_HEADER;
        let limit = Arc::new(UploadLimit::new(upload_limit));
        let batch = (BATCH / chunk_bytes.max(1)).clamp(1, 16) as usize;
        let disk = Disk { store, limit, batch };
        let (received, waiting) = channel(batch);
        let storing = tokio::spawn(store_received(waiting, disk.clone(), events.clone()));
        let storing = storing.abort_handle();
        Self { open: HashMap::new(), disk, most, received, storing, events, serial: 0 }
    }

    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.open.contains_key(&peer)
    }

    /// Starts the tasks of a link, which replaces an earlier one. With `alive`, the link ends when
    /// the receiver of that is dropped, and drops it when it ends.
    pub(super) fn add(&mut self, peer: PeerId, link: Link, alive: Option<oneshot::Sender<()>>) {
        self.serial += 1;
        let serial = self.serial;
        let (control, messages) = channel(CONTROL_QUEUE);
        let (data, chunks) = channel(DATA_QUEUE);
        for stream in [&link.control, &link.data] {
            stream.share_uplink();
        }
        let (control_out, control_in) = link.control.split();
        let (data_out, data_in) = link.data.split();
        let task =
            |events: Sender<Event>,
             work: std::pin::Pin<Box<dyn Future<Output = Option<()>> + Send>>| {
                let task = tokio::spawn(async move {
                    work.await;
                    let _ = events.send(Event::Unlinked(peer, serial)).await;
                });
                task.abort_handle()
            };
        let events = || self.events.clone();
        let tasks = [
            task(events(), Box::pin(write_control(control_out, messages))),
            task(events(), Box::pin(read_control(peer, control_in, events()))),
            task(
                events(),
                Box::pin(write_data(peer, data_out, chunks, self.disk.clone(), events())),
            ),
            task(
                events(),
                Box::pin(async move {
                    match alive {
                        Some(mut alive) => alive.closed().await,
                        None => std::future::pending().await,
                    }
                    None
                }),
            ),
            task(events(), Box::pin(read_data(peer, data_in, self.most, self.received.clone()))),
        ];
        self.open.insert(peer, OpenLink { serial, control, data, tasks });
    }

    /// Ends a link. False if there is none, or if it is not the one with this serial number.
    pub(super) fn remove(&mut self, peer: PeerId, serial: Option<u64>) -> bool {
        let found = self
            .open
            .get(&peer)
            .is_some_and(|link| serial.is_none_or(|serial| link.serial == serial));
        found && self.open.remove(&peer).is_some()
    }

    /// Sends a message. False if the other side does not read.
    pub(super) fn send(&self, to: PeerId, message: &Message) -> bool {
        self.open.get(&to).is_none_or(|link| link.control.try_send(message.encode()).is_ok())
    }

    /// Sends a chunk. False if there is no link.
    pub(super) fn send_chunk(&self, to: PeerId, index: u32, levels: u8) -> bool {
        self.open.get(&to).is_some_and(|link| link.data.try_send((index, levels)).is_ok())
    }
}

async fn write_control(mut stream: SendHalf, mut messages: Receiver<Vec<u8>>) -> Option<()> {
    let mut all = Vec::new();
    while messages.recv_many(&mut all, 64).await > 0 {
        stream.send_all(&all).await.ok()?;
        all.clear();
    }
    None
}

async fn read_control(from: PeerId, mut stream: ReceiveHalf, events: Sender<Event>) -> Option<()> {
    while let Some(bytes) = stream.receive(MAX_MESSAGE).await.ok()? {
        let message = Message::decode(&bytes).ok()?;
        events.send(Event::Message(from, message)).await.ok()?;
    }
    None
}

/// Reads chunks, as many at once as wait, and sends them: in the blocking pool, unless they are in
/// memory.
async fn write_data(
    to: PeerId,
    mut stream: SendHalf,
    mut chunks: Receiver<(u32, u8)>,
    disk: Disk,
    events: Sender<Event>,
) -> Option<()> {
    let mut waiting = Vec::new();
    while chunks.recv_many(&mut waiting, disk.batch).await > 0 {
        let store = disk.store.clone();
        let wanted = std::mem::take(&mut waiting);
        let read = move || {
            let read = |(index, levels)| (index, store.read(index, levels));
            wanted.into_iter().map(read).collect::<Vec<_>>()
        };
        let all =
            if disk.store.is_in_memory() { read() } else { spawn_blocking(read).await.ok()? };
        for (index, read) in all {
            let (bytes, read) = match read {
                Ok(chunk) => {
                    let bytes = chunk.bytes.len() as u64;
                    disk.limit.take(bytes).await;
                    send_chunk(&mut stream, index, chunk).await.ok()?;
                    (bytes, Ok(()))
                }
                Err(error) => (0, Err(error)),
            };
            events.send(Event::Sent { to, index, bytes, read }).await.ok()?;
        }
    }
    None
}

async fn send_chunk(stream: &mut SendHalf, index: u32, chunk: Stored) -> Result<(), StreamError> {
    let Stored { provider, siblings, bytes } = chunk;
    let header = ChunkHeader { index, provider, siblings };
    stream.write(&header.encode(), false).await?;
    stream.write(&bytes, true).await
}

async fn read_data(
    from: PeerId,
    mut stream: ReceiveHalf,
    most: usize,
    received: Sender<Received>,
) -> Option<()> {
    while let Some(message) = stream.receive(most).await.ok()? {
        let (header, bytes) = ChunkHeader::decode(&message).ok()?;
        let start = message.len() - bytes.len();
        received.send(Received { from, header, message, start }).await.ok()?;
    }
    None
}

/// A chunk that has come, and waits to be stored.
struct Received {
    from: PeerId,
    header: ChunkHeader,
    message: Vec<u8>,
    /// Where its bytes begin in the message.
    start: usize,
}

/// Verifies and stores what all links have received, as much at once as waits: a hand-over to the
/// blocking pool costs as much as a chunk.
async fn store_received(mut received: Receiver<Received>, disk: Disk, events: Sender<Event>) {
    let mut waiting = Vec::new();
    while received.recv_many(&mut waiting, disk.batch).await > 0 {
        let store = disk.store.clone();
        let chunks = std::mem::take(&mut waiting);
        let work = move || {
            let stored = chunks.into_iter().map(|chunk| store_one(&store, chunk));
            stored.collect::<Vec<_>>()
        };
        let Ok(stored) = spawn_blocking(work).await else { return };
        for event in stored {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}

fn store_one(store: &Store, chunk: Received) -> Event {
    let bytes = &chunk.message[chunk.start..];
    let stored = match store.write(&chunk.header, bytes) {
        Ok(()) => Ok(true),
        Err(ContentError::BadChunk(_)) => Ok(false),
        Err(error) => Err(error),
    };
    let from = chunk.from;
    let index = chunk.header.index;
    let bytes = bytes.len() as u64;
    // Peers need it no longer.
    let content = match store {
        Store::Cache(_) => {
            let mut message = chunk.message;
            message.shrink_to_fit();
            Bytes::from(message).slice(chunk.start..)
        }
        Store::Source(_) | Store::Partial(_) => Bytes::new(),
    };
    Event::Chunk { from, index, bytes, stored, content }
}
