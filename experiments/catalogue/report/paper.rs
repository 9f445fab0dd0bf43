//! The paper's figures, and the results of the same sweep on this machine.

use levada_harness::{Row, find};

use crate::catalogue::bounds::Bounds;
use crate::catalogue::figures::Paper;
use crate::catalogue::load::RTTS;
use crate::catalogue::objects::Object;
use crate::catalogue::sweep::{Requests, STABLE, Step, Sweep};
use crate::catalogue::{levada, nginx};
use crate::table::{Table, short};

/// The command of every figure, without its object.
const COMMAND: &str = "`cargo xp catalogue load --part sweep --object";
/// A system is stable while it answers at least this share of the demanded rate.
const STABLE_SHARE: f64 = 0.95;

/// A line for each figure: the paper's value, and those of both subjects, on loopback and with the
/// paper's round trip.
pub fn table(rows: &[Row]) -> Table {
    let head = ["figure of the paper", "command", "the paper's value"];
    let here = ["levada, loopback", "nginx, loopback", "levada, 0.56 ms RTT", "nginx, 0.56 ms RTT"];
    let mut table =
        Table::new("The paper and here, a connection per request", head.into_iter().chain(here));
    for object in Object::ALL {
        let paper = Paper::of(object);
        let mut line = |figure: &str, theirs: String, step, value: Value| {
            let command = format!("{COMMAND} {}`", object.name());
            let figure = format!("{figure}, {}", object.name());
            let at = |rtt_us| Sweep { rtt_us, object, requests: Requests::One, step };
            let ours = each(|rtt_us, subject| value(rows, at(rtt_us), subject));
            table.lines.push([figure, command, theirs].into_iter().chain(ours).collect());
        };
        let theirs = format!("{} ms, then up to {} ms", paper.stable_ms, paper.saturated_ms);
        line("response time over demanded rate", theirs, Step::Long, stable);
        let theirs = "below 30 ms".to_owned();
        line("its magnification, 95 % bounds", theirs, Step::Twenty, low);
        let theirs = format!("at most {} 1/s", paper.rate);
        line("actual over demanded rate", theirs, Step::Long, most);
        let theirs = match object {
            Object::Descriptor => "from 410 1/s on",
            Object::Package => "2 of 20,000 when stable",
        };
        line("errors over demanded rate", theirs.to_owned(), Step::Long, first_error);
    }
    let ours = each(|rtt_us, subject| extra_time(rows, rtt_us, subject));
    let command = "`cargo xp catalogue load --part sweep --rate 400`".to_owned();
    let figure = "CDF of both, unsaturated".to_owned();
    let theirs = "the package takes less than 1 ms more".to_owned();
    table.lines.push([figure, command, theirs].into_iter().chain(ours).collect());
    table
}

/// Computes a cell from a sweep of one subject.
type Value = fn(&[Row], Sweep, &str) -> String;

/// For every round trip and subject, in the table's order.
fn each(value: impl Fn(u64, &str) -> String) -> impl Iterator<Item = String> {
    let subjects = [levada::NAME, nginx::NAME];
    RTTS.into_iter().flat_map(move |rtt| subjects.map(|subject| value(rtt, subject)))
}

/// A sweep's rows of one metric, by ascending demanded rate.
pub fn by_rate<'a>(
    rows: &'a [Row],
    sweep: Sweep,
    subject: &str,
    metric: &str,
) -> Vec<(f64, &'a Row)> {
    let at = sweep.params();
    let of = |row: &&Row| find(std::slice::from_ref(*row), subject, metric, &at).is_some();
    let with_rate = |row: &'a Row| Some((row.number("rate")?, row));
    let mut all: Vec<_> = rows.iter().filter(of).filter_map(with_rate).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// The range of mean response times while a subject is stable, and the highest stable rate.
fn stable(rows: &[Row], sweep: Sweep, subject: &str) -> String {
    let rates = by_rate(rows, sweep, subject, "response rate");
    let follows = |(rate, row): &&(f64, &Row)| row.median >= STABLE_SHARE * rate;
    let Some((until, _)) = rates.iter().take_while(follows).last() else { return String::new() };
    let times = by_rate(rows, sweep, subject, "response time mean");
    let times: Vec<f64> =
        times.iter().filter(|(rate, _)| rate <= until).map(|(_, row)| row.median).collect();
    let most = times.iter().copied().fold(0.0, f64::max);
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{} to {} ms up to {until} 1/s", short(least), short(most))
}

/// The highest upper bound of the mean at low rates.
fn low(rows: &[Row], sweep: Sweep, subject: &str) -> String {
    let times = by_rate(rows, sweep, subject, "response time mean");
    let low = times.iter().filter(|(rate, _)| *rate <= 600.0);
    let highest = low.map(|(_, row)| Bounds::of(row).high).reduce(f64::max);
    highest.map(|high| format!("below {} ms", short(high))).unwrap_or_default()
}

fn most(rows: &[Row], sweep: Sweep, subject: &str) -> String {
    let rates = by_rate(rows, sweep, subject, "response rate");
    let highest = rates.iter().map(|(_, row)| row.median).reduce(f64::max);
    highest.map(|rate| format!("at most {rate:.0} 1/s")).unwrap_or_default()
}

fn first_error(rows: &[Row], sweep: Sweep, subject: &str) -> String {
    let errors = by_rate(rows, sweep, subject, "errors");
    let Some((last, _)) = errors.last() else { return String::new() };
    let first = errors.iter().find(|(_, row)| row.values.iter().any(|count| *count > 0.0));
    match first {
        Some((rate, _)) => format!("from {rate} 1/s on"),
        None => format!("none up to {last} 1/s"),
    }
}

/// The difference of the mean response times of package and descriptor.
fn extra_time(rows: &[Row], rtt_us: u64, subject: &str) -> String {
    let median = |object| {
        let sweep = Sweep { rtt_us, object, requests: Requests::One, step: Step::Long };
        let times = by_rate(rows, sweep, subject, "response time mean");
        let found = times.into_iter().find(|(rate, _)| *rate == f64::from(STABLE))?;
        Some(found.1.median)
    };
    let more = median(Object::Package).zip(median(Object::Descriptor));
    more.map(|(package, descriptor)| format!("{} ms more", short(package - descriptor)))
        .unwrap_or_default()
}
