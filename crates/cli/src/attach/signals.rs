//! The signals that end a session from the client's side.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// A shell adds the signal's number to this exit code.
const SIGNALLED: u8 = 128;

/// Waits for a signal that ends the command. In raw mode Ctrl-C is input and raises no signal.
pub struct Signals {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::local);
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            quit: listen(SignalKind::quit())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal; returns its exit code.
    pub async fn end(&mut self) -> u8 {
        tokio::select! {
            _ = self.hangup.recv() => SIGNALLED + 1,
            _ = self.interrupt.recv() => SIGNALLED + 2,
            _ = self.quit.recv() => SIGNALLED + 3,
            _ = self.terminate.recv() => SIGNALLED + 15,
        }
    }
}
