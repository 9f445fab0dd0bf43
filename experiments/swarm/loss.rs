//! QUIC's congestion controllers beside the kernel's: random loss, a shared queue, and CPU time.

use std::time::Duration;

use clap::Args;
use levada_harness::{Case, Group, Measured, Options, Params, params};
use levada_lab::{LabError, Link, Loss};
use levada_transport::quic::Congestion;

use super::flow::{self, Timing};
use super::subject::{CONTROLLERS, Kernel, Subject};
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "swarm/loss";
/// The link, in Mbit/s, and its round trip in ms.
pub const RATE_MBIT: u64 = 100;
const RTT_MS: u64 = 20;
/// The share of lost packets, in either direction.
pub const LOSS: f64 = 0.01;
/// The bytes of one bandwidth-delay product.
const BDP: u64 = RATE_MBIT * 1_000_000 / 8 * RTT_MS / 1000;
/// Which flow starts first.
pub const ORDERS: [&str; 3] = ["both", "tcp", "quic"];
/// How much later the other one starts.
const LATER: Duration = Duration::from_secs(4);

/// What to measure.
#[derive(Args)]
pub struct Arguments {
    /// How to measure.
    #[command(flatten)]
    pub options: Options,

    /// Only these subjects, by their names in rows
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subject: Vec<String>,

    /// Only these parts: loss, share, cpu
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    part: Vec<String>,
}

impl Arguments {
    /// All subjects and parts.
    pub fn all(options: Options) -> Self {
        Self { options, subject: Vec::new(), part: Vec::new() }
    }

    fn chosen(&self, mut subjects: Vec<Subject>) -> Vec<Subject> {
        subjects.retain(|subject| {
            self.subject.is_empty() || self.subject.contains(&subject.to_string())
        });
        subjects
    }

    fn has(&self, part: &str) -> bool {
        self.part.is_empty() || self.part.iter().any(|chosen| chosen == part)
    }
}

/// The conditions of the part with random loss.
pub fn lossy() -> Params {
    params([("rtt_ms", RTT_MS.into()), ("rate_mbit", RATE_MBIT.into()), ("loss", LOSS.into())])
}

/// The conditions of the part with a flow of TCP cubic, by the flow that starts first.
pub fn shared(first: &str) -> Params {
    params([
        ("rtt_ms", RTT_MS.into()),
        ("rate_mbit", RATE_MBIT.into()),
        ("queue_bytes", BDP.into()),
        ("first", first.into()),
    ])
}

/// The conditions of the part without a network.
pub fn loopback() -> Params {
    params([("rtt_ms", 0.into())])
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let options = &arguments.options;
    let orders = if options.quick { &ORDERS[..1] } else { &ORDERS[..] };
    let mut measuring = Measuring::new(NAME, options, 2 + orders.len())?;
    if arguments.has("loss") {
        goodput(arguments, &mut measuring)?;
    }
    for first in orders.iter().filter(|_| arguments.has("share")) {
        share(arguments, first, &mut measuring)?;
    }
    if arguments.has("cpu") {
        cpu(arguments, &mut measuring)?;
    }
    Ok(measuring.finish())
}

fn quic(subject: fn(Congestion) -> Subject) -> impl Iterator<Item = Subject> {
    CONTROLLERS.into_iter().map(subject)
}

fn goodput(arguments: &Arguments, measuring: &mut Measuring) -> anyhow::Result<()> {
    let kernel = [Kernel::Cubic, Kernel::Bbr].map(Subject::Tcp);
    let all = kernel.into_iter().chain(quic(Subject::ChannelQuic)).chain(quic(Subject::Quic));
    let subjects = arguments.chosen(all.collect());
    let quick = arguments.options.quick;
    let timing = timing(if quick { (1, 3) } else { (2, 6) });
    let link = link().loss(Loss::Bernoulli(LOSS));
    group(
        measuring,
        lossy(),
        || lab(&link),
        &subjects,
        |testbed, subject| {
            let flows = vec![subject.flow(testbed, Duration::ZERO)?];
            let [transferred] = &flow::run(testbed, timing, flows)?[..] else {
                anyhow::bail!("no flow")
            };
            Ok(vec![Measured::new("goodput", "Mbit/s", transferred.mbit)])
        },
    )
}

