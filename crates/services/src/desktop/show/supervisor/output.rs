//! The output of a program: forwarded while the command that started it is connected.
//!
//! The program does not inherit the command's outputs: they would stay open until the program ends,
//! and a reader of them would wait for that.

use std::fs::OpenOptions;
use std::time::Duration;

use rustix::stdio::{dup2_stderr, dup2_stdout};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, stderr, stdout};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::exec::program::{Group, Tail};

/// How long to read further output after the program has ended: other processes may keep its pipes
/// open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Bytes of one read.
const PART: usize = 16 * 1024;

/// The outputs of one program.
pub(super) struct ProgramOutput {
    tail: Tail,
    outputs: JoinSet<()>,
}

impl ProgramOutput {
    /// Forwards the output of `program`, if its outputs are pipes.
    pub(super) fn of(program: &mut Group) -> Self {
        let tail = Tail::default();
        let mut outputs = JoinSet::new();
        if let Some(output) = program.take_output() {
            outputs.spawn(forward(output, stdout(), tail.clone()));
        }
        if let Some(error) = program.take_error() {
            outputs.spawn(forward(error, stderr(), tail.clone()));
        }
        Self { tail, outputs }
    }

    /// Forwards the remaining output of a program that has ended; returns its last line.
    pub(super) async fn finish(mut self) -> String {
        let _ = timeout(DRAIN_TIMEOUT, async { while self.outputs.join_next().await.is_some() {} })
            .await;
        self.tail.last_line()
    }
}

/// Redirects the outputs of this process to /dev/null, once the command has disconnected.
pub(super) fn discard() {
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

/// Copies until the end of `from`. A failed write is ignored, so that the program is never blocked.
async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, tail: Tail) {
    let mut part = vec![0; PART];
    while let Ok(length @ 1..) = from.read(&mut part).await {
        tail.note(&part[..length]);
        let _ = to.write_all(&part[..length]).await;
        let _ = to.flush().await;
    }
}
