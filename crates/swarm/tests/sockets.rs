//! Shares over real sockets on loopback: every byte passes through sessions, hash trees and files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Identity, SecretKey, SystemRandom};
use levada_session::{
    Class, ClientConfig, Connection, Options, ServerConfig, SessionError, accept, connect,
};
use levada_swarm::content::{PartialFile, Source};
use levada_swarm::driver::{
    Dial, Get, GetError, Got, Link, Network, Progress, Share, ShareOptions,
};
use levada_swarm::mediated::Settings;
use levada_swarm::mode::Mode;
use levada_swarm::{ChunkSize, ContentId, Description, UdpStream};
use levada_transport::{Tcp, Transport, connect_tcp};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

#[path = "sockets/completion.rs"]
mod completion;
#[path = "sockets/second_attempt.rs"]
mod second_attempt;
#[path = "sockets/udp.rs"]
mod udp;

const LIMIT: Duration = Duration::from_secs(120);

fn key() -> SecretKey {
    SecretKey::generate(&SystemRandom).unwrap()
}

/// Accepts connections with `key`; returns them, and where it listens.
async fn listen(key: &SecretKey) -> (mpsc::Receiver<Connection>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = ServerConfig::new(key).unwrap();
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let transport = Box::new(Tcp::new(socket).unwrap());
            let Ok(connection) = accept(transport, &config, Options::default()).await else {
                continue;
            };
            if sender.send(connection).await.is_err() {
                return;
            }
        }
    });
    (receiver, address)
}

async fn dial(
    config: Arc<ClientConfig>,
    identity: Identity,
    addresses: Vec<String>,
) -> Result<Connection, SessionError> {
    let tcp = connect_tcp(&addresses[0], Duration::from_secs(5)).await;
    let tcp = tcp.map_err(|error| SessionError::Transport(error.to_string()))?;
    connect(Box::new(tcp), &config, Some(identity), Options::default()).await
}

struct Coordinator {
    share: Arc<Share>,
    key: SecretKey,
    identity: Identity,
    address: String,
}

impl Coordinator {
    async fn start(path: &Path, mode: Mode, udp: Option<UdpStream>) -> Self {
        let source = Source::open(&[path.to_owned()], ChunkSize::DEFAULT).unwrap();
        let share = Arc::new(Share::start(
            Arc::new(source),
            ShareOptions { name: "film".into(), mode, udp, upload_limit: None, seed: 1 },
        ));
        let key = key();
        let (mut incoming, address) = listen(&key).await;
        let serving = share.clone();
        tokio::spawn(async move {
            while let Some(connection) = incoming.recv().await {
                serve_connection(serving.clone(), connection);
            }
        });
        Self { share, identity: key.identity(), key, address }
    }
}

fn serve_connection(share: Arc<Share>, connection: Connection) {
    tokio::spawn(async move {
        let mut control = connection.accept().await.unwrap();
        let mut data = connection.accept().await.unwrap();
        control.receive(1).await.unwrap();
        data.receive(1).await.unwrap();
        let _ = share.serve(connection.peer(), Link { control, data }).await;
    });
}

struct Peer {
    key: SecretKey,
    target: PathBuf,
}

/// A running download.
struct Running {
    task: JoinHandle<Result<Got, GetError>>,
    stop: oneshot::Sender<()>,
    progress: mpsc::Receiver<Progress>,
}

impl Peer {
    fn new(folder: &Path, name: &str) -> Self {
        Self { key: key(), target: folder.join(name) }
    }

    async fn get(&self, coordinator: &Coordinator, id: ContentId) -> Running {
        self.get_as(coordinator, id, true).await
    }

    async fn get_as(&self, coordinator: &Coordinator, id: ContentId, upload: bool) -> Running {
        let (incoming, address) = listen(&self.key).await;
        let config = Arc::new(ClientConfig::new(&self.key).unwrap());
        let dial: Dial = Arc::new(move |identity, addresses| {
            Box::pin(dial(config.clone(), identity, addresses))
        });
        let network = Network { dial, udp: None, incoming, addresses: vec![address] };
        self.get_in(coordinator, id, upload, network).await
    }

    async fn get_in(
        &self,
        coordinator: &Coordinator,
        id: ContentId,
        upload: bool,
        network: Network,
    ) -> Running {
        let (mut link, description) = self.join_by_tcp(coordinator).await;
        if description.udp.is_some() {
            link = link.together().await.unwrap();
        }
        self.get_by(link, &description, id, upload, network)
    }

    async fn join_by_tcp(&self, coordinator: &Coordinator) -> (Link, Description) {
        let tcp = connect_tcp(&coordinator.address, Duration::from_secs(5)).await.unwrap();
        self.join(Box::new(tcp), coordinator).await
    }

