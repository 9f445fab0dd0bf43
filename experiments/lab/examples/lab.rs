//! The command alone, for those who work on the lab:
//! `cargo run -p levada-lab --example lab -- --help`.

use std::process::ExitCode;

use clap::Parser;
use levada_lab::command::LabCommand;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    lab: LabCommand,
}

fn main() -> ExitCode {
    match Arguments::parse().lab.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(120)
        }
    }
}
