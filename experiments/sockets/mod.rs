//! The experiments on sockets between processes of one host.

mod apps;
mod breakdown;
mod calls;
mod connections;
mod exchange;
mod experiment;
mod fast;
mod figures;
mod lines;
mod one_sided;
mod peer;
mod profile;
mod remap;
mod report;
mod scripts;
mod several;
mod subject;
mod targets;

use std::path::PathBuf;
use std::thread;

use anyhow::Context;
use clap::{Args, Subcommand};
use levada_harness::{Measured, Options, Row};

use experiment::Experiment;

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Selected,
}

#[derive(Subcommand)]
enum Selected {
    /// The round trip of a message, over its length
    Latency(Options),
    /// Messages in one direction, over their length
    Throughput(Options),
    /// The same at 1 MiB, with a receiver that reads each byte
    Read(Options),
    /// Messages of 8 B in one direction, with and without Nagle's algorithm
    Nagle(Options),
    /// Connections per second, over the exchanges of each
    Connections(Options),
    /// Connections per second, 64 at a time
    Many(Options),
    /// The rate of the shortest messages, over the number of pairs of threads; each thread has a
    /// core while there are enough
    Cores(Options),
    /// The round trip, over the number of pairs of threads on one core
    Sharing(Options),
    /// A pair of threads and a busy program on one core
    Contended(Options),
    /// What an operation, a message, a kilobyte and a connection cost
    Breakdown(Options),
    /// What fast sockets cost a connection whose peer has none
    OneSided(Options),
    /// The rate around a fork of the receiver and of the sender
    Fork(Options),
    /// The memory of quiet connections
    Idle(Options),
    /// Copying long messages, against remapping their pages
    Remap(Options),
    /// nginx, redis, memcached, iperf3 and PostgreSQL, with and without fast sockets
    Apps(Options),
    /// All of these, one after the other
    All(Options),
    /// Measure one subject once, in this process
    #[command(hide = true)]
    Part(fast::Part),
    /// Send messages back
    #[command(hide = true)]
    Serve(peer::Serve),
    /// Measure calls on a socket
    #[command(hide = true)]
    Calls(calls::Calls),
    /// Exchange messages over TCP
    #[command(hide = true)]
    Exchange {
        /// Round trips
        trips: u32,
    },
    /// Use a core
    #[command(hide = true)]
    Busy,
    /// Draw the figures of the rows in a folder again
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
    let (options, experiments): (_, &[&Experiment]) = match &arguments.experiment {
        Selected::Latency(options) => (options, &[&experiment::LATENCY]),
        Selected::Throughput(options) => (options, &[&experiment::THROUGHPUT]),
        Selected::Read(options) => (options, &[&experiment::READ]),
        Selected::Nagle(options) => (options, &[&experiment::NAGLE]),
        Selected::Many(options) => (options, &[&experiment::MANY]),
        Selected::Contended(options) => (options, &[&experiment::CONTENDED]),
        Selected::Connections(options) => (options, &[&experiment::CONNECTIONS]),
        Selected::Cores(options) => (options, &[&experiment::CORES]),
        Selected::Sharing(options) => (options, &[&experiment::SHARING]),
        Selected::Breakdown(options) => (options, &[&experiment::BREAKDOWN]),
        Selected::OneSided(options) => (options, &[&experiment::ONE_SIDED]),
        Selected::Fork(options) => return scripts::fork(options),
        Selected::Idle(options) => return scripts::idle(options),
        Selected::Remap(options) => return remap::run(options),
        Selected::Apps(options) => return apps::run(options),
        Selected::All(options) => (options, &experiment::ALL),
        Selected::Part(part) => return part.run(),
        Selected::Serve(serve) => return serve.run(),
        Selected::Calls(calls) => return calls.run(),
        Selected::Exchange { trips } => return profile::exchange(*trips),
        Selected::Busy => return several::use_core(),
        Selected::Figures { dir } => return figures::draw(dir),
        Selected::Report { dir } => return crate::table::print(&tables(dir)?),
    };
    for experiment in experiments {
        let table = |rows: &[Row]| report::table(experiment, rows);
        experiment.measure(options)?.conclude(options, figures::draw, table)?;
    }
    if let Selected::All(options) = &arguments.experiment {
        scripts::fork(options)?;
        scripts::idle(options)?;
        remap::run(options)?;
        apps::run(options)?;
    }
    Ok(())
}

/// Measures in a thread of its own: threads inherit the core to which one is pinned.
fn apart(
    one: impl FnOnce() -> anyhow::Result<Vec<Measured>> + Send + 'static,
) -> anyhow::Result<Vec<Measured>> {
    thread::spawn(one).join().ok().context("the measuring thread panicked")?
}
