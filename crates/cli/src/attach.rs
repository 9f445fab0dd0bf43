//! The client's end of a session: standard input, output and error, the terminal, and signals.
//!
//! Input and output each have a thread of their own, because reading and writing them may block for
//! ever: the exit waits for neither. Between them and the stream lie a few buffers of 64 KiB, so that
//! a fast side waits for a slow one, and memory stays the same however much passes.

mod escape;
mod input;
mod output;
pub mod signals;
mod terminal;

use std::time::Duration;

use levada_capability::Capability;
use levada_node::client::{Client, ClientError, Running};
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

/// How long the last words to the node may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// A shell gives this exit code for SIGHUP, which is what the escape sequence amounts to.
const HUNG_UP: u8 = 129;

/// Starts the session of `capability` and stays with it until it ends; gives the program's exit code.
pub async fn start(client: &Client, capability: &Capability, escape: Escape) -> Outcome {
    let running = client.connect(capability).await?;
    stay(client, running, has_terminal(capability), escape).await
}

/// Whether the program of this session has a terminal.
pub fn has_terminal(capability: &Capability) -> bool {
    capability.params().value("pty").is_some()
}

/// Stays with a session that has been started until it ends; gives the program's exit code.
pub async fn stay(client: &Client, running: Running, pty: bool, escape: Escape) -> Outcome {
    let outcome = attach(running.stream, pty, escape).await;
    client.close();
    running.connection.close(0, "");
    // A session that is given up must hear of it before this process is gone.
    let _ = timeout(FAREWELL, running.connection.flushed()).await;
    outcome
}

async fn attach(stream: Stream, pty: bool, escape: Escape) -> Outcome {
    let mut signals = Signals::new()?;
    // Restores the terminal on every way out of here, a panic included.
    let raw = if pty { RawMode::enter()? } else { None };
    let (send, receive) = stream.split();
    let (leave, mut left) = oneshot::channel();
    // What is typed on no terminal has no escape sequences: it may be a file.
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

/// Passes on what the service says, until it says that the program has ended.
async fn receive_all(mut stream: ReceiveHalf) -> Outcome {
    let mut output = Output::start();
    loop {
        let mut message = output.buffer();
        if !stream.receive_into(&mut message, MAX_MESSAGE).await.map_err(lost)? {
            return Err(Failure::new(PROTOCOL, "the session ended without an exit code"));
        }
        match Message::decode(&message).map_err(broken)? {
            Message::Data(_) | Message::Error(_) => match output.write(message).await {
                Written::Taken => {}
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
