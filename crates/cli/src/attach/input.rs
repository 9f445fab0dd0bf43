//! Standard input and the size of the terminal, towards the service.

use std::io;

use levada_services::stdio::{Chunk, Message, Tag};
use levada_session::{SendHalf, StreamError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::terminal::window;

/// Chunks on their way: one is being read to while another is sent.
const CHUNKS: usize = 3;

/// Sends standard input, then that it ended, and every new size of the terminal. Never ends by itself:
/// a sending half that is dropped ends the session, and what ended it before is for the receiving half
/// to say.
pub async fn pump(mut stream: SendHalf, pty: bool) {
    let _ = send_all(&mut stream, pty).await;
    std::future::pending::<()>().await;
}

async fn send_all(stream: &mut SendHalf, pty: bool) -> Result<(), StreamError> {
    let mut resized = if pty { signal(SignalKind::window_change()).ok() } else { None };
    if pty {
        send_window(stream).await?;
    }
    let mut input = Input::start();
    loop {
        let chunk = tokio::select! {
            chunk = input.next() => chunk,
            () = next(&mut resized) => {
                send_window(stream).await?;
                continue;
            }
        };
        let Some((chunk, length)) = chunk else { break };
        stream.send(chunk.message(length)).await?;
        input.give_back(chunk);
    }
    stream.send(&Message::End.to_bytes()).await?;
    loop {
        next(&mut resized).await;
        send_window(stream).await?;
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
