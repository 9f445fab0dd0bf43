//! Packages whose parts are under way when the connection to the engine is lost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use levada_catalogue::store::Store;
use levada_catalogue::store::cluster::{ClusterStore, Options};
use levada_catalogue::store::conformance::{draft, package, publish};

use super::engine::{Engine, Setup, until};

/// More than one connection carries.
const LENGTH: usize = 10 << 20;
/// The bytes that a connection carries until it is cut: more than the parts that are under way.
const CARRIED: usize = 6 << 20;
/// The attempts to connect that fail after a cut: parts begin while no server is connected.
const REFUSED: usize = 8;

/// Passes connections on to a server, and cuts each of them after [`CARRIED`] bytes.
struct Cutter {
    address: SocketAddr,
    cuts: Arc<AtomicUsize>,
}

impl Cutter {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        // It ends with the process of the tests.
        thread::spawn(move || {
            let mut refused = 0;
            for client in listener.incoming().map_while(Result::ok) {
                if refused < REFUSED * counted.load(Ordering::Relaxed) {
                    refused += 1;
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                let carried = Arc::new(AtomicUsize::new(0));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let from = from.try_clone().unwrap();
                    let to = to.try_clone().unwrap();
                    let carried = Arc::clone(&carried);
                    let cuts = Arc::clone(&counted);
                    thread::spawn(move || pass_on(from, to, &carried, &cuts));
                }
            }
        });
        Self { address, cuts }
    }

    fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, carried: &AtomicUsize, cuts: &AtomicUsize) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let before = carried.fetch_add(count, Ordering::Relaxed);
        if before + count > CARRIED {
            // The other direction may be over the limit already.
            cuts.fetch_add(usize::from(before <= CARRIED), Ordering::Relaxed);
            break;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // It may be closed already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_package_arrives_although_its_connections_are_cut() {
    let engine = Engine::start_as(Setup::single());
    let folder = tempfile::tempdir().unwrap();
    let direct = engine.options("cut");
    let cutter = Cutter::start(direct.servers[0].trim_start_matches("nats://").parse().unwrap());
    let servers = vec![format!("nats://{}", cutter.address)];
    let options = Options { servers, ..direct };
    let open = |name| ClusterStore::open(&folder.path().join(name), &options).unwrap();
    let [a, b] = ["a", "b"].map(open);
    let content: Vec<u8> = (0..LENGTH).map(|at| (at / 1000) as u8).collect();
    let mut writer = a.begin_blob().unwrap();
    writer.write(&content).unwrap();
    let (digest, length) = writer.finish(None).unwrap();
    let cuts = cutter.cuts();
    assert!(cuts > 0);
    let mut version = draft("runtime/cut", "1.0.0", "{}");
    version.package = Some(package(digest, length));
    publish(&a, &version);
    until("b sees it", || b.get(&version.key, &version.version).unwrap().is_some());
    let blob = b.open_blob(&digest).unwrap().unwrap();
    assert_eq!(blob.digest().unwrap(), (digest, length));
    assert!(cutter.cuts() > cuts);
}
