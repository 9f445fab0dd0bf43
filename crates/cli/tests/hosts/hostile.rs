//! A hostile neighbour.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use levada_core::{SecretKey, SystemRandom};
use levada_discovery::testing::{Claim, MulticastSender};

use super::scene::Host;

/// A host that sends forged announcements. No client may dial its first port; a client that looks
/// for a pinned key may dial its second one.
pub struct Hostile {
    stop: Arc<AtomicBool>,
    /// The sources of connections to the first port.
    calls: Arc<Mutex<Vec<SocketAddr>>>,
    /// The first bytes of each connection to the second port.
    pub received: Arc<Mutex<Vec<Vec<u8>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    /// Sends packets repeatedly; `packets` makes them from the two ports.
    pub fn start(host: &Host, packets: impl FnOnce(u16, u16) -> Vec<Vec<u8>>) -> Self {
        let [forbidden, lure] = [(); 2].map(|()| {
            let bind = || TcpListener::bind((host.address, 0));
            host.node.run(bind).unwrap().unwrap()
        });
        let [first, second] = [&forbidden, &lure].map(|one| one.local_addr().unwrap().port());
        let packets = packets(first, second);
        let voice = host.node.run(|| MulticastSender::new(host.address)).unwrap().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let calls: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let received: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let called = calls.clone();
        let read = received.clone();
        let called = move |_: TcpStream, from: SocketAddr| called.lock().unwrap().push(from);
        let read = move |mut caller: TcpStream, _: SocketAddr| {
            let mut first = vec![0; 16 * 1024];
            caller.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let length = caller.read(&mut first).unwrap_or(0);
            first.truncate(length);
            read.lock().unwrap().push(first);
        };
        let send = move || {
            for packet in &packets {
                // A full send buffer drops the packet; it is sent again.
                let _ = voice.send(packet);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let threads = vec![
            until(&stop, accepting(forbidden, called)),
            until(&stop, accepting(lure, read)),
            until(&stop, send),
        ];
        Self { stop, calls, received, threads }
    }

    /// Stops: the sources of forbidden connections, and the first bytes at the second port.
    pub fn end(self) -> (Vec<SocketAddr>, Vec<Vec<u8>>) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        (self.calls.lock().unwrap().clone(), self.received.lock().unwrap().clone())
    }
}

/// Repeats `action` in a thread until `stop` is set.
fn until(stop: &Arc<AtomicBool>, mut action: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            action();
        }
    })
}

/// Accepts a pending connection, if there is one, and passes it to `serve`.
fn accepting(listener: TcpListener, mut serve: impl FnMut(TcpStream, SocketAddr)) -> impl FnMut() {
    listener.set_nonblocking(true).unwrap();
    move || match listener.accept() {
        Ok((caller, from)) => serve(caller, from),
        Err(error) => {
            // There is no connection, or it was closed before it was accepted.
            let expected =
                [ErrorKind::WouldBlock, ErrorKind::ConnectionAborted, ErrorKind::Interrupted];
            assert!(expected.contains(&error.kind()), "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn random_identity() -> String {
    SecretKey::generate(&SystemRandom).unwrap().identity().to_string()
}

/// Garbage, the victim's name under another key, the victim's key at another address, unusable
/// addresses and loopback, repeated among thousands of other names. Claims of the victim's key have
/// the port `lure`.
pub fn hostile_packets(host: &Host, port: u16, lure: u16, victim: &str) -> Vec<Vec<u8>> {
    let here = host.address;
    let claim = |instance: &str, name: &str, key: &str, address| {
        Claim::new(instance, name, key, address, port).packet()
    };
    // The instance name of the real announcement: a client may combine the key of one with the port
    // of the other.
    let same = format!("well-{}", &victim[2..10]);
    let claims = [
        claim("well", "well", &random_identity(), here),
        Claim::new(&same, "well", &random_identity(), here, lure).packet(),
        Claim::new("far", "well", victim, here, lure).packet(),
        claim("newcomer", "newcomer", &random_identity(), here),
        claim("steering", "\u{1b}[2J", &random_identity(), here),
        claim("loop", "loop", &random_identity(), Ipv4Addr::LOCALHOST),
        claim("none", "none", &random_identity(), Ipv4Addr::UNSPECIFIED),
        claim("group", "group", &random_identity(), Ipv4Addr::new(224, 0, 0, 251)),
    ];
    let mut packets = vec![vec![], vec![0xff; 8000], vec![0xc0; 700]];
    packets.extend((0..claims[0].len()).map(|end| claims[0][..end].to_vec()));
    for number in 0..2500 {
        if number % 50 == 0 {
            packets.extend(claims.iter().cloned());
        }
        let name = format!("crowd-{number}");
        packets.push(claim(&name, &name, &random_identity(), here));
    }
    packets
}
