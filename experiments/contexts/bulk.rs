//! A long response through one middlebox: bytes per second of CPU time of the middlebox, and of both ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use levada_channel::contexts::{Kem, Right};
use levada_harness::{Case, Group, Measured, Options, Params, params};

use super::end::Exchange;
use super::levada::purposes;
use super::mode::{Mode, Setup};
use super::run::{Dialer, Run};
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "contexts/bulk";
/// The ways that are compared; the middlebox of `plain` is a bare relay of bytes.
pub const MODES: [Mode; 6] = [
    Mode::Plain,
    Mode::E2e,
    Mode::Split,
    Mode::Levada(Kem::Hybrid, Right::None),
    Mode::Levada(Kem::Hybrid, Right::Read),
    Mode::Levada(Kem::Hybrid, Right::Write),
];
/// More than a run transfers.
const ENDLESS: usize = 1 << 50;

/// When the window begins, and how long it is.
#[derive(Clone, Copy)]
struct Timing {
    warm_up: Duration,
    length: Duration,
}

/// The conditions of rows.
pub fn conditions() -> Params {
    params([
        ("middleboxes", 1.into()),
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
    let mut modes = MODES.to_vec();
    modes.retain(|mode| {
        arguments.subject.is_empty() || arguments.subject.contains(&mode.to_string())
    });
    let names: Vec<String> = modes.iter().map(ToString::to_string).collect();
    let mut measuring = Measuring::new(NAME, options, 1)?;
    let length = Duration::from_millis(if options.quick { 300 } else { 1000 });
    let timing = Timing { warm_up: Duration::from_millis(150), length };
    if measuring.needs(&conditions(), &names) {
        measuring.group(group(modes, timing))?;
    }
    Ok(measuring.finish())
}

fn group(modes: Vec<Mode>, timing: Timing) -> Group<'static> {
    let case = |mode: Mode| Case::new(mode.to_string(), move || Ok(measure(mode, timing)?));
    let cases = modes.into_iter().map(case).collect();
    Group { experiment: NAME, params: conditions(), cases, monitor: None }
}

fn measure(mode: Mode, timing: Timing) -> anyhow::Result<Vec<Measured>> {
    let run = Run {
        testbed: &Testbed::Loopback,
        setup: Arc::new(Setup::new(mode, 1, &purposes(4))?),
        middleboxes: 1,
        exchanges: Arc::new([Exchange {
            request: vec![100, 0, 0, 0],
            response: vec![0, 0, 100, ENDLESS],
        }]),
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
    let cpu = |party: usize| end.cpu[party] - begin.cpu[party];
    vec![
        Measured::new("MB/s", "MB/s", megabytes / seconds),
        Measured::new("middlebox MB/cpu-s", "MB/cpu-s", megabytes / cpu(1)),
        Measured::new("ends MB/cpu-s", "MB/cpu-s", megabytes / (cpu(0) + cpu(2))),
        Measured::new("client MB/cpu-s", "MB/cpu-s", megabytes / cpu(0)),
        Measured::new("server MB/cpu-s", "MB/cpu-s", megabytes / cpu(2)),
    ]
}
