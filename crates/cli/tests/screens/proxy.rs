//! A proxy between client and node that can close or stall its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Forwards connections to one address.
pub struct Proxy {
    /// Where it listens.
    pub address: String,
    open: Arc<Mutex<Vec<Forwarded>>>,
}

/// Both ends of a forwarded connection, and whether it is stalled.
struct Forwarded {
    ends: [TcpStream; 2],
    stalled: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(Mutex::new(Vec::new()));
        let all = open.clone();
        let target = target.to_owned();
        // The thread runs until the process ends.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(node) = TcpStream::connect(&target) else { continue };
                let copy = |stream: &TcpStream| stream.try_clone().unwrap();
                let stalled = Arc::new(AtomicBool::new(false));
                let ends = [copy(&client), copy(&node)];
                all.lock().unwrap().push(Forwarded { ends, stalled: stalled.clone() });
                for (from, to) in [(copy(&client), copy(&node)), (node, client)] {
                    let stalled = stalled.clone();
                    thread::spawn(move || pass(from, to, &stalled));
                }
            }
        });
        Self { address, open }
    }

    /// Closes every connection, and accepts new ones.
    pub fn cut(&self) {
        for one in self.open.lock().unwrap().drain(..) {
            one.ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }

    /// Stops forwarding on every connection without closing it, and accepts new ones.
    pub fn stall(&self) {
        let open = self.open.lock().unwrap();
        open.iter().for_each(|one| one.stalled.store(true, Ordering::SeqCst));
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, stalled: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        while stalled.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(50));
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
