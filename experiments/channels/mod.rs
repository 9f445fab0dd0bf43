//! The experiments on secure channels: throughput, connection establishment, input latency, and
//! commands beside ssh.

mod commands;
mod connect;
mod ends;
mod figures;
mod input;
mod levada;
mod node;
mod peer;
mod report;
mod screens;
mod subject;
mod targets;
mod tcp;
mod throughput;
pub(crate) mod tls;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use levada_harness::{HarnessError, Options, read_rows};

use crate::measuring::{Outcome, file};

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Bytes per second, and per second of CPU time, by message length and framing
    Throughput(throughput::Arguments),
    /// The time from connecting to the first byte of a reply, and the CPU time of both sides
    Connect(connect::Arguments),
    /// The latency of input events on an idle link and beside bulk that fills it; and between real
    /// screens
    Input(input::Arguments),
    /// A forwarded connection and a command, beside ssh
    Commands(commands::Arguments),
    /// All of them, one after the other
    All(Shared),
    /// Draw the figures again from the rows in a folder
    Figures {
        /// The folder of the rows
        dir: PathBuf,
    },
    /// Print the rows in a folder as tables in Markdown
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
}

/// Draws the figures of the rows in a folder, into that folder.
pub use figures::draw;
/// Every table that the rows in a folder allow.
pub use report::tables;

/// Runs the experiment.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.experiment {
        Experiment::Throughput(arguments) => {
            conclude(&arguments.shared, throughput::run(&arguments)?)
        }
        Experiment::Connect(arguments) => conclude(&arguments.shared, connect::run(&arguments)?),
        Experiment::Input(arguments) => conclude(&arguments.shared, input::run(&arguments)?),
        Experiment::Commands(arguments) => conclude(&arguments.shared, commands::run(&arguments)?),
        Experiment::All(shared) => conclude(&shared, all(&shared)?),
        Experiment::Figures { dir } => figures::draw(&dir),
        Experiment::Report { dir } => crate::table::print(&tables(&dir)?),
    }
}

/// The options of all experiments.
type Shared = Options;

fn all(shared: &Shared) -> anyhow::Result<Outcome> {
    if let Some(folder) = &shared.out {
        // Checked before the first measurement, not after it.
        let others = [connect::NAME, input::NAME, screens::NAME, commands::NAME];
        for path in others.map(|name| file(folder, name)) {
            if !read_rows(&path)?.is_empty() {
                return Err(HarnessError::RowsThere(path).into());
            }
        }
    }
    let start = Instant::now();
    let remaining = || {
        let spent = start.elapsed().as_secs() / 60;
        Shared { limit: shared.limit.map(|limit| limit.saturating_sub(spent)), ..shared.clone() }
    };
    let outcome = throughput::run(&throughput::Arguments::all(remaining()))?;
    let outcome = outcome.and(connect::run(&connect::Arguments::all(remaining()))?);
    let outcome = outcome.and(input::run(&input::Arguments::all(remaining()))?);
    Ok(outcome.and(commands::run(&commands::Arguments::all(remaining()))?))
}

fn conclude(shared: &Shared, outcome: Outcome) -> anyhow::Result<()> {
    outcome.conclude(shared, figures::draw, targets::table)
}
