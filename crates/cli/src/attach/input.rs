//! Sends standard input and the size of the terminal to the service.

use std::io;

use levada_service::stdio::{Chunk, Message, Tag};
use levada_session::{SendHalf, StreamError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::escape::{Action, Escape, Filter};
use super::terminal::window;

/// Chunks in circulation: one is filled while another is sent.
const CHUNKS: usize = 3;

/// Parts of typed input that wait to be sent, and the bytes of each: 4 MiB together.
const KEYS: usize = 1024;
const PART: usize = 4096;

/// Sends standard input, then its end, and every new size of the terminal. Never returns: dropping
/// the sending half ends the session, and only the receiving half learns why the session ended.
///
/// For typed input, `typed` has the escape character and the channel that reports the sequence for
/// leaving.
pub async fn pump(mut stream: SendHalf, pty: bool, typed: Option<(Escape, oneshot::Sender<()>)>) {
    let _ = send_all(&mut stream, pty, typed).await;
    std::future::pending::<()>().await;
}

async fn send_all(
    stream: &mut SendHalf,
    pty: bool,
    typed: Option<(Escape, oneshot::Sender<()>)>,
) -> Result<(), StreamError> {
    let mut resized = if pty { signal(SignalKind::window_change()).ok() } else { None };
    if pty {
        send_window(stream).await?;
    }
    let mut keys = typed.and_then(|(escape, leave)| Some(keys(escape, escape.filter()?, leave)));
    while let Some(input) = &mut keys {
        let bytes = tokio::select! {
            bytes = input.recv() => bytes,
            () = next(&mut resized) => {
                send_window(stream).await?;
                continue;
            }
        };
        let Some(bytes) = bytes else { break };
        stream.send(&Message::Data(&bytes).to_bytes()).await?;
    }
    if keys.is_none() {
        send_chunks(stream, &mut resized).await?;
    }
    stream.send(&Message::End.to_bytes()).await?;
    loop {
        next(&mut resized).await;
        send_window(stream).await?;
    }
}

async fn send_chunks(
    stream: &mut SendHalf,
    resized: &mut Option<tokio::signal::unix::Signal>,
) -> Result<(), StreamError> {
    let mut input = Input::start();
    loop {
        let chunk = tokio::select! {
            chunk = input.next() => chunk,
            () = next(resized) => {
                send_window(stream).await?;
                continue;
            }
        };
        let Some((chunk, length)) = chunk else { return Ok(()) };
        stream.send(chunk.message(length)).await?;
        input.give_back(chunk);
    }
}

/// Starts a thread that reads typed input and removes the escape sequences before anything waits
/// for the network, so that a session can be left while the network is stalled.
fn keys(escape: Escape, filter: Filter, leave: oneshot::Sender<()>) -> Receiver<Vec<u8>> {
    let (sender, keys) = channel(KEYS);
    std::thread::spawn(move || read_keys(escape, filter, leave, &sender));
    keys
}

fn read_keys(
    escape: Escape,
    mut filter: Filter,
    leave: oneshot::Sender<()>,
    sender: &Sender<Vec<u8>>,
) {
    let mut space = [0; PART];
    while let Ok(length @ 1..) = read(&mut space) {
        let (bytes, actions) = filter.take(&space[..length]);
        if !bytes.is_empty()
            && !actions.contains(&Action::Leave)
            && sender.blocking_send(bytes).is_err()
        {
            return;
        }
        for action in actions {
            match action {
                Action::Leave => {
                    let _ = leave.send(());
                    return;
                }
                Action::Help => drop(rustix::io::write(io::stderr(), escape.help().as_bytes())),
            }
        }
    }
    if let Some(held_back) = filter.rest() {
        let _ = sender.blocking_send(vec![held_back]);
    }
}

/// Waits for the next change of the terminal's size; for ever without a terminal.
async fn next(resized: &mut Option<tokio::signal::unix::Signal>) {
    match resized {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

async fn send_window(stream: &mut SendHalf) -> Result<(), StreamError> {
    match window() {
        Some(window) => stream.send(&Message::Window(window).to_bytes()).await,
        None => Ok(()),
    }
}

/// A thread that reads standard input. It may still be blocked in a read when the process exits.
struct Input {
    full: Receiver<(Chunk, usize)>,
    empty: Sender<Chunk>,
}

impl Input {
    fn start() -> Self {
        let (full_sender, full) = channel(CHUNKS);
        let (empty, empty_receiver) = channel(CHUNKS);
        for _ in 0..CHUNKS {
            // The channel has room for all of them.
            let _ = empty.try_send(Chunk::new(Tag::Data));
        }
        std::thread::spawn(move || read_all(empty_receiver, &full_sender));
        Self { full, empty }
    }

    async fn next(&mut self) -> Option<(Chunk, usize)> {
        self.full.recv().await
    }

    fn give_back(&self, chunk: Chunk) {
        let _ = self.empty.try_send(chunk);
    }
}

fn read_all(mut empty: Receiver<Chunk>, full: &Sender<(Chunk, usize)>) {
    while let Some(mut chunk) = empty.blocking_recv() {
        // A read error counts as the end of the input.
        let Ok(length @ 1..) = read(chunk.space()) else { return };
        if full.blocking_send((chunk, length)).is_err() {
            return;
        }
    }
}

/// One read without the buffer of the standard library: for `-`, a line was already read from the
/// same descriptor.
fn read(space: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(io::stdin(), &mut *space) {
            Err(rustix::io::Errno::INTR) => {}
            // A process that shares the descriptor made it non-blocking.
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(super::output::AGAIN),
            other => return Ok(other?),
        }
    }
}
