//! The tables, computed from rows only.

mod paper;

use std::path::Path;

use anyhow::ensure;
use levada_harness::{Params, Row, find, read_rows};

use super::bounds::Bounds;
use super::load::RTTS;
use super::objects::Object;
use super::saturation::{CONDITIONAL, HALF, PART, PUBLISHED, PUBLISHING, at};
use super::sweep::{Requests, Step, Sweep};
use super::{NAME, balanced, deployment, large, levada, nginx, targets, wrk};
use crate::measuring::file;
use crate::table::{Table, filled, mark, short};
use paper::by_rate;

/// Every table that the rows in `folder` allow.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    let mut rows = read_rows(&file(folder, NAME))?;
    rows.retain(|row| row.experiment == NAME);
    ensure!(!rows.is_empty(), "{} has no rows of {NAME}", folder.display());
    let mut tables = vec![paper::table(&rows), targets::table(&rows)];
    tables.extend([saturation(&rows), half(&rows), publishing(&rows)]);
    tables.extend([balanced(&rows), large(&rows), generator(&rows)]);
    for object in Object::ALL {
        for requests in Requests::ALL {
            for step in Step::ALL {
                let of = |rtt_us| sweep(&rows, Sweep { rtt_us, object, requests, step });
                tables.extend(RTTS.map(of));
            }
        }
    }
    Ok(filled(tables))
}

/// One cell: empty if there is no such row, marked with `!` if its runs were flagged.
fn cell(rows: &[Row], subject: &str, metric: &str, at: &Params) -> String {
    found(rows, subject, metric, at, |row| short(row.median))
}

fn found(
    rows: &[Row],
    subject: &str,
    metric: &str,
    at: &Params,
    text: impl Fn(&Row) -> String,
) -> String {
    let text = |row: &Row| text(row) + mark(row);
    find(rows, subject, metric, at).map(text).unwrap_or_default()
}

fn saturation(rows: &[Row]) -> Table {
    let head = [
        "round trip, object, requests per connection",
        "levada 1/s",
        "nginx 1/s",
        "levada by wrk",
        "nginx by wrk",
        "levada µs",
        "nginx µs",
        "levada p99 ms",
        "nginx p99 ms",
        "levada 304 1/s",
        "nginx 304 1/s",
    ];
    let title = "Closed loop, 64 connections: answers per second, CPU time of each, p99";
    let mut table = Table::new(title, head);
    conditions(|condition, rtt, object, requests| {
        let at = at(PART, rtt, object, requests);
        let mut line = vec![condition];
        for metric in ["response rate", wrk::RATE, deployment::CPU, "response time p99"] {
            let of = |subject: &str| cell(rows, subject, metric, &at);
            line.extend([levada::NAME, nginx::NAME].map(of));
        }
        let conditional =
            |subject: &str| cell(rows, &format!("{subject}{CONDITIONAL}"), "response rate", &at);
        line.extend([levada::NAME, nginx::NAME].map(conditional));
        push(&mut table, line);
    });
    table
}

fn half(rows: &[Row]) -> Table {
    let head = ["round trip, object, requests per connection", "demanded 1/s"].into_iter();
    let texts = ["mean", "p95", "p99", "p99 of all", "µs"];
    let of = |name: &str| texts.map(|text| format!("{name} {text}"));
    let heads = head.map(str::to_owned).chain(of("levada")).chain(of("nginx"));
    let title = "Open loop at half of nginx's saturation: response times in ms, CPU time of each";
    let mut table = Table::new(title, heads);
    conditions(|condition, rtt, object, requests| {
        let at = at(HALF, rtt, object, requests);
        let mut line = vec![condition];
        let either = [levada::NAME, nginx::NAME].map(|name| cell(rows, name, "demanded rate", &at));
        line.extend(either.into_iter().find(|cell| !cell.is_empty()).or(Some(String::new())));
        for subject in [levada::NAME, nginx::NAME] {
            let metrics = ["response time mean", "response time p95", "response time p99"];
            line.extend(metrics.map(|metric| cell(rows, subject, metric, &at)));
            line.push(found(rows, subject, "response time", &at, |row| short(row.p99)));
            line.push(cell(rows, subject, deployment::CPU, &at));
        }
        push(&mut table, line);
    });
    table
}

fn publishing(rows: &[Row]) -> Table {
    let head = ["descriptors, keep-alive, loopback", "demanded 1/s", "p50 ms", "p99 ms"];
    let head = head.into_iter().chain(["p99 of all ms", "errors", "published 1/s"]);
    let title = "Reading at half of its own saturation, alone and while descriptors are published";
    let mut table = Table::new(title, head);
    let at = at(PUBLISHING, 0, Object::Descriptor, Requests::Many);
    for subject in [levada::NAME, PUBLISHED] {
        let mut line = vec![format!("`{subject}`"), cell(rows, subject, "demanded rate", &at)];
        line.push(found(rows, subject, "response time", &at, |row| short(row.p50)));
        line.push(cell(rows, subject, "response time p99", &at));
        line.push(found(rows, subject, "response time", &at, |row| short(row.p99)));
        let metrics = ["errors", "published"];
        line.extend(metrics.map(|metric| cell(rows, subject, metric, &at)));
        push(&mut table, line);
    }
    table
}

