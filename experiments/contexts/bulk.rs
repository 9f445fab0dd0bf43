//! A long response through one middlebox: bytes per second of CPU time of the middlebox, and of
//! both ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use levada_contexts::{Kem, Right};
use levada_harness::{Case, Group, Measured, Options, Params, params};

use super::end::Exchange;
use super::levada::purposes;
use super::mode::{Mode, Setup};
use super::run::{Dialer, Run};
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "contexts/bulk";
/// The ways that are compared.
pub const MODES: [Mode; 7] = [
    Mode::Plain,
    Mode::E2e,
    Mode::Split,
    Mode::Relay,
    Mode::Levada(Kem::Hybrid, Right::None),
    Mode::Levada(Kem::Hybrid, Right::Read),
    Mode::Levada(Kem::Hybrid, Right::Write),
];
/// The ways that are compared without a middlebox, where ours is an ordinary connection.
pub const DIRECT: [Mode; 3] = [Mode::Plain, Mode::E2e, Mode::Levada(Kem::Hybrid, Right::Write)];
/// More than a run transfers.
const ENDLESS: usize = 1 << 50;

/// When the window begins, and how long it is.
#[derive(Clone, Copy)]
struct Timing {
    warm_up: Duration,
    length: Duration,
}

/// The conditions of rows.
pub fn conditions(middleboxes: usize) -> Params {
    params([
        ("middleboxes", middleboxes.into()),
        ("contexts", 4.into()),
        ("measured", "channel, over loopback".into()),
    ])
}

/// What to measure.
#[derive(Args)]
pub struct Arguments {
    /// How to measure.
    #[command(flatten)]
    pub options: Options,

    /// Only these subjects, by their names in rows
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subject: Vec<String>,
}

impl Arguments {
    /// All subjects.
    pub fn all(options: Options) -> Self {
        Self { options, subject: Vec::new() }
    }
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let options = &arguments.options;
    let length = Duration::from_millis(if options.quick { 300 } else { 1000 });
    let timing = Timing { warm_up: Duration::from_millis(150), length };
    let mut measuring = Measuring::new(NAME, options, 2)?;
    for (middleboxes, modes) in [(1, &MODES[..]), (0, &DIRECT)] {
        let mut modes = modes.to_vec();
        modes.retain(|mode| {
            arguments.subject.is_empty() || arguments.subject.contains(&mode.to_string())
        });
        let names: Vec<String> = modes.iter().map(ToString::to_string).collect();
        if measuring.needs(&conditions(middleboxes), &names) {
            measuring.group(group(middleboxes, modes, timing))?;
        }
    }
    Ok(measuring.finish())
}

fn group(middleboxes: usize, modes: Vec<Mode>, timing: Timing) -> Group<'static> {
    let case =
        |mode: Mode| Case::new(mode.to_string(), move || Ok(measure(mode, middleboxes, timing)?));
    let cases = modes.into_iter().map(case).collect();
    Group { experiment: NAME, params: conditions(middleboxes), cases, monitor: None }
}

fn measure(mode: Mode, middleboxes: usize, timing: Timing) -> anyhow::Result<Vec<Measured>> {
    let run = Run {
        testbed: &Testbed::Loopback,
        setup: Arc::new(Setup::new(mode, middleboxes, &purposes(4))?),
        middleboxes,
        exchanges: Arc::new([Exchange {
            request: vec![100, 0, 0, 0],
            response: vec![0, 0, 100, ENDLESS],
        }]),
        origin: None,
        pinned: true,
    };
    run.client(|dialer| window(dialer, timing))
}

/// What a window has measured, or begun with.
struct Snapshot {
    time: Instant,
    bytes: usize,
    cpu: Vec<f64>,
}

/// Measures a window of the response, and leaves the rest of it.
async fn window(dialer: Dialer, timing: Timing) -> anyhow::Result<Vec<Measured>> {
    let mut end = dialer.dial().await?;
    let start = Instant::now();
    let mut bytes = 0;
    let mut begin: Option<Snapshot> = None;
    let mut over = None;
    let ended = end
        .request(0, &dialer.exchanges[0], |length| {
            bytes += length;
            let due =
                start + timing.warm_up + begin.as_ref().map_or(Duration::ZERO, |_| timing.length);
            if Instant::now() < due {
                return Ok(());
            }
            let cpu = dialer.clocks.iter().map(|clock| clock.seconds());
            let cpu = cpu.collect::<Result<Vec<_>, _>>()?;
            let now = Snapshot { time: Instant::now(), bytes, cpu };
            let Some(begin) = &begin else {
                begin = Some(now);
                return Ok(());
            };
            over = Some(measured(begin, &now));
            bail!("the window is over")
        })
        .await;
    match (over, ended) {
        (Some(measured), _) => Ok(measured),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => bail!("the response ended before the window"),
    }
}

fn measured(begin: &Snapshot, end: &Snapshot) -> Vec<Measured> {
    let megabytes = (end.bytes - begin.bytes) as f64 / 1e6;
    let seconds = (end.time - begin.time).as_secs_f64();
    let cpu: Vec<f64> = begin.cpu.iter().zip(&end.cpu).map(|(begin, end)| end - begin).collect();
    let client = cpu[0];
    let server = cpu[cpu.len() - 1];
    let mut all = vec![
        Measured::new("MB/s", "MB/s", megabytes / seconds),
        Measured::new("ends MB/cpu-s", "MB/cpu-s", megabytes / (client + server)),
        Measured::new("client MB/cpu-s", "MB/cpu-s", megabytes / client),
        Measured::new("server MB/cpu-s", "MB/cpu-s", megabytes / server),
    ];
    if let [_, middlebox, _] = cpu[..] {
        let carried = megabytes / middlebox;
        all.insert(1, Measured::new("middlebox MB/cpu-s", "MB/cpu-s", carried));
    }
    all
}
