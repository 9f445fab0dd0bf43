//! The experiment on the catalogue: how fast it answers, beside nginx with the same bytes.

mod balanced;
mod bench;
mod bounds;
mod family;
mod fetch;
mod figures;
mod generator;
mod large;
pub mod levada;
mod load;
mod nginx;
mod objects;
mod publisher;
mod report;
mod saturation;
mod server;
mod site;
mod sweep;
mod targets;
mod wrk;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use levada_harness::Options;

use crate::measuring::Outcome;
use crate::place::Place;

/// Its name in rows.
const NAME: &str = "catalogue/load";
/// The core of the generator.
const GENERATOR: usize = 0;
/// The core of servers.
const SERVERS: usize = 1;

/// Which experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Response time, rate and errors over the imposed rate, for a descriptor and a package of 153 kB
    Load(Box<load::Arguments>),
    /// All there is: the one
    All(Options),
    /// Draw the figures anew from the rows in a folder
    Figures {
        /// Where rows were kept
        dir: PathBuf,
    },
    /// Print the rows in a folder as tables in Markdown
    Report {
        /// Where rows were kept
        dir: PathBuf,
    },
}

/// Runs it.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.experiment {
        Experiment::Load(arguments) => conclude(&arguments.shared, load::run(&arguments)?),
        Experiment::All(shared) => {
            let all = load::Arguments::all(shared);
            conclude(&all.shared, load::run(&all)?)
        }
        Experiment::Figures { dir } => figures::draw(&dir),
        Experiment::Report { dir } => report::print(&dir),
    }
}

fn conclude(shared: &Options, outcome: Outcome) -> anyhow::Result<()> {
    outcome.conclude(shared, figures::draw, targets::table)
}

/// An address at the far end where nothing listens yet.
fn free_address(place: &Place) -> anyhow::Result<SocketAddr> {
    let (_, address) = place.listen()?;
    Ok(address)
}
