//! The experiments on sockets between processes of one host.

mod exchange;
mod fast;
mod report;
mod subject;

use std::path::PathBuf;
use std::thread;

use anyhow::Context;
use clap::{Args, Subcommand};
use levada_harness::{Case, Group, Measured, Options, Params, params};

use crate::measuring::{Measuring, Outcome};
use exchange::{latency, throughput};
use subject::{SUBJECTS, Subject};

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// The round trip of a message, over its length
    Latency(Options),
    /// Messages in one direction, over their length
    Throughput(Options),
    /// All of these, one after the other
    All(Options),
    /// Measure one subject once, in this process
    #[command(hide = true)]
    Part(fast::Part),
    /// Print the rows in a folder as tables in Markdown
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
}

/// Runs the experiment.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.experiment {
        Experiment::Latency(options) => round_trips(&options),
        Experiment::Throughput(options) => one_way(&options),
        Experiment::All(options) => round_trips(&options).and_then(|()| one_way(&options)),
        Experiment::Part(part) => part.run(),
        Experiment::Report { dir } => report::print(&dir),
    }
}

/// The experiments' names in rows.
const LATENCY: &str = "sockets/latency";
const THROUGHPUT: &str = "sockets/throughput";

fn round_trips(options: &Options) -> anyhow::Result<()> {
    measure(LATENCY, options, latency)?.conclude(options, |_| Ok(()), report::latency)
}

fn one_way(options: &Options) -> anyhow::Result<()> {
    measure(THROUGHPUT, options, throughput)?.conclude(options, |_| Ok(()), report::throughput)
}

/// The lengths of messages in bytes: those of the paper, or the ends and the middle of its range.
fn lengths(quick: bool) -> Vec<usize> {
    let all = (3..=20).map(|power| 1 << power);
    if quick { all.step_by(5).collect() } else { all.collect() }
}

fn conditions(length: usize) -> Params {
    params([("bytes", length.into())])
}

type Measure = fn(Subject, usize, bool) -> anyhow::Result<Vec<Measured>>;

fn measure(name: &'static str, options: &Options, one: Measure) -> anyhow::Result<Outcome> {
    let (lengths, quick) = (lengths(options.quick), options.quick);
    let names: Vec<String> = SUBJECTS.iter().map(ToString::to_string).collect();
    let mut measuring = Measuring::new(name, options, lengths.len())?;
    for length in lengths {
        let at = conditions(length);
        if measuring.needs(&at, &names) {
            let case = |subject: Subject| {
                Case::new(subject.to_string(), move || {
                    Ok(if fast::is_fast(subject) {
                        fast::measure(name, subject, length, quick)?
                    } else {
                        apart(move || one(subject, length, quick))?
                    })
                })
            };
            let cases = SUBJECTS.map(case).into();
            measuring.group(Group { experiment: name, params: at, cases, monitor: None })?;
        }
    }
    Ok(measuring.finish())
}

/// Measures in a thread of its own: threads inherit the core to which one is pinned.
fn apart(
    one: impl FnOnce() -> anyhow::Result<Vec<Measured>> + Send + 'static,
) -> anyhow::Result<Vec<Measured>> {
    thread::spawn(one).join().ok().context("the measuring thread panicked")?
}
