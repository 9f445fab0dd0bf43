//! How many bytes a second, and per second of CPU, by message length and framing (reference 1, "Throughput").

use std::time::Duration;

use clap::Args;
use levada_harness::{Case, Group, Measured, Params, Runner, Window, params};

use super::Shared;
use super::ends::Timing;
use super::place::Place;
use super::subject::{BLOCKS, Subject};

/// Its name in rows.
pub const NAME: &str = "channels/throughput";
/// The message lengths of reference 1, in bytes.
pub const MESSAGES: [usize; 4] = [256, 1024, 102_400, 10_240_000];

/// What to measure.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    shared: Shared,

    /// Only these message lengths, in bytes
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    message: Vec<usize>,

    /// Only these subjects, by their names in rows
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subject: Vec<String>,
}

/// Measures it.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let messages = if arguments.message.is_empty() { &MESSAGES[..] } else { &arguments.message };
    let mut runner = Runner::new(NAME, &arguments.shared, messages.len())?;
    let place = Place::Loopback;
    for &bytes in messages {
        let named: anyhow::Result<Vec<_>> =
            arguments.subject.iter().map(|name| Subject::named(name)).collect();
        let subjects = match named? {
            none if none.is_empty() => Subject::all(&BLOCKS)?,
            some => some,
        };
        let params = params([("message_bytes", bytes.into()), ("rtt_ms", 0.into())]);
        let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        if runner.wants(&params, names.iter().map(String::as_str)) {
            runner.measure(group(&place, params, bytes, &subjects))?;
        }
    }
    Ok(())
}

fn group<'a>(place: &'a Place, params: Params, bytes: usize, subjects: &[Subject]) -> Group<'a> {
    let timing = Timing { warm_up: Duration::from_millis(250), length: Duration::from_millis(800) };
    let case = |&subject: &Subject| {
        Case::new(subject.to_string(), move || {
            let window = subject.throughput(place, bytes, timing)?;
            Ok(measured(&window))
        })
    };
    Group { experiment: NAME, params, cases: subjects.iter().map(case).collect(), witness: None }
}

fn measured(window: &Window) -> Vec<Measured> {
    let megabytes = window.counted as f64 / 1e6;
    vec![
        Measured::new("MB/s", "MB/s", megabytes / window.seconds),
        Measured::new("MB/cpu-s", "MB/cpu-s", megabytes / window.cpu_seconds),
    ]
}
