//! `cargo xp`: the measurements of the papers that Levada implements, repeated on this machine and
//! compared with rivals.

mod accuracy;
mod attacks;
mod binary;
mod catalogue;
mod channels;
mod check;
mod contexts;
mod limits;
mod measuring;
mod process_tree;
mod program;
mod records;
mod sockets;
mod sshd;
mod swarm;
mod table;
mod testbed;
mod threshold;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The experiments of Levada, measured on this machine and compared with the alternatives
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
    /// The catalogue: response rate and response time, compared with nginx
    Catalogue(catalogue::Arguments),
    /// Sessions with middleboxes: first byte, downloads, connections, bulk, page loads, a cache
    Contexts(contexts::Arguments),
    /// Attacks on a node: the time of an honest run meanwhile
    Attacks(attacks::Arguments),
    /// The records of a node: its lists of rights, sessions and the audit log
    Records(records::Arguments),
    /// The swarm: congestion control of QUIC under loss and beside TCP
    Swarm(swarm::Arguments),
    /// Sockets between processes of one host: TCP and Unix sockets beside a ring of shared memory
    Sockets(sockets::Arguments),
    Lab(levada_lab::command::LabCommand),
    /// Compare the tables, pictures and figures of the pages with the committed rows
    Check(check::Arguments),
    /// Print the ids of rows, by which sentences name them
    Rows(check::RowsArguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().reference {
        Reference::Channels(arguments) => channels::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Catalogue(arguments) => catalogue::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Contexts(arguments) => contexts::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Attacks(arguments) => attacks::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Records(arguments) => records::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Swarm(arguments) => swarm::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Sockets(arguments) => sockets::run(arguments).map(|()| ExitCode::SUCCESS),
        Reference::Check(arguments) => check::run(&arguments).map(|()| ExitCode::SUCCESS),
        Reference::Rows(arguments) => check::print_rows(&arguments).map(|()| ExitCode::SUCCESS),
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
