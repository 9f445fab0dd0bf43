//! `levada completions`: prints the completion script of a shell.

use crate::failure::Outcome;
use crate::output;
use clap::{Args, Command};
use clap_complete::Shell;

/// Print the completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:
  levada completions bash > ~/.local/share/bash-completion/completions/levada")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: Arguments, mut command: Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "levada", &mut script);
    output::bytes(&script)
}
