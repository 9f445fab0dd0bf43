//! A started program, and this side of its standard input.

use std::io;

use levada_service::stdio::Window;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

use super::policy::Plan;
use super::pty::Terminal;
use crate::exec::program::Group;

/// A started program.
pub(super) struct Process {
    pub(super) input: Input,
    pub(super) group: Group,
}

/// Starts the program of `plan`.
pub(super) async fn start(plan: &Plan) -> io::Result<Process> {
    let mut group = Group::start_with_spare(&plan.launch).await?;
    let input = match (group.master.take(), group.input.take()) {
        (Some(master), _) => Input::Terminal(Terminal::new(master)),
        (None, Some(pipe)) => Input::Pipe(pipe),
        (None, None) => Input::Closed,
    };
    Ok(Process { input, group })
}

/// The program's standard input.
pub(super) enum Input {
    Pipe(pipe::Sender),
    Terminal(Terminal),
    /// The program has closed it; further input is discarded.
    Closed,
}

impl Input {
    /// Waits until the kernel has accepted all of `bytes`.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        let result = match self {
            Self::Pipe(pipe) => pipe.write_all(bytes).await,
            Self::Terminal(terminal) => terminal.write(bytes).await,
            Self::Closed => return,
        };
        // A program that stops reading is not an error.
        if result.is_err() {
            *self = Self::Closed;
        }
    }

    /// Signals the end of the input to the program.
    pub(super) async fn end(&mut self) {
        match self {
            // The terminal stays open: its size may still change.
            Self::Terminal(terminal) => drop(terminal.end().await),
            Self::Pipe(_) | Self::Closed => *self = Self::Closed,
        }
    }

    /// Sets the size of the terminal, if there is one.
    pub(super) fn resize(&self, window: Window) {
        if let Self::Terminal(terminal) = self {
            terminal.resize(window);
        }
    }
}