fn balanced(rows: &[Row]) -> Table {
    let head = ["catalogues behind nginx", "actual 1/s", "p50 ms", "p99 ms", "p99.9 ms", "errors"];
    let title = "Several catalogues, in turn, at 1000 connections per second; all share one core";
    let mut table = Table::new(title, head);
    let at = balanced::at();
    for (count, killed) in balanced::CASES {
        let subject = balanced::name(count, killed);
        let words = if killed { format!("{count}, one killed") } else { count.to_string() };
        let time = |text: fn(&Row) -> String| found(rows, &subject, "response time", &at, text);
        let mut line = vec![words, cell(rows, &subject, "response rate", &at)];
        line.extend([time(|row| short(row.p50)), time(|row| short(row.p99))]);
        line.push(time(|row| row.p999.map(short).unwrap_or_default()));
        line.push(found(rows, &subject, "errors", &at, |row| total(row).to_string()));
        push(&mut table, line);
    }
    table
}

fn large(rows: &[Row]) -> Table {
    let head = ["descriptors", "start-up s", "B each", "beyond its text", "p50 ms", "p99 ms"];
    let mut table = Table::new("A large catalogue: start-up, memory, searches", head);
    let at = large::at(None);
    for row in rows.iter().filter(|row| row.metric == "start-up") {
        let at: Params = row.params.clone().into_iter().chain(at.clone()).collect();
        let of = |metric: &str| cell(rows, levada::NAME, metric, &at);
        let count = row.params.get("descriptors").map(ToString::to_string).unwrap_or_default();
        let time = |text: fn(&Row) -> String| found(rows, levada::NAME, "response time", &at, text);
        let mut line = vec![count, of("start-up"), of("memory per descriptor")];
        line.push(of("memory per descriptor beyond its text"));
        line.extend([time(|row| short(row.p50)), time(|row| short(row.p99))]);
        push(&mut table, line);
    }
    table
}

/// The generator's worst lateness and busy share, and the mean steal time of the servers' core.
fn generator(rows: &[Row]) -> Table {
    let head = ["part", "rows", "lateness p50 ms", "lateness p99 ms", "busy", "flagged runs"];
    let head = head.into_iter().chain(["stolen %"]);
    let title = "The generator, worst of each part; and the steal time of the servers' core";
    let mut table = Table::new(title, head);
    for part in [super::sweep::PART, PART, HALF, PUBLISHING, balanced::PART, large::PART] {
        let of = |metric: &str| {
            let of_part = rows.iter().filter(|row| row.params.get("part") == Some(&part.into()));
            of_part.filter(|row| row.metric == metric).collect::<Vec<_>>()
        };
        let late = of("generator lateness");
        let busy = of("generator busy");
        let worst = |value: fn(&Row) -> f64, of: &[&Row]| {
            of.iter().map(|row| value(row)).reduce(f64::max).map(short).unwrap_or_default()
        };
        if late.is_empty() {
            continue;
        }
        let flagged: usize = late.iter().map(|row| row.flags.len()).sum();
        let stolen: Vec<f64> =
            of(deployment::STOLEN).into_iter().flat_map(|row| row.values.clone()).collect();
        let stolen = 100.0 * stolen.iter().sum::<f64>() / stolen.len().max(1) as f64;
        table.lines.push(vec![
            part.to_owned(),
            late.len().to_string(),
            worst(|row| row.p50, &late),
            worst(|row| row.p99, &late),
            worst(|row| row.max, &busy),
            flagged.to_string(),
            short(stolen),
        ]);
    }
    table
}

/// One sweep at one round trip.
fn sweep(rows: &[Row], sweep: Sweep) -> Table {
    let texts = ["1/s", "mean", "±", "p50", "p95", "p99", "errors"];
    let of = |name: &str| texts.map(|text| format!("{name} {text}"));
    let head = ["demanded 1/s".to_owned()].into_iter();
    let head = head.chain(of("levada")).chain(of("nginx"));
    let Sweep { rtt_us, object, requests, step } = sweep;
    let title = format!(
        "{}, {} per connection, {} steps, {} ms RTT: actual rate, response time in ms",
        object.name(),
        requests.name(),
        step.name(),
        rtt_us as f64 / 1e3,
    );
    let mut table = Table::new(&title, head);
    let mut rates: Vec<f64> = [levada::NAME, nginx::NAME]
        .iter()
        .flat_map(|subject| by_rate(rows, sweep, subject, "errors"))
        .map(|(rate, _)| rate)
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    for rate in rates {
        let mut at = sweep.params();
        at.insert("rate".to_owned(), (rate as u64).into());
        let mut line = vec![rate.to_string()];
        for subject in [levada::NAME, nginx::NAME] {
            let off = |row: &Row| {
                let bounds = Bounds::of(row);
                short(bounds.high - bounds.mean)
            };
            line.push(cell(rows, subject, "response rate", &at));
            let mean = |row: &Row| short(Bounds::of(row).mean);
            line.push(found(rows, subject, "response time mean", &at, mean));
            line.push(found(rows, subject, "response time mean", &at, off));
            line.push(found(rows, subject, "response time", &at, |row| short(row.p50)));
            line.push(cell(rows, subject, "response time p95", &at));
            line.push(found(rows, subject, "response time", &at, |row| short(row.p99)));
            line.push(found(rows, subject, "errors", &at, |row| total(row).to_string()));
        }
        push(&mut table, line);
    }
    table
}

fn total(row: &Row) -> f64 {
    row.values.iter().sum()
}

/// Calls `each` for all conditions that parts share, with their description.
fn conditions(mut each: impl FnMut(String, u64, Object, Requests)) {
    for rtt in RTTS {
        for object in Object::ALL {
            for requests in Requests::ALL {
                let object_name = object.name();
                let requests_name = requests.name();
                let words = format!("{} ms, {object_name}, {requests_name}", rtt as f64 / 1e3);
                each(words, rtt, object, requests);
            }
        }
    }
}

/// Adds a line, unless all cells but the first are empty.
fn push(table: &mut Table, line: Vec<String>) {
    if line[1..].iter().any(|cell| !cell.is_empty()) {
        table.lines.push(line);
    }
}
