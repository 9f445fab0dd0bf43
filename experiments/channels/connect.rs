//! The time from connecting to the first byte of the first reply (Capone, "Connection latency"),
//! and its CPU time.

mod dial;
mod levada;
mod tcp;
mod tls;

use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use levada_core::Framing;
use levada_harness::{Case, Group, Measured, Params, params};

use super::Shared;
use super::subject::{BLOCKS, FEW_BLOCKS};
use super::throughput::rtts;
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;
use dial::Plan;

/// The experiment's name in rows.
pub const NAME: &str = "channels/connect";

/// The conditions and subjects to measure.
#[derive(Args)]
pub struct Arguments {
    /// Shared by all experiments.
    #[command(flatten)]
    pub shared: Shared,

    /// Only these round trips, in ms
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    rtt: Vec<u64>,

    /// Only these subjects, by their names in rows
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subject: Vec<String>,
}

/// The subjects of this experiment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Levada(Framing),
    Rustls,
    Tcp,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levada(framing) => write!(f, "levada/{framing}"),
            Self::Rustls => f.write_str("rustls"),
            Self::Tcp => f.write_str("tcp/plain"),
        }
    }
}

impl Arguments {
    /// All conditions and subjects.
    pub fn all(shared: Shared) -> Self {
        Self { shared, rtt: Vec::new(), subject: Vec::new() }
    }
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let rtts = rtts(&arguments.rtt, &arguments.shared);
    let mut measuring = Measuring::new(NAME, &arguments.shared, 2 * rtts.len())?;
    for rtt_ms in rtts {
        let subjects = subjects(arguments, rtt_ms)?;
        let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        for resumed in [false, true] {
            let handshake = if resumed { "resumed" } else { "full" };
            let params = params([("rtt_ms", rtt_ms.into()), ("handshake", handshake.into())]);
            let testbed = || Testbed::with_rtt(rtt_ms);
            if let Some(testbed) = measuring.testbed(&params, &names, testbed)? {
                let plan = plan(rtt_ms, arguments.shared.quick);
                measuring.group(group(&testbed, params, (plan, resumed), &subjects))?;
            }
        }
    }
    Ok(measuring.finish())
}

fn subjects(arguments: &Arguments, rtt_ms: u64) -> anyhow::Result<Vec<Subject>> {
    if arguments.subject.is_empty() {
        let few = arguments.shared.quick && rtt_ms > 0;
        return all(if few { &FEW_BLOCKS } else { &BLOCKS });
    }
    let all = all(&BLOCKS)?;
    let named = |name: &String| {
        let found = all.iter().find(|subject| subject.to_string() == *name);
        found.copied().ok_or_else(|| anyhow!("there is no subject `{name}`"))
    };
    arguments.subject.iter().map(named).collect()
}

fn all(blocks: &[u16]) -> anyhow::Result<Vec<Subject>> {
    let mut all = vec![Subject::Levada(Framing::Auto)];
    for &length in blocks {
        all.push(Subject::Levada(Framing::block(length)?));
    }
    all.extend([Subject::Rustls, Subject::Tcp]);
    Ok(all)
}

/// The number of connections, so that a run takes about half a second at 0 and 4 ms.
fn plan(rtt_ms: u64, quick: bool) -> Plan {
    let (warm_up, count) = match rtt_ms {
        0 => (5, 200),
        1..20 => (2, 30),
        _ => (1, 10),
    };
    let count = if quick { count / 2 } else { count };
    Plan { warm_up, count, pause: Duration::from_millis(rtt_ms) }
}

fn group<'a>(
    testbed: &'a Testbed,
    params: Params,
    (plan, resumed): (Plan, bool),
    subjects: &[Subject],
) -> Group<'a> {
    let case = |&subject: &Subject| {
        Case::new(subject.to_string(), move || Ok(measured(subject, testbed, plan, resumed)?))
    };
    let cases = subjects.iter().map(case).collect();
    Group { experiment: NAME, params, cases, monitor: testbed.monitor() }
}

fn measured(
    subject: Subject,
    testbed: &Testbed,
    plan: Plan,
    resumed: bool,
) -> anyhow::Result<Vec<Measured>> {
    let count = plan.all();
    let timings = match subject {
        Subject::Levada(framing) => {
            dial::run(testbed, plan, levada::Levada::new(framing, count, resumed)?)?
        }
        Subject::Rustls => dial::run(testbed, plan, tls::Tls::new(count, resumed)?)?,
        Subject::Tcp => dial::run(testbed, plan, tcp::Tcp)?,
    };
    let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(vec![
        Measured::milliseconds("time", timings.times),
        Measured::new("client CPU", "µs", microseconds(timings.client)),
        Measured::new("server CPU", "µs", microseconds(timings.server)),
    ])
}
