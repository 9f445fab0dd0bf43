//! The experiments on sessions with middleboxes (mcTLS).

mod connections;
mod levada;
mod line;
mod report;
mod tls;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use levada_harness::Options;

use crate::measuring::Outcome;

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// The CPU time of a connection at each party, and the bytes of its handshake on each link
    Connections(Options),
    /// All of them
    All(Options),
    /// Print the rows in a folder as tables in Markdown
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
}

/// Runs the experiment.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.experiment {
        Experiment::Connections(options) | Experiment::All(options) => {
            conclude(&options, connections::run(&options)?)
        }
        Experiment::Report { dir } => report::print(&dir),
    }
}

fn conclude(options: &Options, outcome: Outcome) -> anyhow::Result<()> {
    outcome.conclude(options, |_| Ok(()), report::targets)
}
