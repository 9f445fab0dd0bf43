//! The experiments on sessions with middleboxes (mcTLS).

mod bulk;
mod cached;
mod connections;
mod download;
mod end;
mod figures;
mod first_byte;
mod latency;
mod levada;
mod line;
mod link;
mod mode;
mod node;
mod overhead;
mod programs;
mod report;
mod run;
mod script;
mod tls;
mod web;

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
    /// The time to the first byte, over contexts, delay, middleboxes, loss and networks
    FirstByte(first_byte::Arguments),
    /// The time of a download, over its length and the rate of the links
    Download(Options),
    /// The CPU time of a middlebox and of both ends during a long response
    Bulk(bulk::Arguments),
    /// The bytes of recorded page loads on the client's link, over the strategies of contexts
    Web(Options),
    /// The bytes of handshakes and records on each link, and what the access of a middlebox to a
    /// record costs beside memory
    Overhead(Options),
    /// The time to the first byte with whole programs, over an open session and from nothing
    Node(Options),
    /// Answers of a middlebox with a cache, compared with those of the origin, with whole programs
    /// and curl
    Cache(Options),
    /// All of them
    All(Options),
    /// Draw the figures of the rows in a folder again
    Figures {
        /// The folder of the rows
        dir: PathBuf,
    },
    /// Print the rows in a folder as tables in Markdown, and beside them the connections of other
    /// processors, in folders within it
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
}

/// The names of all experiments in rows.
const NAMES: [&str; 8] = [
    first_byte::NAME,
    node::NAME,
    download::NAME,
    cached::NAME,
    bulk::NAME,
    web::NAME,
    overhead::NAME,
    connections::NAME,
];

/// Draws the figures of the rows in a folder, into that folder.
pub use figures::draw;
/// Every table that the rows in a folder allow.
pub use report::tables;

/// Runs the experiment.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.experiment {
        Experiment::Connections(options) => conclude(&options, connections::run(&options)?),
        Experiment::Bulk(arguments) => conclude(&arguments.options, bulk::run(&arguments)?),
        Experiment::FirstByte(arguments) => {
            conclude(&arguments.options, first_byte::run(&arguments)?)
        }
        Experiment::Download(options) => conclude(&options, download::run(&options)?),
        Experiment::Web(options) => conclude(&options, web::run(&options)?),
        Experiment::Cache(options) => conclude(&options, cached::run(&options)?),
        Experiment::Overhead(options) => conclude(&options, overhead::run(&options)?),
        Experiment::Node(options) => conclude(&options, node::run(&options)?),
        Experiment::All(options) => {
            let cpu =
                connections::run(&options)?.and(bulk::run(&bulk::Arguments::all(options.clone()))?);
            let times = first_byte::run(&first_byte::Arguments::all(options.clone()))?
                .and(download::run(&options)?);
            let memory = web::run(&options)?.and(overhead::run(&options)?);
            let programs = cached::run(&options)?.and(node::run(&options)?);
            conclude(&options, cpu.and(memory).and(programs).and(times))
        }
        Experiment::Figures { dir } => figures::draw(&dir),
        Experiment::Report { dir } => crate::table::print(&tables(&dir)?),
    }
}

fn conclude(options: &Options, outcome: Outcome) -> anyhow::Result<()> {
    outcome.conclude(options, figures::draw, report::targets)
}
