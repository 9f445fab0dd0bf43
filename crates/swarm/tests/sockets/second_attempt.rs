//! Connections between peers of which only one can reach the other, or of which both connect.

use std::future::pending;

use super::*;

/// How a peer connects to others.
#[derive(Clone, Copy)]
enum Reach {
    /// Its packets get no answer.
    Never,
    /// After so many milliseconds.
    After(u64),
}

async fn get(peer: &Peer, coordinator: &Coordinator, id: ContentId, reach: Reach) -> Running {
    let (incoming, address) = listen(&peer.key).await;
    let config = Arc::new(ClientConfig::new(&peer.key).unwrap());
    let dial: Dial = Arc::new(move |identity, addresses| {
        let config = config.clone();
        Box::pin(async move {
            match reach {
                Reach::Never => pending().await,
                Reach::After(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            }
            dial(config, identity, addresses).await
        })
    });
    let network = Network { dial, udp: None, incoming, addresses: vec![address] };
    peer.get_in(coordinator, id, true, network).await
}

/// Waits until all of this was reported, in any order.
async fn reported(running: &mut Running, mut wanted: Vec<Progress>) {
    let wait = async {
        while !wanted.is_empty() {
            let progress = running.progress.recv().await.unwrap();
            wanted.retain(|one| *one != progress);
        }
    };
    tokio::time::timeout(LIMIT, wait).await.unwrap();
}

/// The peer that joins later connects first.
async fn both_are_neighbours(earlier: Reach, later: Reach) {
    let folder = tempfile::tempdir().unwrap();
    let (content, coordinator, id) = shared(folder.path(), 3_000_000).await;
    let peers = ["earlier", "later"].map(|name| Peer::new(folder.path(), name));
    let mut first = get(&peers[0], &coordinator, id, earlier).await;
    assert!(first.completed().await.is_empty());
    let mut second = get(&peers[1], &coordinator, id, later).await;
    reported(&mut first, vec![Progress::Neighbours(1)]).await;
    reported(&mut second, vec![Progress::Neighbours(1), Progress::Complete]).await;
    assert!(fs::read(&peers[1].target).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_of_two_reaches_the_other_connects() {
    both_are_neighbours(Reach::Never, Reach::After(0)).await;
    both_are_neighbours(Reach::After(0), Reach::Never).await;
}

/// The second attempt begins after 250 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_connect_at_the_same_time_are_neighbours() {
    for millis in (245..255).step_by(2) {
        both_are_neighbours(Reach::After(0), Reach::After(millis)).await;
    }
}
