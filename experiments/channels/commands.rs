//! What people use ssh for, with whole programs: a connection that is forwarded, and a command at
//! another host. `levada forward` beside `ssh -L`, and `levada run` beside `ssh`.

mod programs;
mod tunnel;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use hdrhistogram::Histogram;
use levada_harness::{Case, Group, Measured, params};

use super::Shared;
use super::throughput::rtts;
use crate::measuring::{Measuring, Outcome};
use crate::process_tree::ProcessTree;
use crate::program::Side;
use crate::testbed::Testbed;
use crate::{binary, sshd};
use programs::Programs;
use tunnel::{Direction, Tunnel};

/// The experiment's name in rows.
pub const NAME: &str = "channels/commands";
/// The program `levada`, and another build of it.
pub const LEVADA: &str = "levada";
pub const BEFORE: &str = "levada/before";
/// ssh with its default cipher, and with that of channels.
pub const SSH: &str = "ssh";
pub const SSH_AES: &str = "ssh/aes256-gcm";
/// A forwarded connection through which bytes flow from the far end to the near one, and in the
/// other direction.
pub const DIRECTIONS: [&str; 2] = ["down", "up"];
/// A command that does nothing.
pub const TRUE: &str = "true";

/// The conditions to measure.
#[derive(Args)]
pub struct Arguments {
    /// Shared by all experiments.
    #[command(flatten)]
    pub shared: Shared,

    /// Only these round trips, in ms
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    rtt: Vec<u64>,

    /// Measure another build of `levada`, too
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
}

impl Arguments {
    /// All conditions.
    pub fn all(shared: Shared) -> Self {
        Self { shared, rtt: Vec::new(), before: None }
    }

    fn subjects(&self) -> impl Iterator<Item = &'static str> {
        let before = self.before.is_some().then_some(BEFORE);
        [LEVADA].into_iter().chain(before).chain([SSH, SSH_AES])
    }
}

/// Runs the experiment. If ssh's server is not installed, prints its package and measures nothing.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    if let Err(reason) = sshd::executable() {
        eprintln!("the experiment `commands` was left out: {reason}");
        return Ok(Outcome::default());
    }
    let levada = binary::levada()?;
    let quick = arguments.shared.quick;
    let rtts = rtts(&arguments.rtt, &arguments.shared);
    let names: Vec<String> = arguments.subjects().map(str::to_owned).collect();
    let mut measuring = Measuring::new(NAME, &arguments.shared, rtts.len() * 3)?;
    for rtt_ms in rtts {
        for work in [DIRECTIONS[0], DIRECTIONS[1], TRUE] {
            let params = params([("rtt_ms", rtt_ms.into()), ("work", work.into())]);
            let testbed = || Testbed::with_rtt(rtt_ms);
            let Some(testbed) = measuring.testbed(&params, &names, testbed)? else { continue };
            let start = |subject: &'static str| {
                let levada = match (subject, &arguments.before) {
                    (BEFORE, Some(before)) => before,
                    _ => &levada,
                };
                anyhow::Ok((subject, Programs::start(subject, levada, &testbed)?))
            };
            let all = arguments.subjects().map(start).collect::<anyhow::Result<Vec<_>>>()?;
            let cases = match work {
                TRUE => commands(&testbed, &all, count(rtt_ms, quick)),
                _ => transfers(&testbed, &all, work, length(rtt_ms, quick))?,
            };
            let monitor = testbed.monitor();
            measuring.group(Group { experiment: NAME, params, cases, monitor })?;
        }
    }
    Ok(measuring.finish())
}

/// The number of bytes through a forwarded connection.
fn length(rtt_ms: u64, quick: bool) -> u64 {
    let length = if rtt_ms == 0 { 1 << 30 } else { 1 << 28 };
    if quick { length / 4 } else { length }
}

/// The number of commands in one run.
fn count(rtt_ms: u64, quick: bool) -> u32 {
    let count = if rtt_ms == 0 { 100 } else { 20 };
    if quick { count / 10 } else { count }
}

/// Bytes through a connection that each of the programs forwards. Tunnels are open for all runs:
/// one that is not measured is idle.
fn transfers<'a>(
    testbed: &'a Testbed,
    all: &'a [(&'static str, Programs)],
    direction: &str,
    length: u64,
) -> anyhow::Result<Vec<Case<'a>>> {
    let direction = if direction == DIRECTIONS[0] { Direction::Down } else { Direction::Up };
    let case = |(subject, programs): &'a (&'static str, Programs)| {
        let tunnel = Tunnel::start(testbed, programs)?;
        Ok(Case::new(*subject, move || {
            let spent = || {
                let processes = [programs.server()?, tunnel.client()?];
                anyhow::Ok(processes.map(ProcessTree::all_cpu_seconds).iter().sum::<f64>())
            };
            let before = spent()?;
            let seconds = tunnel.transfer(testbed, length, direction)?;
            let megabytes = length as f64 / 1e6;
            Ok(vec![
                Measured::new("MB/s", "MB/s", megabytes / seconds),
                Measured::new("MB/cpu-s", "MB/cpu-s", megabytes / (spent()? - before)),
            ])
        }))
    };
    all.iter().map(case).collect()
}

/// Commands at the far end, one after the other, each with a connection of its own.
fn commands<'a>(
    testbed: &'a Testbed,
    all: &'a [(&'static str, Programs)],
    count: u32,
) -> Vec<Case<'a>> {
    let case = |(subject, programs): &'a (&'static str, Programs)| {
        Case::new(*subject, move || Ok(run_commands(testbed, programs, count)?))
    };
    all.iter().map(case).collect()
}

fn run_commands(
    testbed: &Testbed,
    programs: &Programs,
    count: u32,
) -> anyhow::Result<Vec<Measured>> {
    let server = programs.server()?;
    let spent = || [ProcessTree(std::process::id()).ended_cpu_seconds(), server.all_cpu_seconds()];
    let before = spent();
    let mut latency = Histogram::<u64>::new(3)?;
    for _ in 0..count {
        let mut command = programs.run_true();
        let start = Instant::now();
        let output = Side::Near.run(testbed, || command.output())??;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        latency.record(u64::try_from(start.elapsed().as_nanos())?)?;
    }
    let after = spent();
    let each = |end: usize| (after[end] - before[end]) * 1e3 / f64::from(count);
    Ok(vec![
        Measured::milliseconds("time", latency),
        Measured::new("client CPU", "ms", each(0)),
        Measured::new("server CPU", "ms", each(1)),
    ])
}
