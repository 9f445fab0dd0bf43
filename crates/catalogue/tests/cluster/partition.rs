//! A partition of one server and its node against the two others, on real links. Needs root, for
//! network namespaces.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use levada_catalogue::model::Draft;
use levada_catalogue::store::Store;
use levada_catalogue::store::cluster::{ClusterStore, Options};
use levada_catalogue::store::conformance::{content, draft, package};
use levada_core::sha256;
use levada_lab::{Lab, Node, Options as LabOptions};
use tempfile::TempDir;

use super::engine::{Engine, Setup, until};
use super::leader::leader;
use super::load::{self, Told, check_equal};
use crate::isolated;
use crate::store::in_full;

const NAME: &str = "partition";
const HOSTS: usize = 3;
/// How many threads publish on each node.
const PUBLISHERS: usize = 3;

/// Three hosts on a bridge, each with a server and a node.
struct Scene {
    _lab: Lab,
    hosts: Vec<Node>,
    engine: Engine,
    options: Options,
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let mut lab = Lab::new(LabOptions::default()).unwrap();
        let hosts: Vec<Node> = (0..HOSTS).map(|n| lab.node(&format!("n{n}")).unwrap()).collect();
        let segment = lab.segment(&hosts.iter().collect::<Vec<_>>()).unwrap();
        let address = |host: &Node| (host.clone(), segment.address(host).unwrap());
        let setup = Setup { hosts: hosts.iter().map(address).collect(), ..Setup::default() };
        let engine = Engine::start_as(setup);
        let options = engine.options(NAME);
        Self { _lab: lab, hosts, engine, options, folder: tempfile::tempdir().unwrap() }
    }

    /// Opens a node on a host: the connections of its threads are those of the host.
    fn open(&self, host: usize, name: &str, options: &Options) -> ClusterStore {
        let folder = self.folder.path().join(name);
        self.hosts[host].run(|| ClusterStore::open(&folder, options).unwrap()).unwrap()
    }

    fn set_link(&self, host: usize, state: &str) {
        let mut command = Command::new("ip");
        command.args(["link", "set", "e0", state]);
        assert!(self.hosts[host].run(|| command.status()).unwrap().unwrap().success());
    }

    /// The server that leads the log, when the others have all of it.
    fn leader(&self) -> usize {
        let mut found = None;
        until("the servers agree", || {
            found = self.hosts[0].run(|| leader(&self.engine, NAME)).unwrap();
            found.is_some_and(|(_, is_current)| is_current)
        });
        found.unwrap().0
    }
}

/// What the publishers of a node were told.
#[derive(Default)]
struct Count {
    published: AtomicUsize,
    failed: AtomicUsize,
}

impl Count {
    fn published(&self) -> usize {
        self.published.load(Ordering::Relaxed)
    }

    fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Those of the publishers of one node.
#[derive(Default)]
struct Counts([Count; PUBLISHERS]);

impl Counts {
    fn published(&self) -> usize {
        self.0.iter().map(Count::published).sum()
    }

    fn await_published(&self) {
        let before = self.published();
        until("publishing goes on", || self.published() > before + 20);
    }

    /// Waits until each publisher was refused once: what they were told before was said by then.
    fn await_failed(&self) {
        let before = self.0.each_ref().map(Count::failed);
        until("the node refuses all", || {
            self.0.iter().zip(before).all(|(count, before)| count.failed() > before)
        });
    }
}

/// Cuts the link of a host for some time; `role` is that of its server.
fn cut(scene: &Scene, stores: &[ClusterStore], counts: &[Counts], alone: usize, role: &str) {
    counts.iter().for_each(Counts::await_published);
    let others = (0..HOSTS).filter(|host| *host != alone);
    let package = Some(package(sha256(&[b"code"]), 4));
    let known = Draft { package, ..draft(&format!("hyperty/before-{role}"), "1.0.0", "{}") };
    load::publish_with(&stores[alone], &known, b"code", |_| ());
    scene.set_link(alone, "down");
    for host in others.clone() {
        counts[host].await_published();
    }
    counts[alone].await_failed();
    let lag = || stores[alone].lag().unwrap();
    until("the node says that it is behind", || lag().fault.is_some());
    eprintln!("host {alone} is cut off: {:?}", lag());
    let published = counts[alone].published();
    let revision = stores[alone].revision().unwrap();
    for host in others {
        counts[host].await_published();
        assert!(stores[host].revision().unwrap() > revision);
    }
    assert_eq!(counts[alone].published(), published, "published without a majority");
    assert_eq!(stores[alone].revision().unwrap(), revision);
    assert!(stores[alone].get(&known.key, &known.version).unwrap().is_some());
    assert_eq!(content(&stores[alone], &known.package.unwrap().digest).unwrap(), b"code");
    scene.set_link(alone, "up");
    counts[alone].await_published();
    until("the node follows again", || lag().fault.is_none());
}

#[test]
fn a_partition_loses_nothing_and_publishes_nothing_twice() {
    if !in_full() {
        eprintln!("skipped: LEVADA_TEST_FULL is not set");
        return;
    }
    if !isolated::can_isolate() {
        return;
    }
    let scene = Scene::new();
    drop(scene.open(0, "0", &scene.options));
    let Options { write_timeout, .. } = Options::default();
    let options = Options { write_timeout, ..scene.options.clone() };
    let mut stores: Vec<ClusterStore> =
        (0..HOSTS).map(|host| scene.open(host, &host.to_string(), &options)).collect();
    let counts: Vec<Counts> = (0..HOSTS).map(|_| Counts::default()).collect();
    let acknowledged = Mutex::new(Vec::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (host, (store, counts)) in stores.iter().zip(&counts).enumerate() {
            for (publisher, count) in counts.0.iter().enumerate() {
                let acknowledged = &acknowledged;
                let is_over = &is_over;
                scope.spawn(move || {
                    let name = format!("{host}-{publisher}");
                    load::publish(store, &name, |told| {
                        match told {
                            Told::Published(key) => {
                                let told = (key.to_owned(), name.clone());
                                acknowledged.lock().unwrap().push(told);
                                count.published.fetch_add(1, Ordering::Relaxed);
                            }
                            Told::Failed => _ = count.failed.fetch_add(1, Ordering::Relaxed),
                        }
                        !is_over.load(Ordering::Relaxed)
                    });
                });
            }
        }
        // The publishers end also if an assertion fails.
        let _end = EndOfScope(&is_over);
        let leader = scene.leader();
        cut(&scene, &stores, &counts, leader, "leader");
        let follower = (scene.leader() + 1) % HOSTS;
        cut(&scene, &stores, &counts, follower, "follower");
    });
    stores.push(scene.open(0, "new", &scene.options));
    check_equal(&stores, &acknowledged.into_inner().unwrap());
}

struct EndOfScope<'a>(&'a AtomicBool);

impl Drop for EndOfScope<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
