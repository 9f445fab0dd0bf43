//! `cargo xp`: the measurements of the papers that Levada is built from, run again on this machine beside rivals.

mod attacks;
mod catalogue;
mod channels;
mod limit;
mod measuring;
mod place;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The experiments of Levada: measured here, on this machine, beside what you would use instead
#[derive(Parser)]
#[command(name = "cargo xp", bin_name = "cargo xp")]
struct Arguments {
    #[command(subcommand)]
    reference: Reference,
}

#[derive(Subcommand)]
enum Reference {
    /// Secure channels: throughput, connection establishment, input latency
    Channels(channels::Arguments),
    /// The catalogue: how many requests it answers, and how fast, beside nginx
    Catalogue(catalogue::Arguments),
    /// Attacks on a node: how long an honest run takes meanwhile
    Attacks(attacks::Arguments),
    Lab(levada_lab::command::LabCommand),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().reference {
        Reference::Channels(arguments) => channels::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Catalogue(arguments) => catalogue::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Attacks(arguments) => attacks::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Lab(command) => command.run().map_err(Into::into),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cargo xp: {error:#}");
            ExitCode::from(120)
        }
    }
}
