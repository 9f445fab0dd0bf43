//! What a program prints: passed on as long as whoever started it is there.
//!
//! The program never has the outputs of the command itself: they would stay open for as long as it runs,
//! and whoever reads them would wait for that.

use std::fs::OpenOptions;
use std::time::Duration;

use levada_services::exec::program::{Group, Tail};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, stderr, stdout};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long others may keep the outputs of a program open that has ended.
const LEFT_OPEN: Duration = Duration::from_millis(200);
/// How much is read at a time, in bytes.
const PART: usize = 16 * 1024;

/// The outputs of one program.
pub(super) struct Printed {
    tail: Tail,
    outputs: JoinSet<()>,
}

impl Printed {
    /// Passes on what `program` prints, if its outputs are pipes.
    pub(super) fn of(program: &mut Group) -> Self {
        let (tail, mut outputs) = (Tail::default(), JoinSet::new());
        if let Some(output) = program.take_output() {
            outputs.spawn(pass(output, stdout(), tail.clone()));
        }
        if let Some(error) = program.take_error() {
            outputs.spawn(pass(error, stderr(), tail.clone()));
        }
        Self { tail, outputs }
    }

    /// The program has ended: waits for what it has left, and gives the last line.
    pub(super) async fn rest(mut self) -> String {
        let _ =
            timeout(LEFT_OPEN, async { while self.outputs.join_next().await.is_some() {} }).await;
        self.tail.last_line()
    }
}

/// Nobody reads what this process prints any more.
pub(super) fn silence() {
    if let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(&nowhere);
        let _ = dup2_stderr(&nowhere);
    }
}

/// Whether anybody takes it or not, the program goes on.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, tail: Tail) {
    let mut part = vec![0; PART];
    while let Ok(length @ 1..) = from.read(&mut part).await {
        tail.note(&part[..length]);
        let _ = to.write_all(&part[..length]).await;
        let _ = to.flush().await;
    }
}
