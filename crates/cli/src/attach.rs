//! The client's end of a session: standard input, output and error, the terminal, and signals.
//!
//! Input and output each have a thread, because a read or write of them may block for ever; the
//! exit waits for neither. A few buffers of 64 KiB lie between each thread and the stream: a fast
//! side waits for a slow one, and memory stays constant.

mod escape;
mod input;
mod output;
pub mod signals;
mod terminal;

use std::time::Duration;

use levada_capability::Capability;
use levada_client::{Client, ClientError, Running};
use levada_service::stdio::{MAX_MESSAGE, Message, StdioError};
use levada_session::{ReceiveHalf, Stream, StreamError};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::failure::{Failure, Outcome, PROTOCOL};
use output::{Output, Written};
use terminal::RawMode;

pub use escape::Escape;
pub use output::write_all;
pub use signals::Signals;
pub use terminal::window;

/// How long the close may take to reach the node.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The escape sequence ends the session as SIGHUP would: a shell gives that signal this exit code.
const HUNG_UP: u8 = 129;

/// Starts the session of `capability` and attaches to it until it ends; returns the program's exit
/// code.
pub async fn start(client: &Client, capability: &Capability, escape: Escape) -> Outcome {
    let running = client.connect(capability).await?;
    attach(client, running, has_terminal(capability), escape).await
}

/// Whether the program of this session has a terminal.
pub fn has_terminal(capability: &Capability) -> bool {
    capability.params().value("pty").is_some()
}

/// Attaches to a started session until it ends; returns the program's exit code.
pub async fn attach(client: &Client, running: Running, pty: bool, escape: Escape) -> Outcome {
    let outcome = transfer(running.stream, pty, escape).await;
    client.close();
    running.connection.close(0, "");
    // The node ends an abandoned session when it receives the close, so that must leave before this
    // process exits.
    let _ = timeout(CLOSE_TIMEOUT, running.connection.flushed()).await;
    outcome
}

/// Carries input and output until the session ends, a signal arrives or the escape sequence is
/// typed.
async fn transfer(stream: Stream, pty: bool, escape: Escape) -> Outcome {
    let mut signals = Signals::new()?;
    // Restores the terminal when dropped, also on a panic.
    let raw = if pty { RawMode::enter()? } else { None };
    let (send, receive) = stream.split();
    let (leave, mut left) = oneshot::channel();
    // Input that is not typed on a terminal has no escape sequences: it may be a file.
    let typed = raw.as_ref().and(Some((escape, leave)));
    let input = tokio::spawn(input::pump(send, pty, typed));
    let outcome = tokio::select! {
        outcome = receive_all(receive) => outcome,
        code = signals.end() => Ok(code),
        Ok(()) = &mut left => {
            drop(raw);
            crate::output::note(format_args!("levada: the session was ended by {escape}."));
            Ok(HUNG_UP)
        }
    };
    // Dropping the sending half of a session that still runs ends it.
    input.abort();
    let _ = input.await;
    outcome
}

/// Writes the service's output until the message with the exit code.
async fn receive_all(mut stream: ReceiveHalf) -> Outcome {
    let mut output = Output::start();
    loop {
        let mut message = output.buffer();
        if !stream.receive_into(&mut message, MAX_MESSAGE).await.map_err(lost)? {
            return Err(Failure::new(PROTOCOL, "the session ended without an exit code"));
        }
        match Message::decode(&message).map_err(broken)? {
            Message::Data(_) | Message::Error(_) => match output.write(message).await {
                Written::Queued => {}
                Written::Ended(end) => return end,
            },
            Message::Failure(text) => crate::output::note(format_args!("levada: {text}")),
            Message::Exit(code) => return output.finish().await.map(|_| code),
            Message::End | Message::Window(_) => return Err(broken(StdioError::Direction)),
        }
    }
}

fn lost(error: StreamError) -> Failure {
    ClientError::from(error).into()
}

fn broken(error: StdioError) -> Failure {
    Failure::new(PROTOCOL, format!("the service sent {error}"))
}
