//! How much a server can answer at most, and how fast it is at half of that.

use std::time::Duration;

use levada_harness::{Case, Measured, Params, Row, find, params};

use super::bench::{Bench, Job};
use super::generator::{Load, Plan, Reuse};
use super::levada;
use super::load::Arguments;
use super::objects::Object;
use super::server::Server;
use super::site::{Doubt, Site};
use super::sweep::{POOL, Requests};
use super::{nginx, publisher, wrk};

/// The values of `part` in rows: in a closed loop; at half of nginx's saturation; at half of its own, with and without
/// publishing.
pub const PART: &str = "saturation";
pub const HALF: &str = "half";
pub const PUBLISHING: &str = "publishing";
/// Appended to a subject that is asked with the tag of what it answers.
pub const CONDITIONAL: &str = "/304";
/// The subject of [`PUBLISHING`] that is published to meanwhile.
pub const PUBLISHED: &str = "levada/publishing";
/// At half of a saturation a run asks so often for a tenth of a second. Cores of a virtual machine stand still now
/// and then, for up to 4 ms; in a run of seconds that is about one percent of all requests, so that its p99 says mostly how
/// often this happened. Most tenths are without.
const SLICES: usize = 20;
const FEW_SLICES: usize = 6;
/// Publications per second.
pub const PUBLICATIONS: u32 = 50;

/// What its rows have in common.
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

/// Measures at half of nginx's saturation, if that is known.
pub fn half(bench: &mut Bench, arguments: &Arguments) -> anyhow::Result<()> {
    each(arguments, |rtt_us, object, requests| {
        let saturation = at(PART, rtt_us, object, requests);
        let Some(rate) = half_of(bench.rows(), nginx::NAME, &saturation) else { return Ok(()) };
        let (params, subjects) = (at(HALF, rtt_us, object, requests), bench.subjects.clone());
        let (plan, repeats) = (slice(rate, requests, true), slices(bench));
        bench.side_by_side(rtt_us, params, &subjects, |site, doubt, name| {
            let job = Job { repeats, ..job(site, name, (object, requests), plan)? };
            Ok(job.case(&site.place, doubt))
        })
    })
}

/// Measures reading at half of its own saturation while descriptors are published, beside reading alone.
pub fn publishing(bench: &mut Bench) -> anyhow::Result<()> {
    let (object, requests) = (Object::Descriptor, Requests::Many);
    let saturation = at(PART, 0, object, requests);
    let Some(rate) = half_of(bench.rows(), levada::NAME, &saturation) else { return Ok(()) };
    let params = at(PUBLISHING, 0, object, requests);
    if !bench.wants(&params, &[levada::NAME.to_owned(), PUBLISHED.to_owned()]) {
        return Ok(());
    }
    let Some(site) = bench.site(0)? else { return Ok(()) };
    let doubt = Doubt::default();
    // The publisher shares the generator's core, so that it must sleep, in both cases.
    let (plan, repeats) = (slice(rate, requests, false), slices(bench));
    let case = || {
        let job = Job { repeats, ..job(&site, levada::NAME, (object, requests), plan)? };
        anyhow::Ok(job.case(&site.place, &doubt))
    };
    let cases = vec![case()?, published(site.server(levada::NAME)?, case()?)];
    bench.measure(&site.place, &doubt, params, cases)
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
    bench.side_by_side(rtt_us, params, &subjects, |site, doubt, name| {
        let job = job(site, name, (object, requests), closed(requests, quick))?;
        let case = job.case(&site.place, doubt);
        let also = !quick && rtt_us == 0 && wrk::is_here() && !name.ends_with(CONDITIONAL);
        if also { by_wrk(site, name, (object, requests), case) } else { Ok(case) }
    })
}

/// Asked for an object, or, if its name says so, whether that has changed.
fn job(
    site: &Site,
    name: &str,
    (object, requests): (Object, Requests),
    plan: Plan,
) -> anyhow::Result<Job> {
    let plain = name.strip_suffix(CONDITIONAL);
    let server = site.server(plain.unwrap_or(name))?;
    let last = requests == Requests::One;
    let target = site.target(server, object, plain.is_some(), last)?;
    let mut job = Job::new(name, vec![server.family()], target, plan);
    // Long enough that caches are warm.
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

/// A tenth of a second.
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

/// Half the rate at which a subject was saturated.
fn half_of(rows: &[Row], subject: &str, saturation: &Params) -> Option<u32> {
    let row = find(rows, subject, "response rate", saturation)?;
    Some((row.median / 2.0).round() as u32).filter(|rate| *rate > 0)
}

/// What wrk finds in the same run.
fn by_wrk<'a>(
    site: &'a Site,
    name: &str,
    (object, requests): (Object, Requests),
    mut case: Case<'a>,
) -> anyhow::Result<Case<'a>> {
    let (address, last) = (site.server(name)?.address(), requests == Requests::One);
    Ok(Case::new(name, move || {
        let mut measured = (case.run)()?;
        let rate = wrk::rate(&site.place, address, &object.path(), POOL, last)?;
        measured.push(Measured::new(wrk::RATE, "1/s", rate));
        Ok(measured)
    }))
}

/// The same case while descriptors are published.
fn published<'a>(server: &'a Server, mut case: Case<'a>) -> Case<'a> {
    Case::new(PUBLISHED, move || {
        let run = || (case.run)();
        let (measured, published) = publisher::meanwhile(server, PUBLICATIONS, run)?;
        let mut measured = measured?;
        let rate = published.done as f64 / published.seconds.max(f64::MIN_POSITIVE);
        measured.push(Measured::new("published", "1/s", rate));
        Ok(measured)
    })
}
