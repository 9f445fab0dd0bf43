//! Two, ten and, in full, a hundred peers have the same file in the end.

use super::*;

/// A hundred only with `LEVADA_TEST_FULL` (`scripts/test --all`).
fn counts() -> &'static [usize] {
    if std::env::var_os("LEVADA_TEST_FULL").is_some() { &[2, 10, 100] } else { &[2, 10] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_peer_has_the_file_each_time_in_both_modes() {
    for mode in [Mode::Direct, mediated(2)] {
        for peers in counts() {
            for _ in 0..3 {
                all_complete(mode, *peers).await;
            }
        }
    }
}

async fn all_complete(mode: Mode, peers: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared_in(mode, folder.path(), 1_000_000).await;
    let root = blake3::hash(&content);
    let mut running = Vec::new();
    for number in 0..peers {
        let peer = Peer::new(folder.path(), &number.to_string());
        running.push((peer.get(&coordinator, id).await, peer));
    }
    for (download, peer) in &mut running {
        assert!(download.completed().await.is_empty());
        assert_eq!(blake3::hash(&fs::read(&peer.target).unwrap()), root, "{mode:?} {peers}");
    }
    for (download, _) in running {
        let got = download.stop().await;
        assert_eq!(got.received.values().sum::<u64>(), content.len() as u64);
    }
}
