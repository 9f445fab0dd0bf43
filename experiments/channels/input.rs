//! The latency of input events on an idle link and beside bulk that fills it (Capone, "Input
//! latency").

mod events;
mod levada;
mod tcp;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use levada_harness::{Case, Group, Measured, Params, params};
use levada_lab::{LabError, Link, Options};
use socket2::SockRef;

use super::Shared;
use super::ends::measure;
use super::screens;
use super::throughput::rtts;
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;
use events::{Events, Plan};

/// The experiment's name in rows.
pub const NAME: &str = "channels/input";
/// Events per second.
pub const RATES: [u32; 3] = [125, 500, 1000];
/// The congestion control algorithms.
pub const CONGESTION: [&str; 2] = ["bbr", "cubic"];

/// The link's rate in bits per second.
const LINK_RATE: u64 = 100_000_000;
/// The least length of the link's queue, in bytes.
const QUEUE_LEAST: u64 = 64 * 1024;
/// The length of a bulk message, in bytes.
const BULK_MESSAGE: usize = 102_400;
/// The channel, with events and bulk on one connection.
pub const LEVADA: &str = "levada/auto";
/// TCP, with events and bulk on separate connections.
pub const TCP: &str = "tcp/plain";

/// The conditions to measure.
#[derive(Args)]
pub struct Arguments {
    /// Shared by all experiments.
    #[command(flatten)]
    pub shared: Shared,

    /// Only these round trips, in ms
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    rtt: Vec<u64>,

    /// Only these rates of events, in Hz
    #[arg(long, value_name = "HZ", value_delimiter = ',')]
    rate: Vec<u32>,

    /// Only this congestion control
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    congestion: Vec<String>,

    /// Only the channel, or only keys between real screens
    #[arg(long, value_name = "WHAT")]
    only: Option<Only>,
}

/// The parts of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    Channel,
    Screens,
}

/// The conditions of a group.
#[derive(Clone, Copy)]
struct Conditions<'a> {
    rtt_ms: u64,
    rate_hz: u32,
    bulk: bool,
    congestion: &'a str,
}

/// Runs the experiment: first the channel, then the services `input` and `display` between real
/// screens.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let shared = &arguments.shared;
    let start = Instant::now();
    let outcome = match arguments.only {
        Some(Only::Screens) => Outcome::default(),
        _ => channel(arguments)?,
    };
    if arguments.only == Some(Only::Channel) {
        return Ok(outcome);
    }
    let spent = start.elapsed().as_secs() / 60;
    let limit = shared.limit.map(|limit| limit.saturating_sub(spent));
    let remaining = Shared { limit, ..shared.clone() };
    Ok(outcome.and(screens::run(&rtts(&arguments.rtt, &remaining), &remaining)?))
}

fn channel(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let all = arguments.conditions();
    let mut measuring = Measuring::new(NAME, &arguments.shared, all.len())?;
    let names = [LEVADA, TCP].map(str::to_owned);
    for conditions in all {
        let params = conditions.params();
        if let Some(testbed) = measuring.testbed(&params, &names, || conditions.testbed())? {
            measuring.group(group(&testbed, params, conditions, arguments.shared.quick))?;
        }
    }
    Ok(measuring.finish())
}

impl Arguments {
    /// All conditions.
    pub fn all(shared: Shared) -> Self {
        // Screens take minutes, so a quick run of all experiments leaves them out.
        let only = shared.quick.then_some(Only::Channel);
        Self { shared, rtt: Vec::new(), rate: Vec::new(), congestion: Vec::new(), only }
    }

    fn conditions(&self) -> Vec<Conditions<'_>> {
        let rates = if self.shared.quick { vec![500] } else { RATES.to_vec() };
        let rates = if self.rate.is_empty() { rates } else { self.rate.clone() };
        let mut congestion: Vec<&str> = self.congestion.iter().map(String::as_str).collect();
        if congestion.is_empty() {
            congestion = CONGESTION.to_vec();
        }
        let mut all = Vec::new();
        for rtt_ms in rtts(&self.rtt, &self.shared) {
            for &congestion in &congestion {
                for bulk in [false, true] {
                    let one = |&rate_hz: &u32| Conditions { rtt_ms, rate_hz, bulk, congestion };
                    all.extend(rates.iter().map(one));
                }
            }
        }
        all
    }
}

