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
    open: Arc<Mutex<Vec<TcpStream>>>,
    stalled: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (open, stalled) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (all, still, target) = (open.clone(), stalled.clone(), target.to_owned());
        // It lives as long as the test's process: nothing waits for it.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(node) = TcpStream::connect(&target) else { continue };
                let copy = |stream: &TcpStream| stream.try_clone().unwrap();
                all.lock().unwrap().extend([copy(&client), copy(&node)]);
                for (from, to) in [(copy(&client), copy(&node)), (node, client)] {
                    let still = still.clone();
                    thread::spawn(move || pass(from, to, &still));
                }
            }
        });
        Self { address, open, stalled }
    }

    /// Ends every connection; new ones are taken.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// From now on nothing passes, and nothing ends.
    pub fn stall(&self) {
        self.stalled.store(true, Ordering::SeqCst);
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
