//! Closes descriptors that clients have sent.
//!
//! The last close of a socket waits until its bytes are sent, or for as long as its SO_LINGER says.
//! Such descriptors are closed by a separate thread, so that the monitor keeps serving the other
//! clients.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::net::sockopt::socket_linger;

/// Closes a descriptor without waiting.
pub fn close(descriptor: OwnedFd) {
    // Other files than sockets have no linger; their file systems may wait, too.
    let may_wait = !matches!(socket_linger(&descriptor), Ok(None | Some(Duration::ZERO)));
    if may_wait && let Some(closer) = closer() {
        // The thread never ends.
        let _ = closer.send(descriptor);
    }
}

fn closer() -> Option<&'static Sender<OwnedFd>> {
    static CLOSER: OnceLock<Option<Sender<OwnedFd>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = channel::<OwnedFd>();
        let thread = std::thread::Builder::new().name("close".to_owned());
        thread.spawn(move || receiver.into_iter().for_each(drop)).ok().map(|_| sender)
    };
    CLOSER.get_or_init(start).as_ref()
}
