//! Bytes per second, and per second of CPU time, by message length and framing (Capone,
//! "Throughput").

use std::time::Duration;

use clap::Args;
use levada_harness::{Case, Group, Measured, Params, Window, params};

use super::Shared;
use super::ends::Timing;
use super::subject::{BLOCKS, FEW_BLOCKS, Subject};
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "channels/throughput";
/// The message lengths of Capone, in bytes.
pub const MESSAGES: [usize; 4] = [256, 1024, 102_400, 10_240_000];

/// The round trips of Capone, in ms: twice its latencies.
pub const RTTS: [u64; 3] = [0, 4, 40];
/// The round trips of a quick run.
const FEW_RTTS: [u64; 2] = [0, 40];

/// The conditions and subjects to measure.
#[derive(Args)]
pub struct Arguments {
    /// Shared by all experiments.
    #[command(flatten)]
    pub shared: Shared,

    /// Only these message lengths, in bytes
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    message: Vec<usize>,

    /// Only these round trips, in ms
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    rtt: Vec<u64>,

    /// Only these subjects, by their names in rows
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subject: Vec<String>,
}

impl Arguments {
    /// All conditions and subjects.
    pub fn all(shared: Shared) -> Self {
        Self { shared, message: Vec::new(), rtt: Vec::new(), subject: Vec::new() }
    }
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let messages = if arguments.message.is_empty() { &MESSAGES[..] } else { &arguments.message };
    let rtts = rtts(&arguments.rtt, &arguments.shared);
    let mut measuring = Measuring::new(NAME, &arguments.shared, messages.len() * rtts.len())?;
    for rtt_ms in rtts {
        let subjects = subjects(arguments, rtt_ms)?;
        let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        for &bytes in messages {
            let params = params([("message_bytes", bytes.into()), ("rtt_ms", rtt_ms.into())]);
            let testbed = || Testbed::with_rtt(rtt_ms);
            if let Some(testbed) = measuring.testbed(&params, &names, testbed)? {
                let timing = timing(rtt_ms, arguments.shared.quick);
                measuring.group(group(&testbed, params, (bytes, timing), &subjects))?;
            }
        }
    }
    Ok(measuring.finish())
}

/// The requested round trips, or the default ones.
pub fn rtts(asked: &[u64], options: &Shared) -> Vec<u64> {
    match asked {
        [] if options.quick => FEW_RTTS.to_vec(),
        [] => RTTS.to_vec(),
        asked => asked.to_vec(),
    }
}

/// Long enough for TCP's and the channel's windows to reach the link's capacity.
fn timing(rtt_ms: u64, quick: bool) -> Timing {
    let (warm_up, length) = if quick {
        (60 + 16 * rtt_ms, 160 + 6 * rtt_ms)
    } else {
        (250 + 40 * rtt_ms, 800 + 10 * rtt_ms)
    };
    Timing { warm_up: Duration::from_millis(warm_up), length: Duration::from_millis(length) }
}

fn subjects(arguments: &Arguments, rtt_ms: u64) -> anyhow::Result<Vec<Subject>> {
    if !arguments.subject.is_empty() {
        return arguments.subject.iter().map(|name| Subject::named(name)).collect();
    }
    let few = arguments.shared.quick && rtt_ms > 0;
    Subject::all(if few { &FEW_BLOCKS } else { &BLOCKS })
}

fn group<'a>(
    testbed: &'a Testbed,
    params: Params,
    (bytes, timing): (usize, Timing),
    subjects: &[Subject],
) -> Group<'a> {
    let case = |&subject: &Subject| {
        Case::new(subject.to_string(), move || {
            let window = subject.throughput(testbed, bytes, timing)?;
            Ok(measured(&window))
        })
    };
    let cases = subjects.iter().map(case).collect();
    Group { experiment: NAME, params, cases, monitor: testbed.monitor() }
}

fn measured(window: &Window) -> Vec<Measured> {
    let megabytes = window.counted as f64 / 1e6;
    vec![
        Measured::new("MB/s", "MB/s", megabytes / window.seconds),
        Measured::new("MB/cpu-s", "MB/cpu-s", megabytes / window.cpu_seconds),
    ]
}
