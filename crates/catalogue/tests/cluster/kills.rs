//! `kill -9` of servers of the engine and of nodes, while 16 threads publish on three nodes:
//! nothing acknowledged is lost, nothing is published twice, and all nodes have the same changes in
//! the same order.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use levada_catalogue::store::cluster::{ClusterStore, Options};

use super::engine::{Engine, until};
use super::leader::leader;
use super::load::{self, Told, check_equal};
use crate::child;
use crate::store::in_full;

/// The servers of the engine, the number of the node and of its run.
const SERVERS: &str = "LEVADA_TEST_SERVERS";
const NODE: &str = "LEVADA_TEST_NODE";
const RUN: &str = "LEVADA_TEST_RUN";
const NAME: &str = "kills";
/// How many threads publish on each node.
const PUBLISHERS: [usize; 3] = [6, 5, 5];

/// A node. Each of its threads prints what was acknowledged, until the process is killed.
fn publish_for_ever(folder: &Path) {
    let get = |name| std::env::var(name).unwrap();
    let servers = get(SERVERS).split(',').map(str::to_owned).collect();
    let options = Options { servers, name: NAME.to_owned(), ..Options::default() };
    let store = ClusterStore::open(&folder.join(get(NODE)), &options).unwrap();
    let node: usize = get(NODE).parse().unwrap();
    thread::scope(|scope| {
        for publisher in 0..PUBLISHERS[node] {
            let store = &store;
            let name = format!("{node}-{}-{publisher}", get(RUN));
            scope.spawn(move || publish(store, &name));
        }
    });
}

fn publish(store: &ClusterStore, name: &str) {
    load::publish(store, name, |told| {
        if let Told::Published(key) = told {
            // The line break in front ends the unfinished line of the test harness.
            let mut out = std::io::stdout().lock();
            writeln!(out, "\n@{key} {name}").and_then(|()| out.flush()).unwrap();
        }
        true
    });
}

/// What the nodes printed: the key and the publisher of each version.
type Acknowledged = Arc<Mutex<Vec<(String, String)>>>;

/// The processes of the nodes.
struct Nodes<'a> {
    folder: &'a Path,
    servers: String,
    runs: usize,
    acknowledged: Acknowledged,
    children: Vec<Option<Child>>,
}

impl Nodes<'_> {
    fn start(&mut self, number: usize) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = "killed_servers_and_nodes_lose_nothing_acknowledged";
        child::configure(&mut command, module_path!(), test, self.folder);
        self.runs += 1;
        let mut child = command
            .env(SERVERS, &self.servers)
            .env(NODE, number.to_string())
            .env(RUN, self.runs.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let acknowledged = Arc::clone(&self.acknowledged);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some((key, by)) = line.strip_prefix('@').and_then(|it| it.split_once(' ')) {
                    acknowledged.lock().unwrap().push((key.to_owned(), by.to_owned()));
                }
            }
        });
        self.children[number] = Some(child);
    }

    fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.children[number].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Waits until more is acknowledged.
    fn await_progress(&self) {
        let count = || self.acknowledged.lock().unwrap().len();
        let before = count();
        until("publishing goes on", || count() > before + 20);
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        (0..self.children.len()).for_each(|number| self.kill(number));
    }
}

#[test]
fn killed_servers_and_nodes_lose_nothing_acknowledged() {
    if let Some(folder) = child::folder() {
        return publish_for_ever(&folder);
    }
    let (kills, of_leader) = if in_full() { (50, 8) } else { (6, 1) };
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::start();
    let options = engine.options(NAME);
    drop(ClusterStore::open(&folder.path().join("new"), &options).unwrap());
    let mut nodes = Nodes {
        folder: folder.path(),
        servers: options.servers.join(","),
        runs: 0,
        acknowledged: Acknowledged::default(),
        children: vec![None, None, None],
    };
    (0..3).for_each(|number| nodes.start(number));
    for kill in 0..kills {
        nodes.await_progress();
        if kill % 2 == 0 && kill >= 2 * of_leader {
            let number = kill / 2 % 3;
            nodes.kill(number);
            nodes.start(number);
            continue;
        }
        let mut current = 0;
        until("the servers agree", || match leader(&engine, NAME) {
            Some((found, true)) => {
                current = found;
                true
            }
            _ => false,
        });
        let number = if kill % 2 == 0 { current } else { (current + 1 + kill / 2 % 2) % 3 };
        engine.kill(number);
        nodes.await_progress();
        engine.start_one(number);
    }
    nodes.await_progress();
    let acknowledged = Arc::clone(&nodes.acknowledged);
    drop(nodes);
    let open = |name: &str| ClusterStore::open(&folder.path().join(name), &options).unwrap();
    check_equal(&["0", "1", "2", "last"].map(open), &acknowledged.lock().unwrap());
}
