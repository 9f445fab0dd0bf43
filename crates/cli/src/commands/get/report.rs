//! What `levada get` prints: a progress bar, or JSON events, and a summary.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use levada_core::{Identity, format_duration, format_size};
use levada_swarm::driver::{Got, Progress as Event};
use levada_swarm::{Geometry, UdpStream};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::directory::{named, short};
use crate::failure::Failure;
use crate::output::{self, plain};
use crate::progress::Progress;

/// Events that wait to be shown; more are not shown.
const QUEUE: usize = 4096;
/// The time between two reports.
const INTERVAL: Duration = Duration::from_millis(500);
/// So many peers are named while a download runs: those that have sent most.
const TOP: usize = 3;

/// Reports of one download, over all its attempts.
pub struct Report {
    state: Arc<Mutex<State>>,
    json: bool,
    start: Instant,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    length: u64,
    /// Bytes that are there.
    have: u64,
    /// Bytes received from each party; None is the node.
    received: HashMap<Option<Identity>, u64>,
    neighbours: usize,
    completed: Option<Instant>,
}

impl State {
    fn total(&self) -> u64 {
        self.received.values().sum()
    }

    fn bytes_of_node(&self) -> u64 {
        self.received.get(&None).copied().unwrap_or_default()
    }

    /// The peers that have sent most, with the bytes from each.
    fn top_peers(&self) -> Vec<(Identity, u64)> {
        let peers = self.received.iter().filter_map(|(peer, bytes)| Some(((*peer)?, *bytes)));
        let mut peers: Vec<_> = peers.collect();
        peers.sort_by_key(|(peer, bytes)| (Reverse(*bytes), *peer.as_bytes()));
        peers.truncate(TOP);
        peers
    }

    /// What came from whom, for the end of the bar.
    fn shares(&self) -> String {
        let peers = self.top_peers().into_iter();
        let peers =
            peers.map(|(peer, bytes)| format!(", {} from {}", format_size(bytes), short(&peer)));
        let peers: String = peers.collect();
        format!(
            ", {} peers: {} from the node{peers}",
            self.neighbours,
            format_size(self.bytes_of_node())
        )
    }
}

impl Report {
    pub fn new(json: bool) -> Self {
        Self { state: Arc::default(), json, start: Instant::now(), task: Mutex::default() }
    }

    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        lock(&self.state).total()
    }

    /// Returns true if something was received, and not all.
    pub fn is_interrupted(&self) -> bool {
        let state = lock(&self.state);
        state.have > 0 && state.completed.is_none()
    }

    /// Begins to report an attempt, with the sender for its events. `udp` is the stream to the node
    /// that goes by UDP.
    pub fn start(
        &self,
        name: &str,
        geometry: Geometry,
        chunks: u32,
        udp: Option<UdpStream>,
    ) -> Sender<Event> {
        let (sender, events) = channel(QUEUE);
        let length = geometry.length();
        let chunk = u64::from(geometry.chunk_size().bytes());
        let have = (u64::from(chunks) * chunk).min(length);
        {
            let mut state = lock(&self.state);
            (state.length, state.have, state.neighbours) = (length, have, 0);
        }
        if self.json {
            let over = |stream| if udp == Some(stream) { "udp" } else { "tcp" };
            print(json!({
                "event": "started", "name": name, "length": length, "have": have,
                "transport": {
                    "control": over(UdpStream::Control), "data": over(UdpStream::Data),
                },
            }));
        }
        let bar = (!self.json).then(|| Progress::of_share(name, length));
        let task = tokio::spawn(follow(events, self.state.clone(), bar, self.start));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        sender
    }

    /// Waits until all events of an attempt, whose sender is dropped, are shown.
    pub async fn stop(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }

    /// All is there, and others may fetch from here for `time`.
    pub fn seeding(&self, path: &Path, time: Duration) {
        let seconds = time.as_secs();
        match self.json {
            true => print(json!({ "event": "seeding", "path": path, "seconds": seconds })),
            false => output::note(format_args!(
                "{} is complete; others may fetch from here for {}",
                path.display(),
                format_duration(time)
            )),
        }
    }

    /// The end of a download.
    pub fn complete(&self, path: &Path, got: &Got) -> Result<(), Failure> {
        let state = lock(&self.state);
        let from_node = state.bytes_of_node();
        let peers: Vec<(String, u64)> = state
            .received
            .iter()
            .filter_map(|(peer, bytes)| Some((peer.as_ref()?.to_string(), *bytes)))
            .collect();
        let end = state.completed.unwrap_or_else(Instant::now);
        let seconds = (end - self.start).as_secs_f64();
        if self.json {
            let received: Value =
                peers.iter().map(|(peer, bytes)| (peer.clone(), json!(bytes))).collect();
            return output::json(json!({
                "event": "complete", "path": path, "length": state.length, "seconds": seconds,
                "from_node": from_node, "from_peers": received, "sent": got.sent,
            }));
        }
        output::data(plain(&path.display().to_string()))?;
        let from_peers: u64 = peers.iter().map(|(_, bytes)| bytes).sum();
        output::note(format_args!(
            "{} in {}: {} from the node, {} from {} other peer{}; {} sent to others",
            format_size(state.total()),
            format_duration(end - self.start),
            format_size(from_node),
            format_size(from_peers),
            peers.len(),
            if peers.len() == 1 { "" } else { "s" },
            format_size(got.sent),
        ));
        Ok(())
    }
}

