//! The highest rate of answers of a server, and its response time at half of that.

use std::time::Duration;

use levada_harness::{Case, Measured, Params, Row, find, params};

use super::bench::{Bench, Job};
use super::deployment::{Deployment, RunFlag};
use super::generator::{Load, Plan, Reuse};
use super::levada;
use super::load::Arguments;
use super::objects::Object;
use super::server::Server;
use super::sweep::{POOL, Requests};
use super::{nginx, publisher, wrk};

/// The values of `part` in rows: in a closed loop; at half of nginx's saturation; at half of its
/// own, with and without publishing.
pub const PART: &str = "saturation";
pub const HALF: &str = "half";
pub const PUBLISHING: &str = "publishing";
/// The suffix of a subject with conditional requests (`If-None-Match`).
pub const CONDITIONAL: &str = "/304";
/// The subject of [`PUBLISHING`] that receives publications during the run.
pub const PUBLISHED: &str = "levada/publishing";
/// The number of repetitions of 0.1 s in a run at half of saturation. The cores of a virtual
/// machine pause now and then for up to 4 ms; in a run of seconds that affects about one percent of
/// all requests, so that its p99 would measure the pauses. Most repetitions of 0.1 s have none.
const SLICES: usize = 20;
const FEW_SLICES: usize = 6;
/// Publications per second.
pub const PUBLICATIONS: u32 = 50;

/// The parameters of all rows of `part`.
pub fn at(part: &str, rtt_us: u64, object: Object, requests: Requests) -> Params {
    params([
        ("part", part.into()),
        ("rtt_us", rtt_us.into()),
        ("object", object.name().into()),
        ("requests", requests.name().into()),
    ])
}

/// Measures saturation.
pub fn run(bench: &mut Bench, arguments: &Arguments) -> anyhow::Result<()> {
    each(arguments, |rtt_us, object, requests| saturate(bench, rtt_us, object, requests))
}

/// Measures at half of nginx's saturation, if that was measured.
pub fn half(bench: &mut Bench, arguments: &Arguments) -> anyhow::Result<()> {
    each(arguments, |rtt_us, object, requests| {
        let saturation = at(PART, rtt_us, object, requests);
        let Some(rate) = half_of(bench.rows(), nginx::NAME, &saturation) else { return Ok(()) };
        let params = at(HALF, rtt_us, object, requests);
        let subjects = bench.subjects.clone();
        let plan = slice(rate, requests, true);
        let repeats = slices(bench);
        bench.measure_subjects(rtt_us, params, &subjects, |deployment, run_flag, name| {
            let job = Job { repeats, ..job(deployment, name, (object, requests), plan)? };
            Ok(job.case(&deployment.testbed, run_flag))
        })
    })
}

/// Measures reading at half of its own saturation, with and without publications.
pub fn publishing(bench: &mut Bench) -> anyhow::Result<()> {
    let object = Object::Descriptor;
    let requests = Requests::Many;
    let saturation = at(PART, 0, object, requests);
    let Some(rate) = half_of(bench.rows(), levada::NAME, &saturation) else { return Ok(()) };
    let params = at(PUBLISHING, 0, object, requests);
    if !bench.needs(&params, &[levada::NAME.to_owned(), PUBLISHED.to_owned()]) {
        return Ok(());
    }
    let Some(deployment) = bench.deployment(0)? else { return Ok(()) };
    let run_flag = RunFlag::default();
    // The publisher shares the generator's core, so the generator must sleep, in both cases.
    let plan = slice(rate, requests, false);
    let repeats = slices(bench);
    let case = || {
        let job = Job { repeats, ..job(&deployment, levada::NAME, (object, requests), plan)? };
        anyhow::Ok(job.case(&deployment.testbed, &run_flag))
    };
    let cases = vec![case()?, published(deployment.server(levada::NAME)?, case()?)];
    bench.measure(&deployment.testbed, &run_flag, params, cases)
}

fn each(
    arguments: &Arguments,
    mut measure: impl FnMut(u64, Object, Requests) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for rtt_us in arguments.rtts() {
        for object in arguments.objects() {
            for requests in Requests::ALL {
                measure(rtt_us, object, requests)?;
            }
        }
    }
    Ok(())
}

