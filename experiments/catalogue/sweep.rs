//! Response time, rate and errors over the imposed rate, as in the paper's figures.

use std::collections::BTreeMap;

use levada_harness::{Params, Row, params};

use super::bench::{Bench, Job};
use super::deployment::Deployment;
use super::generator::{Load, Plan, Reuse};
use super::load::Arguments;
use super::objects::Object;

/// The value of `part` in its rows.
pub const PART: &str = "sweep";
/// Connections of a step in the paper.
const TWENTY: u32 = 20;
/// Requests on each of these connections with keep-alive.
const EACH: u32 = 10;
/// Connections of a long step with keep-alive.
pub const POOL: usize = 64;
/// The rate per second at which the distribution is kept: the paper's system is stable below 500.
pub const STABLE: u32 = 400;
/// The rate per second that every sweep reaches, as in the paper.
pub const MOST: u32 = 4000;
/// A subject is saturated if it answers less than this share of the demanded rate.
const SATURATED: f64 = 0.8;

/// Imposed rates of the steps with 20 connections, per second.
const RATES: [u32; 20] = [
    1, 5, 10, 20, 50, 100, 150, 200, 250, 300, 400, 500, 700, 1000, 1500, 2000, 2500, 3000, 3500,
    4000,
];
/// Imposed rates of the long steps; a sweep ends at saturation.
const LONG_RATES: [u32; 24] = [
    50, 100, 200, 300, 400, 500, 700, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 6000, 8000, 12_000,
    16_000, 24_000, 32_000, 48_000, 64_000, 96_000, 128_000,
];
/// Imposed rates of a quick run.
const FEW_RATES: [u32; 5] = [20, 100, 400, 1000, 4000];
const FEW_LONG_RATES: [u32; 7] = [400, 1000, 4000, 8000, 16_000, 32_000, 64_000];

/// The order of sweeps: the paper's first and the longest last, for a call with a time limit.
const ORDER: [(Requests, Step); 4] = [
    (Requests::One, Step::Twenty),
    (Requests::One, Step::Long),
    (Requests::Many, Step::Long),
    (Requests::Many, Step::Twenty),
];

/// How many requests a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// One.
    One,
    /// Many.
    Many,
}

/// How long a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// As in the paper.
    Twenty,
    /// Long enough for stable averages at high rates.
    Long,
}

impl Requests {
    /// Both.
    pub const ALL: [Self; 2] = [Self::One, Self::Many];

    /// In rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Many => "many",
        }
    }
}

impl Step {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Twenty, Self::Long];

    /// In rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Twenty => "20 connections",
            Self::Long => "long",
        }
    }
}

/// The conditions of a sweep.
#[derive(Clone, Copy)]
pub struct Sweep {
    /// Round trip in µs.
    pub rtt_us: u64,
    /// The fetched object.
    pub object: Object,
    /// Requests per connection.
    pub requests: Requests,
    /// The length of a step.
    pub step: Step,
}

/// Runs all sweeps.
pub fn run(bench: &mut Bench, arguments: &Arguments) -> anyhow::Result<()> {
    for (requests, step) in ORDER {
        for rtt_us in arguments.rtts() {
            for object in arguments.objects() {
                let sweep = Sweep { rtt_us, object, requests, step };
                sweep.run(bench, &arguments.rates(sweep.rates(bench.quick)))?;
            }
        }
    }
    Ok(())
}

impl Sweep {
    /// The parameters of all its rows.
    pub fn params(self) -> Params {
        params([
            ("part", PART.into()),
            ("rtt_us", self.rtt_us.into()),
            ("object", self.object.name().into()),
            ("requests", self.requests.name().into()),
            ("step", self.step.name().into()),
        ])
    }

    fn at(self, rate: u32) -> Params {
        let mut params = self.params();
        params.insert("rate".to_owned(), rate.into());
        params
    }

    fn rates(self, quick: bool) -> Vec<u32> {
        let all = match (self.step, quick) {
            (Step::Twenty, false) => &RATES[..],
            (Step::Twenty, true) if self.requests == Requests::Many => &[][..],
            (Step::Twenty, true) => &FEW_RATES[..],
            (Step::Long, false) => &LONG_RATES[..],
            (Step::Long, true) => &FEW_LONG_RATES[..],
        };
        // A step with keep-alive has ten times as many requests.
        let least = if self.requests == Requests::Many { 50 } else { 1 };
        // With a link, a quick run leaves out rates that would measure only the emulator.
        let most = if quick && self.rtt_us > 0 { MOST } else { u32::MAX };
        all.iter().copied().filter(|rate| (least..=most).contains(rate)).collect()
    }