impl Conditions<'_> {
    fn params(self) -> Params {
        params([
            ("rtt_ms", self.rtt_ms.into()),
            ("rate_hz", self.rate_hz.into()),
            ("load", if self.bulk { "bulk" } else { "idle" }.into()),
            ("congestion", self.congestion.into()),
        ])
    }

    fn testbed(self) -> Result<Testbed, LabError> {
        testbed(self.rtt_ms, self.bulk)
    }

    /// One TCP connection. The congestion control is set per socket, because a namespace's default
    /// can only be one that the host allows for unprivileged users.
    fn connected(self, testbed: &Testbed) -> anyhow::Result<(TcpStream, TcpStream)> {
        let (near, far) = testbed.connected()?;
        for socket in [&near, &far] {
            let set = SockRef::from(socket).set_tcp_congestion(self.congestion.as_bytes());
            set.with_context(|| format!("choose the congestion control {}", self.congestion))?;
        }
        Ok((near, far))
    }

    /// A warm-up until bulk has reached its rate; then 2000 events, so that five runs give 10,000
    /// for p99.9.
    fn plan(self, quick: bool) -> Plan {
        let warm_up_ms = if self.bulk { 3000 + 10 * self.rtt_ms } else { 200 + 2 * self.rtt_ms };
        let before = self.rate_hz * u32::try_from(warm_up_ms).unwrap_or(u32::MAX) / 1000;
        Plan {
            rate_hz: self.rate_hz,
            before,
            count: if quick { self.rate_hz * 3 / 2 } else { 2000 },
        }
    }
}

/// Two nodes and a link of 100 Mbit/s with a queue of one bandwidth-delay product.
pub fn testbed(rtt_ms: u64, bulk: bool) -> Result<Testbed, LabError> {
    let queue = (LINK_RATE / 8 * rtt_ms / 1000).max(QUEUE_LEAST);
    let delay = Duration::from_micros(rtt_ms * 500);
    let link = Link::new().delay(delay).rate(LINK_RATE).queue(queue);
    Testbed::lab(Options::default(), &link, bulk)
}

fn group<'a>(
    testbed: &'a Testbed,
    params: Params,
    conditions: Conditions<'a>,
    quick: bool,
) -> Group<'a> {
    let plan = conditions.plan(quick);
    let case = |subject: &'static str| {
        // The warm-up run is shorter.
        let mut next = Plan { count: plan.rate_hz / 4, ..plan };
        Case::new(subject, move || {
            let current = std::mem::replace(&mut next, plan);
            Ok(measured(subject, testbed, conditions, current)?)
        })
    };
    let cases = [LEVADA, TCP].map(case).into();
    Group { experiment: NAME, params, cases, monitor: testbed.monitor() }
}

fn measured(
    subject: &str,
    testbed: &Testbed,
    conditions: Conditions<'_>,
    plan: Plan,
) -> anyhow::Result<Vec<Measured>> {
    let events = &Events::new(plan)?;
    let bulk = conditions.bulk;
    let (near, far) = conditions.connected(testbed)?;
    let window = match subject {
        LEVADA => {
            let keys = &super::levada::Keys::new()?;
            measure(
                testbed,
                plan.timing(),
                |meter| levada::send(keys, near, bulk, events, meter),
                |meter| levada::receive(keys, far, events, meter),
            )?
        }
        TCP => {
            let second = bulk.then(|| conditions.connected(testbed)).transpose()?;
            let (near_bulk, far_bulk) = second.unzip();
            measure(
                testbed,
                plan.timing(),
                |meter| tcp::send(near, near_bulk, events, meter),
                |meter| tcp::receive(far, far_bulk, events, meter),
            )?
        }
        other => bail!("there is no subject `{other}`"),
    };
    let mut measured = events.measured()?;
    if bulk {
        let rate = window.counted as f64 / 1e6 / window.seconds;
        measured.push(Measured::new("bulk MB/s", "MB/s", rate));
    }
    Ok(measured)
}
