//! Standard input and the size of the terminal, towards the service.

use std::io;

use levada_service::stdio::{Chunk, Message, Tag};
use levada_session::{SendHalf, StreamError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::escape::{Action, Escape, Filter};
use super::terminal::window;

/// Chunks on their way: one is being read to while another is sent.
const CHUNKS: usize = 3;

/// Parts of what is typed that wait to be sent, and the size of one in bytes: 4 MiB together.
const KEYS: usize = 1024;
const PART: usize = 4096;

/// Sends standard input, then that it ended, and every new size of the terminal. Never ends by itself:
/// a sending half that is dropped ends the session, and what ended it before is for the receiving half
/// to say.
///
/// What a person types comes with escape sequences, and `typed` says what to do when one ends the session.
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

/// Starts a thread that reads what is typed, and takes the escape sequences out before anything waits for the
/// network: a session that hangs can be left.
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

/// Waits for the next change of the size; for ever if there is no terminal.
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

/// A thread that reads standard input. It may be waiting for input when the process exits.
struct Input {
    full: Receiver<(Chunk, usize)>,
    empty: Sender<Chunk>,
}

impl Input {
    fn start() -> Self {
        let (full_sender, full) = channel(CHUNKS);
        let (empty, empty_receiver) = channel(CHUNKS);
        for _ in 0..CHUNKS {
            // There is room for all of them.
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
        // An input that cannot be read is an input that has ended.
        let Ok(length @ 1..) = read(chunk.space()) else { return };
        if full.blocking_send((chunk, length)).is_err() {
            return;
        }
    }
}

/// One read, past the buffer of the standard library: `-` took a line off the same input.
fn read(space: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(io::stdin(), &mut *space) {
            Err(rustix::io::Errno::INTR) => {}
            // Somebody made it non-blocking for a process that shares it.
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(super::output::AGAIN),
            other => return Ok(other?),
        }
    }
}