fn share(arguments: &Arguments, first: &str, measuring: &mut Measuring) -> anyhow::Result<()> {
    // The order is of interest only for a controller that shares at all.
    let controllers = if first == "both" { &CONTROLLERS[..] } else { &CONTROLLERS[..1] };
    let all = controllers.iter().copied().map(Subject::ChannelQuic).collect();
    let subjects = arguments.chosen(all);
    let later = |other: &str| if first == other { LATER } else { Duration::ZERO };
    let quic_later = later("tcp");
    let tcp_later = later("quic");
    let timing = timing(if arguments.options.quick { (2, 5) } else { (5, 12) });
    let link = link().queue(BDP);
    group(
        measuring,
        shared(first),
        || lab(&link),
        &subjects,
        |testbed, subject| {
            let tcp = Subject::Tcp(Kernel::Cubic).flow(testbed, tcp_later)?;
            let flows = vec![subject.flow(testbed, quic_later)?, tcp];
            let [quic, tcp] = &flow::run(testbed, timing, flows)?[..] else {
                anyhow::bail!("no flows")
            };
            let of_link = |mbit: f64| mbit / RATE_MBIT as f64;
            Ok(vec![
                Measured::new("share", "1", of_link(quic.mbit)),
                Measured::new("TCP's share", "1", of_link(tcp.mbit)),
            ])
        },
    )
}

fn cpu(arguments: &Arguments, measuring: &mut Measuring) -> anyhow::Result<()> {
    let all = vec![
        Subject::Tcp(Kernel::Bbr),
        Subject::ChannelTcp(Kernel::Bbr),
        Subject::Quic(Congestion::Tolerant),
        Subject::ChannelQuic(Congestion::Tolerant),
    ];
    let timing = timing(if arguments.options.quick { (1, 2) } else { (1, 4) });
    let subjects = arguments.chosen(all);
    group(
        measuring,
        loopback(),
        || Ok(Testbed::Loopback),
        &subjects,
        |testbed, subject| {
            let flows = vec![subject.flow(testbed, Duration::ZERO)?];
            let [transferred] = &flow::run(testbed, timing, flows)?[..] else {
                anyhow::bail!("no flow")
            };
            Ok(vec![
                Measured::new("MB/s", "MB/s", transferred.mbit / 8.0),
                Measured::new("MB/cpu-s", "MB/cpu-s", transferred.mb_per_cpu),
            ])
        },
    )
}

fn group(
    measuring: &mut Measuring,
    params: Params,
    testbed: impl FnOnce() -> Result<Testbed, LabError>,
    subjects: &[Subject],
    run: impl Fn(&Testbed, Subject) -> anyhow::Result<Vec<Measured>>,
) -> anyhow::Result<()> {
    let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    let Some(testbed) = measuring.testbed(&params, &names, testbed)? else { return Ok(()) };
    let testbed = &testbed;
    let run = &run;
    let case =
        |&subject: &Subject| Case::new(subject.to_string(), move || Ok(run(testbed, subject)?));
    let cases = subjects.iter().map(case).collect();
    let monitor = testbed.monitor();
    measuring.group(Group { experiment: NAME, params, cases, monitor })
}

fn timing((warm_up, length): (u64, u64)) -> Timing {
    Timing { warm_up: Duration::from_secs(warm_up), length: Duration::from_secs(length) }
}

fn link() -> Link {
    Link::new().delay(Duration::from_millis(RTT_MS / 2)).rate(RATE_MBIT * 1_000_000)
}

fn lab(link: &Link) -> Result<Testbed, LabError> {
    Testbed::lab(levada_lab::Options::default(), link, false)
}
