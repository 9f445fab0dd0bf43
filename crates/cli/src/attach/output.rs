//! Standard output and error, from the service.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use levada_service::stdio::Message;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::sync::oneshot;

use crate::failure::{Failure, Outcome};

/// How long to wait for a descriptor that somebody made non-blocking.
pub(super) const AGAIN: Duration = Duration::from_millis(1);
/// Messages that wait to be written.
const WAITING: usize = 2;

/// A thread that writes what it is given, in order.
pub(super) struct Output {
    full: Sender<Vec<u8>>,
    empty: UnboundedReceiver<Vec<u8>>,
    result: oneshot::Receiver<io::Result<()>>,
}

/// Whether output goes on.
pub(super) enum Written {
    /// It was taken.
    Taken,
    /// Nothing can be written any more.
    Ended(Outcome),
}

impl Output {
    pub(super) fn start() -> Self {
        let (full, messages) = channel(WAITING);
        let (used, empty) = unbounded_channel();
        let (end, result) = oneshot::channel();
        std::thread::spawn(move || end.send(write_messages(messages, &used)));
        Self { full, empty, result }
    }

    /// An empty buffer, used before if there is one.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.empty.try_recv().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Gives `message` to the thread; waits while it has enough to do.
    pub(super) async fn write(&mut self, message: Vec<u8>) -> Written {
        match self.full.send(message).await {
            Ok(()) => Written::Taken,
            Err(_) => Written::Ended(end(&mut self.result).await),
        }
    }

    /// Waits until everything is written.
    pub(super) async fn finish(mut self) -> Outcome {
        drop(self.full);
        end(&mut self.result).await
    }
}

async fn end(result: &mut oneshot::Receiver<io::Result<()>>) -> Outcome {
    match result.await {
        Ok(result) => result.map(|()| 0).map_err(Failure::output),
        Err(_) => Err(Failure::local("writing the output failed")),
    }
}

fn write_messages(
    mut messages: Receiver<Vec<u8>>,
    used: &UnboundedSender<Vec<u8>>,
) -> io::Result<()> {
    while let Some(message) = messages.blocking_recv() {
        match Message::decode(&message) {
            Ok(Message::Data(bytes)) => write_all(io::stdout(), bytes)?,
            // If nobody reads the errors, the output still counts.
            Ok(Message::Error(bytes)) => drop(write_all(io::stderr(), bytes)),
            _ => {}
        }
        // Dropped if nobody wants it any more.
        let _ = used.send(message);
    }
    Ok(())
}

/// Past the buffer of the standard library, which would split every write at its last line.
pub fn write_all(to: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(AGAIN),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
