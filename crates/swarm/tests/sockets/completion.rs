//! Two, ten and, in full, a hundred peers have the same file in the end, whichever stream goes by
//! UDP.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicUsize;

use levada_transport::quic::{Endpoint, QuicOptions};

use super::*;

/// A hundred, and all three runs, only with `LEVADA_TEST_FULL` (`scripts/test --all`).
fn counts() -> (&'static [usize], usize) {
    match std::env::var_os("LEVADA_TEST_FULL") {
        Some(_) => (&[2, 10, 100], 3),
        None => (&[2, 10], 1),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_peer_has_the_file_in_both_modes_by_tcp() {
    every_peer_has_the_file(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_peer_has_the_file_in_both_modes_with_data_by_udp() {
    every_peer_has_the_file(Some(UdpStream::Data)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_peer_has_the_file_in_both_modes_with_control_by_udp() {
    every_peer_has_the_file(Some(UdpStream::Control)).await;
}

async fn every_peer_has_the_file(udp: Option<UdpStream>) {
    let (counts, runs) = counts();
    for mode in [Mode::Direct, mediated(2)] {
        for peers in counts {
            for _ in 0..runs {
                all_complete(mode, *peers, udp).await;
            }
        }
    }
}

async fn all_complete(mode: Mode, peers: usize, udp: Option<UdpStream>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source");
    let content = bytes(1_000_000);
    fs::write(&path, &content).unwrap();
    let coordinator = Coordinator::start(&path, mode, udp).await;
    let id = coordinator.share.id();
    let root = blake3::hash(&content);
    let by_quic = match udp {
        Some(_) => Some(udp::serve(&coordinator).await),
        None => None,
    };
    let mut running = Vec::new();
    for number in 0..peers {
        let peer = Peer::new(folder.path(), &number.to_string());
        running.push((get(&peer, &coordinator, id, udp.zip(by_quic)).await, peer));
    }
    for (download, peer) in &mut running {
        assert!(download.completed().await.is_empty());
        let received = blake3::hash(&fs::read(&peer.target).unwrap());
        assert_eq!(received, root, "{mode:?} {peers} {udp:?}");
    }
    let over_udp = coordinator.share.status().await.over_udp;
    assert_eq!(over_udp.len(), if udp.is_some() { peers } else { 0 });
    for (download, _) in running {
        let got = download.stop().await;
        assert_eq!(got.received.values().sum::<u64>(), content.len() as u64);
    }
}

/// With `udp`, the link to the coordinator has that stream over QUIC, to this address, and so have
/// links to other peers.
async fn get(
    peer: &Peer,
    coordinator: &Coordinator,
    id: ContentId,
    udp: Option<(UdpStream, SocketAddr)>,
) -> Running {
    let Some((udp, address)) = udp else { return peer.get(coordinator, id).await };
    let network = udp::network(&peer.key, udp, false, Arc::new(AtomicUsize::new(0))).await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (endpoint, _) = Endpoint::new(socket, QuicOptions::default()).unwrap();
    let quic = endpoint.connect(address, LIMIT).await.unwrap();
    let quic = peer.join(Box::new(quic), coordinator).await.0;
    let (tcp, description) = peer.join_by_tcp(coordinator).await;
    assert_eq!(description.udp, Some(udp));
    let link = Link::split(tcp, quic, udp).await.unwrap();
    peer.get_by(link, &description, id, true, network)
}
