//! Runs a program: copies bytes between it and a stream in both directions, with back-pressure,
//! until the program has ended or the client has disconnected.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::time::Duration;

use levada_service::stdio::{Chunk, Message, MessageReader, StdioError, Tag};
use levada_service::{ServiceError, exit, fail};
use levada_session::{ReceiveHalf, SendHalf, Stream};
use tokio::io::AsyncReadExt;
use tokio::select;
use tokio::time::{Instant, sleep_until};

use super::policy::Plan;
use super::process::{self, Input, Process};
use crate::exec::program::{Group, Output};

/// How long descendants may keep the output of an ended program open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// The most that an ended program can have left in a pipe, in bytes: the kernel's limit for
/// unprivileged processes (`/proc/sys/fs/pipe-max-size`).
const MAX_PIPE: usize = 1024 * 1024;

/// Starts the program, and runs the session to its end. There is no other task: dropping this
/// future drops the program's group.
pub(super) async fn run(plan: &Plan, stream: Stream) -> Result<(), ServiceError> {
    match process::start(plan).await {
        Ok(process) => carry(process, stream).await,
        Err(error) => {
            let text = format!("cannot start {:?}: {error}", plan.program);
            fail(stream, ServiceError::Failed(text)).await
        }
    }
}

async fn carry(process: Process, stream: Stream) -> Result<(), ServiceError> {
    let (mut send, mut receive) = stream.split();
    let Process { input, mut group } = process;
    let code = select! {
        ended = feed(&mut receive, input) => return Err(ended),
        code = drain(&mut send, &mut group) => code?,
    };
    // Before the exit code is sent: no descendant of the program outlives the session.
    group.end().await;
    Ok(exit(send, receive, code).await?)
}

/// Passes the client's messages to the program until the stream ends or an invalid message arrives:
/// returns why.
async fn feed(receive: &mut ReceiveHalf, mut input: Input) -> ServiceError {
    let mut reader = MessageReader::new();
    loop {
        match reader.next(receive).await {
            Ok(Some(Message::Data(bytes))) => input.write(bytes).await,
            Ok(Some(Message::End)) => input.end().await,
            Ok(Some(Message::Window(window))) => input.resize(window),
            Ok(Some(_)) => return StdioError::Direction.into(),
            Ok(None) => return ServiceError::Gone,
            Err(error) => return error.into(),
        }
    }
}

/// Sends the program's output until it has ended, and returns its exit code.
async fn drain(send: &mut SendHalf, group: &mut Group) -> Result<u8, ServiceError> {
    let Group { output, error, exit, .. } = group;
    let mut output = Source::new(Tag::Data, output);
    let mut error = Source::new(Tag::Error, error);
    // While the program reads no input, `feed` reads nothing from the stream, and does not detect
    // its end.
    let mut closed = send.closed();
    let code = loop {
        select! {
            read = output.read() => output.forward(read, send).await?,
            read = error.read() => error.forward(read, send).await?,
            code = exit.code() => break code,
            reason = &mut closed => return Err(reason.into()),
        }
    };
    drain_ended(send, &mut output, &mut error).await?;
    code.map_err(|error| ServiceError::Failed(format!("the program's exit code is lost: {error}")))
}

/// Sends the remaining output of an ended program: everything that it wrote itself, and what its
/// descendants write within [`DRAIN_TIMEOUT`].
async fn drain_ended(
    send: &mut SendHalf,
    output: &mut Source<'_>,
    error: &mut Source<'_>,
) -> Result<(), ServiceError> {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    let mut timeout = pin!(sleep_until(deadline));
    output.left = MAX_PIPE;
    error.left = MAX_PIPE;
    loop {
        let late = Instant::now() >= deadline;
        let read_output = output.is_open(late);
        let read_error = error.is_open(late);
        if !read_output && !read_error {
            return Ok(());
        }
        select! {
            // In this order: after the deadline, what is already in the pipes is still read.
            biased;
            read = output.read(), if read_output => output.forward(read, send).await?,
            read = error.read(), if read_error => error.forward(read, send).await?,
            () = &mut timeout => return Ok(()),
        }
    }
}

/// One of the program's outputs, and the message that it is read into.
struct Source<'a> {
    output: &'a mut Option<Output>,
    chunk: Chunk,
    /// The bytes that may still be read after the deadline of [`drain_ended`].
    left: usize,
}

impl<'a> Source<'a> {
    fn new(tag: Tag, output: &'a mut Option<Output>) -> Self {
        Self { output, chunk: Chunk::new(tag), left: 0 }
    }

    /// Whether to read on; `late` says that the deadline has passed.
    fn is_open(&self, late: bool) -> bool {
        self.output.is_some() && (!late || self.left > 0)
    }

    /// Never returns once the output has ended.
    async fn read(&mut self) -> io::Result<usize> {
        match self.output {
            Some(output) => output.read(self.chunk.space()).await,
            None => pending().await,
        }
    }

    /// Sends the result of [`Self::read`].
    async fn forward(
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
