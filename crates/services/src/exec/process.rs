//! A started program and its ends of the pipes.

use std::io;

use levada_service::stdio::Window;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

use super::config::Plan;
use super::pty::Terminal;
use crate::exec::program::Group;

/// A program that was started.
pub(super) struct Process {
    pub(super) input: Input,
    pub(super) group: Group,
}

/// Starts the program, in a process group of its own or, on a terminal, in a session of its own.
pub(super) async fn start(plan: &Plan) -> io::Result<Process> {
    let mut group = Group::start_at_once(&plan.launch).await?;
    let input = match (group.master.take(), group.input.take()) {
        (Some(master), _) => Input::Terminal(Terminal::new(master)),
        (None, Some(pipe)) => Input::Pipe(pipe),
        (None, None) => Input::Closed,
    };
    Ok(Process { input, group })
}

/// Where input goes.
pub(super) enum Input {
    Pipe(pipe::Sender),
    Terminal(Terminal),
    /// The program takes no more; what still comes is discarded.
    Closed,
}

impl Input {
    /// Waits until the program, or a buffer before it, has taken all of `bytes`.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        let result = match self {
            Self::Pipe(pipe) => pipe.write_all(bytes).await,
            Self::Terminal(terminal) => terminal.write(bytes).await,
            Self::Closed => return,
        };
        // That nobody reads is no error: the program decides how much it takes.
        if result.is_err() {
            *self = Self::Closed;
        }
    }

    /// Lets the program see the end of its input.
    pub(super) async fn end(&mut self) {
        match self {
            // The terminal stays, it may still change its size.
            Self::Terminal(terminal) => drop(terminal.end().await),
            Self::Pipe(_) | Self::Closed => *self = Self::Closed,
        }
    }

    /// Gives the terminal another size, if there is a terminal.
    pub(super) fn resize(&self, window: Window) {
        if let Self::Terminal(terminal) = self {
            terminal.resize(window);
        }
    }
}