/// Counts events, and shows them from time to time.
async fn follow(
    mut events: Receiver<Event>,
    state: Arc<Mutex<State>>,
    bar: Option<Progress>,
    start: Instant,
) {
    let mut ticks = interval(INTERVAL);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => count(&state, event, bar.is_none()),
                None => break,
            },
            _ = ticks.tick() => show(&state, bar.as_ref(), start),
        }
    }
    show(&state, bar.as_ref(), start);
}

fn count(state: &Mutex<State>, event: Event, is_json: bool) {
    let mut state = lock(state);
    match event {
        Event::Chunk { bytes, from, .. } => {
            state.have += bytes;
            *state.received.entry(from).or_default() += bytes;
        }
        Event::Neighbours(count) => state.neighbours = count,
        Event::Wrong(peer) if is_json => {
            print(json!({ "event": "wrong", "peer": peer.to_string() }));
        }
        Event::Wrong(peer) => {
            output::note(format_args!(
                "{} has sent wrong bytes, and is not asked again",
                named(&peer)
            ));
        }
        Event::Complete => state.completed = Some(Instant::now()),
    }
}

fn show(state: &Mutex<State>, bar: Option<&Progress>, start: Instant) {
    let state = lock(state);
    match bar {
        Some(bar) => {
            bar.set(state.have);
            bar.set_note(&state.shares());
        }
        None => {
            let top = state.top_peers().into_iter();
            let top: Value = top.map(|(peer, bytes)| (peer.to_string(), json!(bytes))).collect();
            print(json!({
                "event": "progress", "have": state.have, "length": state.length,
                "peers": state.neighbours, "received": state.total(),
                "from_node": state.bytes_of_node(), "top_peers": top,
                "seconds": start.elapsed().as_secs_f64(),
            }));
        }
    }
}

/// Prints an event. If it cannot be printed, the download goes on; the end reports it.
fn print(event: Value) {
    let _ = output::json(event);
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_that_have_sent_most_are_named() {
        let peers: Vec<Identity> = (1..=5).map(|byte| Identity::from_bytes([byte; 32])).collect();
        let received = peers.iter().zip([2_000, 0, 5_000_000, 3_000, 1_000]);
        let mut state = State { neighbours: 5, ..State::default() };
        state.received.extend(received.map(|(peer, bytes)| (Some(*peer), bytes)));
        state.received.insert(None, 7);
        assert_eq!(
            state.top_peers(),
            [(peers[2], 5_000_000), (peers[3], 3_000), (peers[0], 2_000)]
        );
        let shown = state.shares();
        let first = format!(", 5 peers: 7 bytes from the node, 5.0 MB from {}", peers[2].short());
        assert!(shown.starts_with(&first), "{shown}");
    }
}
