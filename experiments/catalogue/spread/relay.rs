//! What stands between a node and a server of the engine, and can be cut: then nothing passes, and
//! no connection is closed, as when packets are lost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Between two looks at whether it is still cut.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Passes connections on, until the process ends.
pub struct Relay {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Relay {
    /// Listens for connections to `server`.
    pub fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                wait_until_whole(&cut);
                // If the server does not run, the connection is closed.
                if let Ok(far) = TcpStream::connect(server) {
                    connect(near, far, &cut);
                }
            }
        });
        Ok(Self { address, is_cut })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets nothing pass any more.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// Lets all pass again.
    pub fn join(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

fn wait_until_whole(is_cut: &AtomicBool) {
    while is_cut.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Passes on what each end sends.
fn connect(near: TcpStream, far: TcpStream, is_cut: &Arc<AtomicBool>) {
    // It only costs time.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
    for (from, to) in [(near, far_too), (far, near_too)] {
        let is_cut = Arc::clone(is_cut);
        thread::spawn(move || pass_on(from, to, &is_cut));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        wait_until_whole(is_cut);
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other end may have closed it.
    let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
}
