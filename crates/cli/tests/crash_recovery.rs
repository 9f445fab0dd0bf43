//! A node that is killed at any time loses no acknowledged grant, and nothing that was revoked or
//! used up becomes valid again. A proxy between client and node reports when the first bytes of an
//! operation have passed.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Home, STEP_TIMEOUT, in_full, own_loopback};
use levada_capability::Capability;
use levada_client::{Client, ClientError, RequestSpec, Target};
use levada_home::Home as ClientHome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The expected state of one capability.
struct Entry {
    capability: Capability,
    uses: usize,
    /// Acknowledged starts.
    started: usize,
    /// Starts without an answer: each may or may not have been counted.
    unanswered: usize,
    revoked: bool,
    /// A revocation was sent and not answered.
    revoking: bool,
}

/// Forwards to the node, and signals when the next bytes towards it have passed. While `hold` is
/// set, answers of the node are dropped.
struct Proxy {
    address: SocketAddr,
    armed: Arc<AtomicBool>,
    hold: Arc<AtomicBool>,
    passed: Arc<Notify>,
}

impl Proxy {
    async fn new(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let armed = Arc::new(AtomicBool::new(false));
        let passed = Arc::new(Notify::new());
        let hold = Arc::new(AtomicBool::new(false));
        let arm = armed.clone();
        let pass = passed.clone();
        let holds = hold.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(node) = TcpStream::connect(node).await else { continue };
                client.set_nodelay(true).unwrap();
                node.set_nodelay(true).unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_node, mut to_node) = node.into_split();
                let holds = holds.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = from_node.read(&mut buffer).await {
                        if holds.load(Ordering::SeqCst) {
                            while holds.load(Ordering::SeqCst) {
                                sleep(Duration::from_micros(100)).await;
                            }
                            return;
                        }
                        if to_client.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
                let arm = arm.clone();
                let pass = pass.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
                        if to_node.write_all(&buffer[..length]).await.is_err() {
                            break;
                        }
                        if arm.swap(false, Ordering::SeqCst) {
                            pass.notify_one();
                        }
                    }
                });
            }
        });
        Self { address, armed, hold, passed }
    }
}

struct Scene {
    node_home: Home,
    /// Where the node listens, after each start again.
    address: SocketAddr,
    client: Client,
    target: Target,
    proxy: Proxy,
    entries: Vec<Entry>,
    random: u64,
}

