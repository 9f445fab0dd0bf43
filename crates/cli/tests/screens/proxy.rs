//! A way between client and node that can be cut, or stall.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Passes everything on to one address.
pub struct Proxy {
    /// Where it listens.
    pub address: String,
    open: Arc<Mutex<Vec<Way>>>,
}

/// Both ends of a connection, and whether it has stalled.
struct Way {
    ends: [TcpStream; 2],
    stalled: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (all, target) = (open.clone(), target.to_owned());
        // It lives as long as the test's process: nothing waits for it.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(node) = TcpStream::connect(&target) else { continue };
                let copy = |stream: &TcpStream| stream.try_clone().unwrap();
                let stalled = Arc::new(AtomicBool::new(false));
                let ends = [copy(&client), copy(&node)];
                all.lock().unwrap().push(Way { ends, stalled: stalled.clone() });
                for (from, to) in [(copy(&client), copy(&node)), (node, client)] {
                    let stalled = stalled.clone();
                    thread::spawn(move || pass(from, to, &stalled));
                }
            }
        });
        Self { address, open }
    }

    /// Ends every connection; new ones are taken.
    pub fn cut(&self) {
        for way in self.open.lock().unwrap().drain(..) {
            way.ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }

    /// On these connections nothing passes from now on, and nothing ends; new ones are taken.
    pub fn stall(&self) {
        let open = self.open.lock().unwrap();
        open.iter().for_each(|way| way.stalled.store(true, Ordering::SeqCst));
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
