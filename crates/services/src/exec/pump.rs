//! Moves bytes between a stream and a program, both ways at once and with back-pressure, until the
//! program or the client has ended.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::time::Duration;

use levada_service::stdio::{Chunk, Inbox, Message, StdioError, Tag};
use levada_service::{ServiceError, exit};
use levada_session::{ReceiveHalf, SendHalf, Stream};
use tokio::io::AsyncReadExt;
use tokio::select;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::process::{Input, Process};
use crate::exec::program::{Group, Output};

/// How long others may keep a program's output open after it has ended.
const LEFT_OPEN: Duration = Duration::from_millis(200);
/// How often the stream is looked at: while the program takes no input nothing is read from it, and
/// nobody would notice that the client went away.
const PULSE: Duration = Duration::from_secs(1);
/// How much an ended program can have left in a pipe, in bytes: the most that the kernel gives to
/// those without privileges (`/proc/sys/fs/pipe-max-size`).
const PIPE: usize = 1024 * 1024;

/// Runs the session to its end. Everything happens in this one future: when it is dropped, the
/// program's group is dropped with it.
pub(super) async fn run(process: Process, stream: Stream) -> Result<(), ServiceError> {
    let (mut send, mut receive) = stream.split();
    let Process { input, mut group } = process;
    let code = select! {
        ended = feed(&mut receive, input) => return Err(ended),
        code = drain(&mut send, &mut group) => code?,
    };
    // Before the client hears of the end: no process that the program has left outlives it.
    group.end().await;
    Ok(exit(send, receive, code).await?)
}

/// Takes the client's messages until it goes away: returns why.
async fn feed(receive: &mut ReceiveHalf, mut input: Input) -> ServiceError {
    let mut inbox = Inbox::new();
    loop {
        match inbox.next(receive).await {
            Ok(Some(Message::Data(bytes))) => input.write(bytes).await,
            Ok(Some(Message::End)) => input.end().await,
            Ok(Some(Message::Window(window))) => input.resize(window),
            Ok(Some(_)) => return StdioError::Direction.into(),
            Ok(None) => return ServiceError::Gone,
            Err(error) => return error.into(),
        }
    }
}

/// Sends the program's output until it has ended: returns its exit code.
async fn drain(send: &mut SendHalf, group: &mut Group) -> Result<u8, ServiceError> {
    let Group { output, error, exit, .. } = group;
    let mut output = Source::new(Tag::Data, output);
    let mut error = Source::new(Tag::Error, error);
    let mut pulse = interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let code = loop {
        select! {
            read = output.read() => output.pass(read, send).await?,
            read = error.read() => error.pass(read, send).await?,
            code = exit.code() => break code,
            // An empty part sends nothing, and fails if the stream has ended.
            _ = pulse.tick() => send.write(b"", false).await?,
        }
    };
    rest(send, &mut output, &mut error).await?;
    code.map_err(|error| ServiceError::Failed(format!("the program's exit code is lost: {error}")))
}

/// Sends what an ended program has left: all that it wrote itself, and what others write to its
/// output for a short while more.
async fn rest(
    send: &mut SendHalf,
    output: &mut Source<'_>,
    error: &mut Source<'_>,
) -> Result<(), ServiceError> {
    let limit = Instant::now() + LEFT_OPEN;
    let mut limit_passes = pin!(sleep_until(limit));
    output.left = PIPE;
    error.left = PIPE;
    loop {
        let late = Instant::now() >= limit;
        let (some_output, some_error) = (output.wanted(late), error.wanted(late));
        if !some_output && !some_error {
            return Ok(());
        }
        select! {
            // In this order: after the limit, what can be read at once is still read.
            biased;
            read = output.read(), if some_output => output.pass(read, send).await?,
            read = error.read(), if some_error => error.pass(read, send).await?,
            () = &mut limit_passes => return Ok(()),
        }
    }
}

/// One of the program's outputs, and the message that it is read into.
struct Source<'a> {
    output: &'a mut Option<Output>,
    chunk: Chunk,
    /// How much is read at most after the limit, in bytes.
    left: usize,
}

impl<'a> Source<'a> {
    fn new(tag: Tag, output: &'a mut Option<Output>) -> Self {
        Self { output, chunk: Chunk::new(tag), left: 0 }
    }

    fn wanted(&self, late: bool) -> bool {
        self.output.is_some() && (!late || self.left > 0)
    }

    /// Never returns once the output has ended.
    async fn read(&mut self) -> io::Result<usize> {
        match self.output {
            Some(output) => output.read(self.chunk.space()).await,
            None => pending().await,
        }
    }

    /// Sends what was read.
    async fn pass(
        &mut self,
        read: io::Result<usize>,
        send: &mut SendHalf,
    ) -> Result<(), ServiceError> {
        match read {
            // A terminal ends with an error (EIO) when its last program closes it.
            Ok(0) | Err(_) => *self.output = None,
            Ok(length) => {
                self.left = self.left.saturating_sub(length);
                send.send(self.chunk.message(length)).await?;
            }
        }
        Ok(())
    }
}
