//! Writes the service's output to standard output and standard error.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use levada_service::stdio::Message;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::sync::oneshot;

use crate::failure::{Failure, Outcome};

/// Pause before an I/O call is repeated on a descriptor that another process made non-blocking.
pub(super) const AGAIN: Duration = Duration::from_millis(1);
/// Messages that wait to be written.
const WAITING: usize = 2;

/// A thread that writes messages in order.
pub(super) struct Output {
    full: Sender<Vec<u8>>,
    empty: UnboundedReceiver<Vec<u8>>,
    result: oneshot::Receiver<io::Result<()>>,
}

/// The result of handing a message to the thread.
pub(super) enum Written {
    /// It was queued.
    Queued,
    /// The thread has ended, with this outcome.
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

    /// An empty buffer, recycled if possible.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.empty.try_recv().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Queues `message`; waits while the queue is full.
    pub(super) async fn write(&mut self, message: Vec<u8>) -> Written {
        match self.full.send(message).await {
            Ok(()) => Written::Queued,
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
            // A closed standard error does not stop standard output.
            Ok(Message::Error(bytes)) => drop(write_all(io::stderr(), bytes)),
            _ => {}
        }
        // Fails once the session has ended; the buffer is dropped then.
        let _ = used.send(message);
    }
    Ok(())
}

/// Writes all `bytes` without the buffer of the standard library, which would split each write at
/// its last line end.
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
