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

/// A host that sends what it likes. It has a port at which nobody may ever call, and one to which whoever looks
/// for a pinned key may be lured.
pub struct Hostile {
    stop: Arc<AtomicBool>,
    /// Who has called at the first, from where.
    calls: Arc<Mutex<Vec<SocketAddr>>>,
    /// What callers said first at the second.
    pub told: Arc<Mutex<Vec<Vec<u8>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Hostile {
    /// Sends the packets that `packets` makes of the two ports, over and over.
    pub fn start(host: &Host, packets: impl FnOnce(u16, u16) -> Vec<Vec<u8>>) -> Self {
        let [never, lure] = [(); 2].map(|()| {
            let bind = || TcpListener::bind((host.address, 0));
            host.node.run(bind).unwrap().unwrap()
        });
        let [first, second] = [&never, &lure].map(|one| one.local_addr().unwrap().port());
        let packets = packets(first, second);
        let voice = host.node.run(|| MulticastSender::new(host.address)).unwrap().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let calls: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let told: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let (called, heard) = (calls.clone(), told.clone());
        let called = move |_: TcpStream, from: SocketAddr| called.lock().unwrap().push(from);
        let heard = move |mut caller: TcpStream, _: SocketAddr| {
            let mut first = vec![0; 16 * 1024];
            caller.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let length = caller.read(&mut first).unwrap_or(0);
            first.truncate(length);
            heard.lock().unwrap().push(first);
        };
        let say = move || {
            for packet in &packets {
                // A full buffer is part of the noise.
                let _ = voice.send(packet);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let threads = vec![
            until(&stop, accepting(never, called)),
            until(&stop, accepting(lure, heard)),
            until(&stop, say),
        ];
        Self { stop, calls, told, threads }
    }

    /// Who called where nobody may, and what those said who were lured.
    pub fn end(self) -> (Vec<SocketAddr>, Vec<Vec<u8>>) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        (self.calls.lock().unwrap().clone(), self.told.lock().unwrap().clone())
    }
}

/// Does something over and over until it is stopped.
fn until(stop: &Arc<AtomicBool>, mut something: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            something();
        }
    })
}

/// Hands over who calls, if anybody does, and from where.
fn accepting(listener: TcpListener, mut serve: impl FnMut(TcpStream, SocketAddr)) -> impl FnMut() {
    listener.set_nonblocking(true).unwrap();
    move || match listener.accept() {
        Ok((caller, from)) => serve(caller, from),
        Err(error) => {
            // Nobody calls, or who did has hung up before he was answered.
            let known =
                [ErrorKind::WouldBlock, ErrorKind::ConnectionAborted, ErrorKind::Interrupted];
            assert!(known.contains(&error.kind()), "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn someone() -> String {
    SecretKey::generate(&SystemRandom).unwrap().identity().to_string()
}

/// Garbage; a known name under another key, a known key at another address, addresses that lead nowhere or to
/// ourselves; and again and again among thousands of names. What may lead to the known key has the port `lure`.
pub fn hostile_packets(host: &Host, port: u16, lure: u16, victim: &str) -> Vec<Vec<u8>> {
    let here = host.address;
    let claim = |instance: &str, name: &str, key: &str, address| {
        Claim::new(instance, name, key, address, port).packet()
    };
    // Under the very name of the true announcement: some hear the key of one and the port of the other.
    let same = format!("well-{}", &victim[2..10]);
    let claims = [
        claim("well", "well", &someone(), here),
        Claim::new(&same, "well", &someone(), here, lure).packet(),
        Claim::new("far", "well", victim, here, lure).packet(),
        claim("stranger", "stranger", &someone(), here),
        claim("steering", "\u{1b}[2J", &someone(), here),
        claim("loop", "loop", &someone(), Ipv4Addr::LOCALHOST),
        claim("none", "none", &someone(), Ipv4Addr::UNSPECIFIED),
        claim("group", "group", &someone(), Ipv4Addr::new(224, 0, 0, 251)),
    ];
    let mut packets = vec![vec![], vec![0xff; 8000], vec![0xc0; 700]];
    packets.extend((0..claims[0].len()).map(|end| claims[0][..end].to_vec()));
    for number in 0..2500 {
        if number % 50 == 0 {
            packets.extend(claims.iter().cloned());
        }
        let name = format!("crowd-{number}");
        packets.push(claim(&name, &name, &someone(), here));
    }
    packets
}
