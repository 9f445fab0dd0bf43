//! `levada fast`: runs a program with fast sockets, and shows those of all programs.

pub mod child;
mod launch;
mod report;
mod stats;
mod top;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use launch::Launch;
use stats::Stats;

/// Run a program with its sockets carried over shared memory
///
/// A TCP connection leaves the kernel at its second exchange if the other end is a program under
/// `levada fast` of the same user on this host. Every other connection stays on TCP. The program
/// needs no change; it must be dynamically linked. A static program, and one with the set-user-ID
/// bit, simply runs: the dynamic linker does not load the library into it. LEVADA_FAST_LIBRARY is
/// the library, if it is not in its place beside this binary.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  levada fast -- redis-server
  levada fast --stats -- redis-benchmark -t get
  levada fast --direct -- nginx     connections to other such programs are made without the kernel
  levada fast --stats=stats.json -- wrk http://127.0.0.1:8080/
  levada fast top                   the connections of all programs; `levada fast -- top` runs a program

The exit code is that of the program, or 128 and the number of the signal that ended it."
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,

    /// Print what its connections have carried when it has ended, to standard error; as JSON if a
    /// file is given
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,

    /// Connect to listeners of other programs with this option without the kernel
    ///
    /// Such connections differ from the kernel's in more ways: docs/fast.md lists them.
    #[arg(long, env = "LEVADA_FAST_DIRECT", value_parser = clap::builder::FalseyValueParser::new())]
    direct: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Action {
    Top(top::Top),
}

pub async fn run(arguments: Arguments) -> Outcome {
    if let Some(Action::Top(top)) = arguments.action {
        return top::run(top).await;
    }
    let stats = arguments.stats.map(Stats::new).transpose()?;
    let Launch { mut command, monitor } =
        Launch::prepare(&arguments.program, arguments.direct).await?;
    match stats {
        Some(stats) => stats.run(&command, monitor).await,
        None => {
            // It returns only if the program cannot be run.
            let error = command.exec();
            Err(child::cannot_run(command.get_program(), &error))
        }
    }
}