impl Scene {
    /// A pseudo-random number below `bound`: the same sequence in each run.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % bound
    }

    fn start_node(&self) -> Child {
        let listen = self.address.to_string();
        let allow = self.client.identity().to_string();
        let args = ["up", "--listen", &listen, "--http", "127.0.0.1:0", "--allow", &allow];
        let mut command = self.node_home.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    async fn wait_until_ready(&self) {
        let answers = async {
            while self.client.query(&self.target, None).await.is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(STEP_TIMEOUT, answers).await.expect("the node does not answer after its restart");
    }

    /// One operation; true if it was acknowledged.
    async fn act(&mut self) -> bool {
        let open: Vec<usize> =
            (0..self.entries.len()).filter(|at| !self.entries[*at].revoked).collect();
        match self.below(4) {
            0 | 1 if !open.is_empty() => {
                let at = open[self.below(open.len() as u64) as usize];
                self.start(at).await
            }
            2 if !open.is_empty() => {
                let at = open[self.below(open.len() as u64) as usize];
                self.revoke(at).await
            }
            _ => self.request().await,
        }
    }

    async fn request(&mut self) -> bool {
        let uses = 1 + self.below(3) as usize;
        let spec = RequestSpec { service: "clock".into(), uses: uses as u32, ..Default::default() };
        let Ok(capability) = self.client.request(&self.target, spec).await else { return false };
        self.entries.push(Entry {
            capability,
            uses,
            started: 0,
            unanswered: 0,
            revoked: false,
            revoking: false,
        });
        true
    }

    async fn start(&mut self, at: usize) -> bool {
        let outcome = self.client.connect(&self.entries[at].capability).await;
        let entry = &mut self.entries[at];
        match outcome {
            Ok(_) => {
                assert!(!entry.revoked, "a revoked capability was started");
                entry.started += 1;
                assert!(entry.started <= entry.uses, "started once too often");
                true
            }
            Err(ClientError::Denied(text)) => {
                let used_up = entry.started + entry.unanswered >= entry.uses;
                let fits = (text.contains("used up") && used_up)
                    || (text.contains("revoked") && (entry.revoked || entry.revoking));
                assert!(fits, "an acknowledged grant is lost: {text}");
                true
            }
            Err(_) => {
                entry.unanswered += 1;
                false
            }
        }
    }

    async fn revoke(&mut self, at: usize) -> bool {
        let outcome = self.client.revoke(&self.entries[at].capability).await;
        let entry = &mut self.entries[at];
        entry.revoking = true;
        entry.revoked |= outcome.is_ok();
        outcome.is_ok()
    }

    /// Asserts that the node kept everything that it acknowledged about this capability.
    async fn check(&mut self, at: usize) {
        let used_up = self.entries[at].started >= self.entries[at].uses;
        let revoked = self.entries[at].revoked;
        if !revoked && !used_up {
            // `start` asserts that this succeeds, unless an unanswered start explains the denial.
            self.start(at).await;
            return;
        }
        match self.client.connect(&self.entries[at].capability).await {
            Err(ClientError::Denied(text)) if revoked => {
                assert!(text.contains("revoked"), "{text}")
            }
            Err(ClientError::Denied(text)) => {
                assert!(text.contains("used up") || text.contains("revoked"), "{text}");
            }
            Ok(_) => panic!("revoked or used up, and started again"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_keeps_all_acknowledged_changes() {
    let (kills, in_flight_wanted) = if in_full() { (200, 100) } else { (12, 6) };
    // No other test takes this port while the node is down.
    let address = std::net::TcpListener::bind((own_loopback(), 0)).unwrap().local_addr().unwrap();
    let node_home = Home::new();
    let client_folder = Home::new();
    let proxy = Proxy::new(address).await;
    let identity = node_home.identity().parse().unwrap();
    let target = Target::typed(identity, &proxy.address.to_string());
    let client = Client::new(&ClientHome::at(client_folder.path()).unwrap()).unwrap();
    let mut scene = Scene { node_home, address, client, target, proxy, entries: vec![], random: 7 };
    let mut in_flight = 0;
    for round in 0..kills {
        let mut node = scene.start_node();
        scene.wait_until_ready().await;
        if !scene.entries.is_empty() {
            for _ in 0..3 {
                let at = scene.below(scene.entries.len() as u64) as usize;
                scene.check(at).await;
            }
        }
        for _ in 0..scene.below(4) {
            assert!(scene.act().await, "an operation failed while the node was up");
        }
        // The kill comes at any time around the commit. In three of four rounds the answer is
        // dropped, so that the operation is unacknowledged whenever the kill comes.
        let delay = Duration::from_micros(scene.below(3000));
        let held = scene.below(4) > 0;
        let armed = scene.proxy.armed.clone();
        let passed = scene.proxy.passed.clone();
        let hold = scene.proxy.hold.clone();
        hold.store(held, Ordering::SeqCst);
        armed.store(true, Ordering::SeqCst);
        let killer = tokio::spawn(async move {
            // The kill must interrupt an operation, so it waits for its first bytes.
            timeout(STEP_TIMEOUT, passed.notified()).await.unwrap();
            sleep(delay).await;
            node.kill().unwrap();
            node.wait().unwrap();
            hold.store(false, Ordering::SeqCst);
        });
        let acknowledged = timeout(2 * STEP_TIMEOUT, scene.act()).await.unwrap();
        // An unanswered operation was in flight: its first bytes had passed before the kill.
        in_flight += usize::from(!acknowledged);
        killer.await.unwrap();
        if round % 20 == 19 {
            eprintln!("{} kills, {in_flight} of them during an operation", round + 1);
        }
    }
    let mut node = scene.start_node();
    scene.wait_until_ready().await;
    for at in 0..scene.entries.len() {
        scene.check(at).await;
    }
    node.kill().unwrap();
    node.wait().unwrap();
    eprintln!("{kills} kills, {in_flight} during an operation, {} grants", scene.entries.len());
    assert!(
        in_flight >= in_flight_wanted,
        "only {in_flight} of {kills} kills came during an operation"
    );
}
