//! A started program and its ends of the pipes.

use std::io;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, Command};
use tokio::signal::unix::Signal as Signals;

use super::config::Plan;
use super::pty::{self, Terminal};
use crate::program::{Group, Output, Scope, starting};
use crate::stdio::Window;

/// A program that was started.
pub(super) struct Process {
    pub(super) input: Input,
    pub(super) group: Group,
}

/// Starts the program in a process group of its own.
pub(super) fn start(plan: &Plan) -> io::Result<Process> {
    starting(|children| match plan.window {
        Some(window) => pty::start(command(plan), window, children),
        None => start_with_pipes(command(plan), children),
    })
}

fn command(plan: &Plan) -> Command {
    let mut command = Command::new(&plan.path);
    command.arg0(&plan.program).args(&plan.args).env_clear().envs(&plan.environment);
    if let Some(directory) = &plan.directory {
        command.current_dir(directory);
    }
    command
}

fn start_with_pipes(mut command: Command, children: Signals) -> io::Result<Process> {
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut group = Group::new(child, Scope::Group, children)?;
    group.output = output.map(|output| Box::new(output) as Output);
    group.error = error.map(|error| Box::new(error) as Output);
    Ok(Process { input: input.map_or(Input::Closed, Input::Pipe), group })
}

/// Where input goes.
pub(super) enum Input {
    Pipe(ChildStdin),
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
