//! How many bytes a second, and per second of CPU, by message length and framing (reference 1, "Throughput").

use std::time::Duration;

use clap::Args;
use levada_harness::{Case, Group, Measured, Params, Runner, Window, params};

use super::Shared;
use super::ends::Timing;
use super::place::Place;
use super::subject::{BLOCKS, FEW_BLOCKS, Subject};

/// Its name in rows.
pub const NAME: &str = "channels/throughput";
/// The message lengths of reference 1, in bytes.
pub const MESSAGES: [usize; 4] = [256, 1024, 102_400, 10_240_000];

/// The round trips of reference 1, in ms: twice its latencies.
pub const RTTS: [u64; 3] = [0, 4, 40];

/// What to measure.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    shared: Shared,

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

/// Measures it.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let messages = if arguments.message.is_empty() { &MESSAGES[..] } else { &arguments.message };
    let rtts = if arguments.rtt.is_empty() { &RTTS[..] } else { &arguments.rtt };
    let mut runner = Runner::new(NAME, &arguments.shared, messages.len() * rtts.len())?;
    for &rtt_ms in rtts {
        let subjects = subjects(arguments, rtt_ms)?;
        let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        let names = || names.iter().map(String::as_str);
        for &bytes in messages {
            let params = params([("message_bytes", bytes.into()), ("rtt_ms", rtt_ms.into())]);
            if runner.wants(&params, names()) {
                let place = Place::with_rtt(rtt_ms)?;
                runner.measure(group(&place, params, (bytes, rtt_ms), &subjects))?;
            }
        }
    }
    Ok(())
}

fn subjects(arguments: &Arguments, rtt_ms: u64) -> anyhow::Result<Vec<Subject>> {
    if !arguments.subject.is_empty() {
        return arguments.subject.iter().map(|name| Subject::named(name)).collect();
    }
    let few = arguments.shared.quick && rtt_ms > 0;
    Subject::all(if few { &FEW_BLOCKS } else { &BLOCKS })
}

fn group<'a>(
    place: &'a Place,
    params: Params,
    (bytes, rtt_ms): (usize, u64),
    subjects: &[Subject],
) -> Group<'a> {
    // Long enough for TCP and for credit windows to have grown to what the link takes.
    let timing = Timing {
        warm_up: Duration::from_millis(250 + 40 * rtt_ms),
        length: Duration::from_millis(800 + 10 * rtt_ms),
    };
    let case = |&subject: &Subject| {
        Case::new(subject.to_string(), move || {
            let window = subject.throughput(place, bytes, timing)?;
            Ok(measured(&window))
        })
    };
    let cases = subjects.iter().map(case).collect();
    Group { experiment: NAME, params, cases, witness: place.witness() }
}

fn measured(window: &Window) -> Vec<Measured> {
    let megabytes = window.counted as f64 / 1e6;
    vec![
        Measured::new("MB/s", "MB/s", megabytes / window.seconds),
        Measured::new("MB/cpu-s", "MB/cpu-s", megabytes / window.cpu_seconds),
    ]
}
