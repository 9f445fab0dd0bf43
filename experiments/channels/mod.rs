//! The experiments on secure channels: how much they carry, how soon they are there, how late input gets.

mod connect;
mod ends;
mod input;
mod levada;
mod node;
mod place;
mod subject;
mod tcp;
mod throughput;
mod tls;

use clap::{Args, Subcommand};
use levada_harness::Options;

/// Which experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// How many bytes a second, and per second of CPU, by message length and framing
    Throughput(throughput::Arguments),
    /// The time from connecting to the first byte of a reply, and the CPU time of both sides
    Connect(connect::Arguments),
    /// How late input events arrive, on an idle link and beside bulk that fills it
    Input(input::Arguments),
}

/// Runs it.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.experiment {
        Experiment::Throughput(arguments) => throughput::run(&arguments),
        Experiment::Connect(arguments) => connect::run(&arguments).map(|_| ()),
        Experiment::Input(arguments) => input::run(&arguments).map(|_| ()),
    }
}

/// The options that all of them share.
type Shared = Options;