    /// A session with the coordinator over this transport.
    async fn join(
        &self,
        transport: Box<dyn Transport>,
        coordinator: &Coordinator,
    ) -> (Link, Description) {
        let config = ClientConfig::new(&self.key).unwrap();
        let expected = Some(coordinator.identity);
        let connection = connect(transport, &config, expected, Options::default()).await.unwrap();
        let mut control = connection.open(Class::Interactive).unwrap();
        let mut data = connection.open(Class::Bulk).unwrap();
        control.send(b"c").await.unwrap();
        data.send(b"d").await.unwrap();
        let description = control.receive(258).await.unwrap().unwrap();
        let description = Description::decode(&description).unwrap();
        assert_eq!(description.name, Path::new("film"));
        (Link { control, data }, description)
    }

    fn get_by(
        &self,
        link: Link,
        description: &Description,
        id: ContentId,
        upload: bool,
        network: Network,
    ) -> Running {
        let mode = if description.is_mediated {
            Mode::Mediated(Settings::default())
        } else {
            Mode::Direct
        };
        let (progress, reports) = mpsc::channel(10_000);
        let get = Get {
            coordinator: link,
            mode,
            file: PartialFile::open(&self.target, id).unwrap(),
            network,
            progress,
            seed: 7,
            upload,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(get.run(async { drop(stopped.await) }));
        Running { task, stop, progress: reports }
    }
}

impl Running {
    /// Waits until all chunks are there; the peer goes on providing them. Returns the peers that
    /// have sent wrong chunks.
    async fn completed(&mut self) -> Vec<Identity> {
        let mut wrong = Vec::new();
        let wait = async {
            loop {
                match self.progress.recv().await {
                    Some(Progress::Complete) => return,
                    Some(Progress::Wrong(identity)) => wrong.push(identity),
                    Some(Progress::Chunk { .. } | Progress::Neighbours(_)) => {}
                    None => panic!("the download has failed: {:?}", (&mut self.task).await),
                }
            }
        };
        tokio::time::timeout(LIMIT, wait).await.unwrap();
        wrong
    }

