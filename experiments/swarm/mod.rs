//! The experiments on the swarm.

mod complete;
mod crowd;
mod figures;
mod flow;
mod links;
mod loss;
mod mediated;
mod memory;
mod part;
mod report;
mod rtt;
mod simulated;
mod single;
mod subject;

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Goodput over a path that loses packets, the share beside a flow of TCP, and CPU time per
    /// byte, by controller
    Loss(loss::Arguments),
    /// One file to ten clients on links of 100 Mbit/s, beside libtorrent, and nginx with curl
    Links(links::Arguments),
    /// A coordinator with 10,000 registered connections that do nothing: memory, and the time of a
    /// peer that fetches
    Crowd(levada_harness::Options),
    /// Mediated mode over the number of peers, with real sockets on this machine
    Mediated(levada_harness::Options),
    /// The memory of `levada share` and `levada get` with a large file
    Memory(levada_harness::Options),
    #[command(hide = true, subcommand)]
    Part(part::Part),
    /// Direct mode over the number of peers, in the simulator
    Scale(simulated::ScaleArguments),
    /// Mediated mode over the number of peers, in the simulator
    Load(levada_harness::Options),
    /// Mediated mode over the size of the cache, in the simulator
    Cache(levada_harness::Options),
    /// Mediated mode with chunks in stripes and in blocks, requested in sequential and in random
    /// order, in the simulator
    Order(levada_harness::Options),
    /// The fixed timers of the paper beside those of transports, with lost packets, in the
    /// simulator
    Timers(levada_harness::Options),
    /// The time of each chunk from its request to its verified arrival, for both transport swaps
    Rtt(levada_harness::Options),
    /// Whether all peers have the file in the end, with real sockets and in the simulator
    Complete(levada_harness::Options),
    /// One large file to one peer over loopback, beside scp
    Single(levada_harness::Options),
    #[command(hide = true)]
    Simulate(simulated::Once),
    /// All of these, one after the other
    All(levada_harness::Options),
    /// Print the rows in a folder as tables in Markdown
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
    /// Draw the figures of the rows in a folder, into that folder
    Figures {
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
        Experiment::Loss(arguments) => {
            loss::run(&arguments)?.conclude(&arguments.options, |_| Ok(()), report::targets)
        }
        Experiment::Links(arguments) => run_links(&arguments),
        Experiment::Crowd(options) => {
            crowd::run(&options)?.conclude(&options, |_| Ok(()), report::crowd)
        }
        Experiment::Scale(scale) => simulate(scale.experiment(), &scale.options),
        Experiment::Load(options) => simulate(&simulated::LOAD, &options),
        Experiment::Cache(options) => simulate(&simulated::CACHE, &options),
        Experiment::Timers(options) => simulate(&simulated::TIMERS, &options),
        Experiment::Rtt(options) => run_rtt(&options),
        Experiment::Complete(options) => run_complete(&options),
        Experiment::Single(options) => run_single(&options),
        Experiment::Order(options) => simulate(&simulated::ORDER, &options),
        Experiment::Simulate(once) => once.run(),
        Experiment::All(options) => all(options),
        Experiment::Mediated(options) => run_mediated(&options),
        Experiment::Memory(options) => run_memory(&options),
        Experiment::Part(part) => part.run(),
        Experiment::Report { dir } => crate::table::print(&tables(&dir)?),
        Experiment::Figures { dir } => figures::draw(&dir),
    }
}

fn simulate(
    experiment: &simulated::Experiment,
    options: &levada_harness::Options,
) -> anyhow::Result<()> {
    simulated::run(experiment, options)?.conclude(options, figures::draw, report::simulated)
}

fn run_rtt(options: &levada_harness::Options) -> anyhow::Result<()> {
    rtt::run(options)?.conclude(options, figures::draw, report::round_trips)
}

fn run_complete(options: &levada_harness::Options) -> anyhow::Result<()> {
    complete::run(options)?.conclude(options, |_| Ok(()), report::completeness)
}

fn run_single(options: &levada_harness::Options) -> anyhow::Result<()> {
    single::run(options)?.conclude(options, |_| Ok(()), report::single)
}

fn run_mediated(options: &levada_harness::Options) -> anyhow::Result<()> {
    mediated::run(options)?.conclude(options, figures::draw, report::mediated)
}

fn run_memory(options: &levada_harness::Options) -> anyhow::Result<()> {
    memory::run(options)?.conclude(options, |_| Ok(()), report::memory)
}

fn run_links(arguments: &links::Arguments) -> anyhow::Result<()> {
    links::run(arguments)?.conclude(&arguments.options, |_| Ok(()), report::links)
}

fn all(options: levada_harness::Options) -> anyhow::Result<()> {
    use simulated::{CACHE, LOAD, ORDER, SCALE, TIMERS};
    for experiment in [&SCALE, &LOAD, &CACHE, &ORDER, &TIMERS] {
        simulate(experiment, &options)?;
    }
    run_rtt(&options)?;
    run_complete(&options)?;
    run_single(&options)?;
    crowd::run(&options)?.conclude(&options, |_| Ok(()), report::crowd)?;
    run_mediated(&options)?;
    run_memory(&options)?;
    run_links(&links::Arguments::all(options.clone()))?;
    let arguments = loss::Arguments::all(options);
    loss::run(&arguments)?.conclude(&arguments.options, |_| Ok(()), report::targets)
}

/// Bytes that cannot be compressed, always the same.
fn noise(length: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length as usize).collect()
}