fn saturate(
    bench: &mut Bench,
    rtt_us: u64,
    object: Object,
    requests: Requests,
) -> anyhow::Result<()> {
    let params = at(PART, rtt_us, object, requests);
    let mut subjects = bench.subjects.clone();
    if (object, requests) == (Object::Descriptor, Requests::Many) {
        let conditional = |name: &String| name.clone() + CONDITIONAL;
        subjects.extend(bench.subjects.iter().map(conditional));
    }
    let quick = bench.quick;
    bench.measure_subjects(rtt_us, params, &subjects, |deployment, run_flag, name| {
        let job = job(deployment, name, (object, requests), closed(requests, quick))?;
        let case = job.case(&deployment.testbed, run_flag);
        let also = !quick && rtt_us == 0 && wrk::is_here() && !name.ends_with(CONDITIONAL);
        if also { with_wrk(deployment, name, (object, requests), case) } else { Ok(case) }
    })
}

/// Requests for an object, conditional if the name ends with [`CONDITIONAL`].
fn job(
    deployment: &Deployment,
    name: &str,
    (object, requests): (Object, Requests),
    plan: Plan,
) -> anyhow::Result<Job> {
    let plain = name.strip_suffix(CONDITIONAL);
    let server = deployment.server(plain.unwrap_or(name))?;
    let last = requests == Requests::One;
    let target = deployment.target(server, object, plain.is_some(), last)?;
    let mut job = Job::new(name, vec![server.process_tree()], target, plan);
    // A shorter warm-up run fills the caches.
    job.first.load = match plan.load {
        Load::Open { rate, count } => Load::Open { rate, count: count.min(rate / 4).max(1) },
        Load::Closed { warm_up, length } => Load::Closed { warm_up, length: length / 4 },
    };
    Ok(job)
}

fn closed(requests: Requests, quick: bool) -> Plan {
    let length = Duration::from_millis(if quick { 400 } else { 1500 });
    let load = Load::Closed { warm_up: Duration::from_millis(200), length };
    Plan::new(load, reuse(requests))
}

/// A plan of 0.1 s.
fn slice(rate: u32, requests: Requests, alone: bool) -> Plan {
    let load = Load::Open { rate, count: (rate / 10).max(1) };
    Plan { alone, ..Plan::new(load, reuse(requests)) }
}

fn slices(bench: &Bench) -> usize {
    if bench.quick { FEW_SLICES } else { SLICES }
}

fn reuse(requests: Requests) -> Reuse {
    match requests {
        Requests::One => Reuse::One(POOL),
        Requests::Many => Reuse::Many(POOL),
    }
}

/// Half of a subject's saturation rate.
fn half_of(rows: &[Row], subject: &str, saturation: &Params) -> Option<u32> {
    let row = find(rows, subject, "response rate", saturation)?;
    Some((row.median / 2.0).round() as u32).filter(|rate| *rate > 0)
}

/// The same case, with the rate that wrk measures in each run.
fn with_wrk<'a>(
    deployment: &'a Deployment,
    name: &str,
    (object, requests): (Object, Requests),
    mut case: Case<'a>,
) -> anyhow::Result<Case<'a>> {
    let address = deployment.server(name)?.address();
    let last = requests == Requests::One;
    Ok(Case::new(name, move || {
        let mut measured = (case.run)()?;
        let rate = wrk::rate(&deployment.testbed, address, &object.path(), POOL, last)?;
        measured.push(Measured::new(wrk::RATE, "1/s", rate));
        Ok(measured)
    }))
}

/// The same case with publications during the run.
fn published<'a>(server: &'a Server, mut case: Case<'a>) -> Case<'a> {
    Case::new(PUBLISHED, move || {
        let run = || (case.run)();
        let (measured, published) = publisher::publish_during(server, PUBLICATIONS, run)?;
        let mut measured = measured?;
        let rate = published.done as f64 / published.seconds.max(f64::MIN_POSITIVE);
        measured.push(Measured::new("published", "1/s", rate));
        Ok(measured)
    })
}
