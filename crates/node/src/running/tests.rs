//! A node in this process, with a client of another home.

mod groups;

use super::*;
use crate::node::Node;
use levada_client::{Client, ClientError, RequestSpec, Target};
use levada_core::{Clock, SystemClock, UnixTime};
use std::sync::Arc;

struct Scene {
    folder: tempfile::TempDir,
    node: Arc<Node>,
    guest: Client,
    target: Target,
}

impl Scene {
    fn new() -> Self {
        Self::with(&Config::default())
    }

    fn with(config: &Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = |name| Home::at(&folder.path().join(name)).unwrap();
        let loopback = "127.0.0.1:0".parse().unwrap();
        let overrides =
            Overrides { listen: vec![loopback], http: Some(loopback), ..Overrides::default() };
        let assembled = assemble::assemble(&home("node"), config, &overrides, &[]).unwrap();
        let node = assembled.node;
        for listener in assembled.sockets.listeners {
            tokio::spawn(crate::server::serve(node.clone(), listener));
        }
        let guest = Client::new(&home("guest")).unwrap();
        let target = Target::typed(node.identity(), &node.network.listening[0].to_string());
        Self { folder, node, guest, target }
    }

    /// The time on disk.
    fn stored_time(&self) -> UnixTime {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        self.node.rights.store.snapshot(&copy).unwrap();
        let database = rusqlite::Connection::open(copy).unwrap();
        let sql = "SELECT time FROM clock";
        let time = database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        UnixTime(time.unsigned_abs())
    }

    /// Whether a new connection was resumed, and the result of a request on it. The node's metric
    /// is read, because a denied client may receive the denial before its handshake finishes.
    async fn request(&self) -> (bool, Result<(), ClientError>) {
        self.guest.close();
        let resumed = self.node.metrics.peers.handshakes(true);
        let before = resumed.get();
        let spec = RequestSpec { service: "clock".into(), ..RequestSpec::default() };
        let result = self.guest.request(&self.target, spec).await.map(drop);
        (resumed.get() > before, result)
    }
}

/// The policy changes while TLS tickets stay valid: the evaluation of a peer does not rely on their
/// invalidation.
#[tokio::test(flavor = "multi_thread")]
async fn the_peer_of_a_resumed_connection_is_evaluated_again() {
    let scene = Scene::new();
    let store = &scene.node.rights.store;
    let guest = scene.guest.identity();
    let now = SystemClock.now();
    let allow = |hash| {
        store.add_invitation(&hash, None, None, UnixTime::NEVER, now).unwrap();
        store.redeem(&hash, &guest, now).unwrap();
    };
    allow([1; 32]);
    assert!(matches!(scene.request().await, (false, Ok(()))));
    assert!(matches!(scene.request().await, (true, Ok(()))));

    store.disallow(&guest, None, now).unwrap();
    let (resumed, result) = scene.request().await;
    assert!(resumed && result.unwrap_err().to_string().contains("may not request"));

    allow([2; 32]);
    assert!(matches!(scene.request().await, (_, Ok(()))));
    store.block(&guest, now).unwrap();
    let (resumed, result) = scene.request().await;
    assert!(resumed && result.unwrap_err().to_string().contains("blocked"));
}

/// A capability that expires while the node runs stays expired if the clock goes back after the
/// stop.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_the_stop_is_stored() {
    let scene = Scene::new();
    let started = scene.stored_time();
    while SystemClock.now() <= started {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(scene.stored_time(), started);
    scene.node.end(crate::node::Ending::Stop);
    stop::shut_down(&scene.node).await;
    assert!(scene.stored_time() > started);
}

/// The runtime has one thread: if the client blocked it while it waits for the lock, the other
/// client would not be served, and the lock not be released, before the busy timeout; the address
/// would then not be stored.
#[tokio::test(flavor = "current_thread")]
async fn a_node_serves_others_while_a_client_in_its_process_waits_for_the_lock_of_known_db() {
    let scene = Scene::new();
    let guest = &scene.guest;
    let node = scene.node.identity();
    let target = scene.target.clone();
    let unused = "192.0.2.1:5382".to_owned();
    guest.known().pin("node", &node, &[unused], SystemClock.now()).unwrap();
    let lock = rusqlite::Connection::open(guest.known().path()).unwrap();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let other = Client::new(&Home::at(&scene.folder.path().join("other")).unwrap()).unwrap();
    let served = tokio::spawn(async move {
        other.query(&target, None).await.unwrap();
        lock.execute_batch("COMMIT").unwrap();
    });
    guest.query(&scene.target, None).await.unwrap();
    served.await.unwrap();
    let pin = guest.known().by_name("node").unwrap().unwrap();
    assert!(scene.target.addresses.contains(&pin.addresses[0]), "{:?}", pin.addresses);
}