    async fn stop(self) -> Got {
        let _ = self.stop.send(());
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap().unwrap()
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

async fn shared(folder: &Path, length: usize) -> (Vec<u8>, Coordinator, ContentId) {
    shared_in(Mode::Direct, folder, length).await
}

async fn shared_in(mode: Mode, folder: &Path, length: usize) -> (Vec<u8>, Coordinator, ContentId) {
    let path = folder.join("source");
    let content = bytes(length);
    fs::write(&path, &content).unwrap();
    let coordinator = Coordinator::start(&path, mode, None).await;
    let id = coordinator.share.id();
    (content, coordinator, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_peer_has_the_file() {
    for (peers, length) in [(1, 0), (1, 1), (2, 100_000), (1, 10_000_000), (10, 3_000_000)] {
        let folder = tempfile::tempdir().unwrap();
        let (content, coordinator, id) = shared(folder.path(), length).await;
        let mut running = Vec::new();
        for number in 0..peers {
            let peer = Peer::new(folder.path(), &number.to_string());
            running.push((peer.get(&coordinator, id).await, peer));
        }
        for (download, peer) in &mut running {
            assert!(download.completed().await.is_empty());
            assert!(fs::read(&peer.target).unwrap() == content, "{peers} {length}");
        }
        for (download, _) in running {
            let got = download.stop().await;
            assert_eq!(got.received.values().sum::<u64>(), length as u64);
        }
        // The source, the files, and nothing else.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), peers + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_only_receives_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared(folder.path(), 3_000_000).await;
    let [first, second] = ["first", "second"].map(|name| Peer::new(folder.path(), name));
    let mut receiving = first.get_as(&coordinator, id, false).await;
    assert!(receiving.completed().await.is_empty());
    let mut later = second.get(&coordinator, id).await;
    assert!(later.completed().await.is_empty());
    assert!(fs::read(&second.target).unwrap() == content);
    let got = later.stop().await;
    assert_eq!(got.received.get(&None), Some(&3_000_000));
    assert_eq!(receiving.stop().await.sent, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_download_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared(folder.path(), 20_000_000).await;
    let peer = Peer::new(folder.path(), "file");
    let mut running = peer.get(&coordinator, id).await;
    for _ in 0..100 {
        running.progress.recv().await.unwrap();
    }
    running.task.abort();
    let _ = running.task.await;
    // A write in the blocking pool may still hold the file.
    let again = loop {
        match PartialFile::open(&peer.target, id) {
            Ok(file) => break file,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let chunks = again.have().runs().flatten().map(|index| id.geometry.range(index));
    let kept: u64 = chunks.map(|range| range.end - range.start).sum();
    drop(again);
    assert!(kept > 0);
    let mut running = peer.get(&coordinator, id).await;
    running.completed().await;
    let got = running.stop().await;
    assert_eq!(got.received.values().sum::<u64>(), 20_000_000 - kept);
    assert!(fs::read(&peer.target).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_are_noticed_and_their_sender_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared(folder.path(), 5_000_000).await;
    let first = Peer::new(folder.path(), "first");
    let mut providing = first.get(&coordinator, id).await;
    providing.completed().await;
    // It goes on providing from a file that has changed.
    fs::write(&first.target, vec![0; content.len()]).unwrap();
    let mut others = Vec::new();
    for name in ["second", "third"] {
        let peer = Peer::new(folder.path(), name);
        others.push((peer.get(&coordinator, id).await, peer));
    }
    for (running, peer) in &mut others {
        let wrong = running.completed().await;
        assert!(wrong.iter().all(|identity| *identity == first.key.identity()), "{wrong:?}");
        assert!(fs::read(&peer.target).unwrap() == content);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_has_changed_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared(folder.path(), 1_000_000).await;
    fs::write(folder.path().join("source"), vec![0; content.len()]).unwrap();
    let running = Peer::new(folder.path(), "file").get(&coordinator, id).await;
    let result = tokio::time::timeout(LIMIT, running.task).await.unwrap().unwrap();
    let lost = match result {
        Err(GetError::Lost(lost)) => lost,
        other => panic!("{other:?}"),
    };
    assert_eq!((lost.len(), &lost[0]), (1, &(0..16)));
    let status = coordinator.share.status().await;
    assert!(
        status.unreadable.iter().all(|(_, reason)| reason.contains("has changed")),
        "{status:?}"
    );
    assert!(!status.unreadable.is_empty());
}

fn mediated(replicas: usize) -> Mode {
    Mode::Mediated(Settings { replicas, cache: 8, ..Settings::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_peer_has_the_file_by_the_coordinator() {
    for (peers, length) in [(1, 0), (1, 1), (2, 100_000), (8, 3_000_000)] {
        let folder = tempfile::tempdir().unwrap();
        let (content, coordinator, id) = shared_in(mediated(2), folder.path(), length).await;
        let mut running = Vec::new();
        for number in 0..peers {
            let peer = Peer::new(folder.path(), &number.to_string());
            running.push((peer.get(&coordinator, id).await, peer));
        }
        for (download, peer) in &mut running {
            assert!(download.completed().await.is_empty());
            assert!(fs::read(&peer.target).unwrap() == content, "{peers} {length}");
        }
        let counters = coordinator.share.status().await.counters;
        let chunks = u64::from(id.geometry.chunks());
        assert_eq!((counters.loads, counters.source_reads), (chunks, 0));
        assert_eq!(counters.sent, chunks * peers as u64);
        for (download, _) in running {
            let got = download.stop().await;
            assert_eq!(
                got.received,
                HashMap::from_iter((length > 0).then_some((None, length as u64)))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers_replace_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared_in(mediated(2), folder.path(), 3_000_000).await;
    let mut providing = Vec::new();
    for name in ["first", "second"] {
        let peer = Peer::new(folder.path(), name);
        providing.push(peer.get(&coordinator, id).await);
    }
    for running in &mut providing {
        running.completed().await;
    }
    fs::remove_file(folder.path().join("source")).unwrap();
    // One leaves, and the other still has all.
    providing.pop().unwrap().stop().await;
    let late = Peer::new(folder.path(), "late");
    let mut running = late.get(&coordinator, id).await;
    running.completed().await;
    assert!(fs::read(&late.target).unwrap() == content);
    let status = coordinator.share.status().await;
    assert_eq!((status.counters.source_reads, status.unreadable), (0, vec![]));
    let got = providing.pop().unwrap().stop().await;
    assert!(got.sent >= content.len() as u64 - 8 * 65_536, "{got:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_of_wrong_bytes_is_expelled_and_the_source_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared_in(mediated(1), folder.path(), 3_000_000).await;
    let first = Peer::new(folder.path(), "first");
    let mut providing = first.get(&coordinator, id).await;
    providing.completed().await;
    fs::write(&first.target, vec![0; content.len()]).unwrap();
    let second = Peer::new(folder.path(), "second");
    let mut running = second.get(&coordinator, id).await;
    assert!(running.completed().await.is_empty());
    assert!(fs::read(&second.target).unwrap() == content);
    let status = coordinator.share.status().await;
    assert_eq!(status.expelled, [first.key.identity()]);
    assert!(status.counters.source_reads > 0, "{status:?}");
}
