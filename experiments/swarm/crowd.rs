//! A coordinator with thousands of registered connections that do nothing: its memory, and the time
//! of a peer that fetches. Real sockets.

use anyhow::ensure;
use levada_harness::{Case, Group, Measured, Options, Params, params};

use super::part::{Process, downloads, memory};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "swarm/crowd";
/// The subject.
pub const SUBJECT: &str = "levada/coordinator";
/// The content and a chunk in bytes, so that a download is a sequence of requests and answers.
const LENGTH: usize = 64 << 10;
const CHUNK: u32 = 1 << 10;
/// Downloads of a run.
const DOWNLOADS: usize = 40;

/// The numbers of idle connections that are compared.
pub fn counts(quick: bool) -> [usize; 2] {
    [0, if quick { 1000 } else { 10_000 }]
}

/// The conditions of rows.
pub fn conditions(idle: usize) -> Params {
    params([("idle_connections", idle.into()), ("bytes", LENGTH.into())])
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let counts = counts(options.quick);
    let mut measuring = Measuring::new(NAME, options, counts.len())?;
    for idle in counts {
        let at = conditions(idle);
        if measuring.needs(&at, &[SUBJECT.to_owned()]) {
            let case = Case::new(SUBJECT, move || Ok(measure(idle)?));
            measuring.group(Group {
                experiment: NAME,
                params: at,
                cases: vec![case],
                monitor: None,
            })?;
        }
    }
    Ok(measuring.finish())
}

fn measure(idle: usize) -> anyhow::Result<Vec<Measured>> {
    let length = LENGTH.to_string();
    let chunk = CHUNK.to_string();
    let count = idle.to_string();
    let mut coordinator = Process::start(&["coordinator", &length, &chunk])?;
    let address = coordinator.line()?;
    let identity = coordinator.line()?;
    let mut crowd = Process::start(&["idle", &address, &identity, &count])?;
    ensure!(crowd.line()? == "ready", "the idle connections are not there");
    ensure!(coordinator.state()?["peers"] == idle, "the coordinator has other connections");
    let times = downloads(&address, &identity, (LENGTH, CHUNK), DOWNLOADS)?;
    let memory = memory(coordinator.id(), "VmRSS")?;
    Ok(vec![
        Measured::new("download", "ms", median(times) * 1e3),
        Measured::new("memory", "MiB", memory as f64 / f64::from(1 << 20)),
    ])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