    fn run(self, bench: &mut Bench, rates: &[u32]) -> anyhow::Result<()> {
        for &rate in rates {
            if rate > MOST && self.is_past_saturation(bench.rows(), rate) {
                break;
            }
            let params = self.at(rate);
            let subjects = bench.subjects.clone();
            let quick = bench.quick;
            bench.measure_subjects(
                self.rtt_us,
                params,
                &subjects,
                |deployment, run_flag, name| {
                    Ok(self.job(deployment, name, rate, quick)?.case(&deployment.testbed, run_flag))
                },
            )?;
        }
        Ok(())
    }

    fn job(
        self,
        deployment: &Deployment,
        name: &str,
        rate: u32,
        quick: bool,
    ) -> anyhow::Result<Job> {
        let server = deployment.server(name)?;
        let last = self.requests == Requests::One;
        let target = deployment.target(server, self.object, false, last)?;
        let plan = self.plan(rate, quick);
        let mut job = Job::new(name, vec![server.process_tree()], target, plan);
        if let Load::Open { rate, count } = plan.load {
            job.first.load = Load::Open { rate, count: count.min(rate / 4).max(1) };
        }
        let short = (self.step, self.requests) == (Step::Twenty, Requests::One) && rate >= 50;
        job.repeats = if short && !quick { 4 } else { 1 };
        job.distribution = self.step == Step::Long && rate == STABLE;
        Ok(job)
    }

    fn plan(self, rate: u32, quick: bool) -> Plan {
        // In tenths of a second.
        let length = if quick { 5 } else { 15 };
        let (count, pool) = match (self.step, self.requests) {
            (Step::Twenty, Requests::One) => (TWENTY, 0),
            (Step::Twenty, Requests::Many) => (TWENTY * EACH, TWENTY as usize),
            (Step::Long, _) => ((rate * length / 10).max(TWENTY), POOL),
        };
        let reuse = match self.requests {
            Requests::One => Reuse::One(0),
            Requests::Many => Reuse::Many(pool),
        };
        Plan::new(Load::Open { rate, count }, reuse)
    }

    /// Whether all subjects were saturated at a lower rate.
    fn is_past_saturation(self, rows: &[Row], rate: u32) -> bool {
        let mut best: BTreeMap<u64, f64> = BTreeMap::new();
        for (demanded, actual) in rates(rows, &self.params()) {
            if demanded < u64::from(rate) {
                let share = best.entry(demanded).or_default();
                *share = share.max(actual / demanded as f64);
            }
        }
        best.values().any(|share| *share < SATURATED)
    }
}

/// Demanded and actual rates of all rows with these parameters, of all subjects.
fn rates(rows: &[Row], at: &Params) -> impl Iterator<Item = (u64, f64)> {
    let of_sweep = rows.iter().filter(move |row| {
        row.metric == "response rate"
            && at.iter().all(|(name, value)| row.params.get(name) == Some(value))
    });
    of_sweep.filter_map(|row| Some((row.params.get("rate")?.as_u64()?, row.median)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: Sweep =
        Sweep { rtt_us: 0, object: Object::Descriptor, requests: Requests::One, step: Step::Long };

    fn row(rate: u32, subject: &str, actual: f64) -> Row {
        let row = serde_json::json!({
            "experiment": "e", "subject": subject, "params": SWEEP.at(rate),
            "metric": "response rate", "unit": "1/s", "median": actual, "min": 0.0, "max": 0.0,
            "p50": 0.0, "p99": 0.0, "runs": 1, "values": [actual],
        });
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn a_sweep_ends_when_all_subjects_are_saturated() {
        let mut rows = vec![row(8000, "a", 8000.0), row(8000, "b", 1000.0)];
        assert!(!SWEEP.is_past_saturation(&rows, 16_000));
        rows.extend([row(16_000, "a", 9000.0), row(16_000, "b", 1000.0)]);
        assert!(!SWEEP.is_past_saturation(&rows, 16_000), "the saturated rate itself is measured");
        assert!(SWEEP.is_past_saturation(&rows, 32_000));
    }

    #[test]
    fn steps_have_20_connections_or_a_fixed_length() {
        let count = |sweep: Sweep, rate| match sweep.plan(rate, false).load {
            Load::Open { count, .. } => count,
            Load::Closed { .. } => 0,
        };
        assert_eq!(count(Sweep { step: Step::Twenty, ..SWEEP }, 4000), 20);
        assert_eq!(count(SWEEP, 4000), 6000);
        assert_eq!(SWEEP.rates(true), FEW_LONG_RATES);
        let linked = Sweep { rtt_us: 560, ..SWEEP };
        assert_eq!(linked.rates(true), [400, 1000, 4000]);
    }
}
