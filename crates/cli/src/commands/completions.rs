//! `levada completions`: prints the completion script of a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Outcome;
use crate::output;

const BASH: &str = include_str!("completions/levada.bash");
const FISH: &str = include_str!("completions/levada.fish");
const ZSH: &str = include_str!("completions/levada.zsh");

/// Print the completion script for a shell
///
/// In bash, zsh and fish, also the names of this home are completed: nodes, services that were seen
/// (`levada query`, `levada ls`), sessions, shares and objects. Nothing is sent to other machines.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada completions bash > ~/.local/share/bash-completion/completions/levada
  levada completions fish > ~/.config/fish/completions/levada.fish
  levada completions zsh > ~/.zfunc/_levada       (a folder of fpath)")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: Arguments, mut command: Command) -> Outcome {
    match arguments.shell {
        Shell::Bash => output::bytes(BASH.as_bytes()),
        Shell::Fish => output::bytes(FISH.as_bytes()),
        Shell::Zsh => output::bytes(ZSH.as_bytes()),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut command, "levada", &mut script);
            output::bytes(&script)
        }
    }
}
