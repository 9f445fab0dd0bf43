//! The tables of bulk transfers and of page loads.

use levada_harness::{Row, find, ratio_row};

use super::{line, title};
use crate::contexts::{bulk, web};
use crate::table::{Table, median, short};
use crate::threshold::Threshold::{self, Any, AtLeast, AtMost};

/// What a bulk transfer measures.
const METRICS: [&str; 5] =
    ["MB/s", "middlebox MB/cpu-s", "ends MB/cpu-s", "client MB/cpu-s", "server MB/cpu-s"];

/// A line for each way to cross one middlebox, or without one.
pub fn bulk(rows: &[Row], middleboxes: usize) -> Table {
    let mut table = Table::new("", ["subject"].into_iter().chain(METRICS));
    let modes = if middleboxes == 0 { &bulk::DIRECT[..] } else { &bulk::MODES };
    let mut used = Vec::new();
    for mode in modes {
        let name = mode.to_string();
        let at = bulk::conditions(middleboxes);
        let found = METRICS.map(|metric| find(rows, &name, metric, &at));
        if found[0].is_some() {
            let cell = |row: &Option<&Row>| row.map(median).unwrap_or_default();
            let cells = found.iter().map(cell);
            table.lines.push([format!("`{name}`")].into_iter().chain(cells).collect());
            used.extend(found.into_iter().flatten());
        }
    }
    let what = match middleboxes {
        0 => "A long response without a middlebox; ours is an ordinary connection",
        _ => "A long response through one middlebox",
    };
    table.title = title(what, "", used);
    table
}

/// Bytes of all pages on the client's link ÷ those of `plain`, a line for each strategy.
pub fn web(rows: &[Row]) -> Table {
    let head = ["strategy", "middleboxes"].into_iter().chain(web::SUBJECTS[1..].iter().copied());
    let mut table = Table::new(
        "Bytes of page loads on the client's link ÷ plain: sum of all pages, and the worst page",
        head,
    );
    for strategy in web::STRATEGIES {
        for middleboxes in web::MIDDLEBOXES {
            let at = web::conditions(strategy, middleboxes);
            let plain = find(rows, web::SUBJECTS[0], "client's link", &at);
            let Some(plain) = plain else { continue };
            let cell = |subject: &&str| {
                let sum = find(rows, subject, "client's link", &at)?;
                let worst = find(rows, subject, "÷ plain, worst page", &at)?;
                Some(format!("{:.4}, {}", sum.median / plain.median, short(worst.median)))
            };
            let cells = web::SUBJECTS[1..].iter().filter_map(cell);
            let line = [strategy.to_owned(), middleboxes.to_string()].into_iter().chain(cells);
            table.lines.push(line.collect());
        }
    }
    table.lines.retain(|line| line.len() == table.head.len());
    table
}

/// The comparisons of bulk transfers and pages.
pub fn compare(table: &mut Table, rows: &[Row]) {
    let mut of = |what: &str, metric: &str, pair: (&str, &str), limit: Threshold, at| {
        let (own, rival) = pair;
        line(table, what, limit, (find(rows, own, metric, at), find(rows, rival, metric, at)));
    };
    let [plain, e2e, split, relay, none, reader, writer] =
        &bulk::MODES.map(|mode| mode.to_string());
    let one = &bulk::conditions(1);
    let direct = &bulk::conditions(0);
    let middlebox = "middlebox MB/cpu-s";
    let what = "bulk, MB/cpu-s of the middlebox: reader ÷ `split`";
    of(what, middlebox, (reader, split), AtLeast(1.05), one);
    of("no rights ÷ `relay`", middlebox, (none, relay), AtLeast(0.9), one);
    of("no rights ÷ `e2e`, whose middlebox passes TLS on", middlebox, (none, e2e), Any, one);
    of("no rights ÷ `plain`", middlebox, (none, plain), Any, one);
    of("writer that passes all ÷ `split`", middlebox, (writer, split), Any, one);
    of("`relay` ÷ `split`", middlebox, (relay, split), Any, one);
    let ends = "ends MB/cpu-s";
    let what = "bulk, MB/cpu-s of both ends ÷ `e2e`: no middlebox";
    of(what, ends, (writer, e2e), AtLeast(0.97), direct);
    of("four contexts, one reader", ends, (reader, e2e), AtLeast(0.5), one);
    of("no rights", ends, (none, e2e), Any, one);
    of("one writer", ends, (writer, e2e), Any, one);
    pages(table, rows);
}

/// The bytes of page loads beyond plain, which are a few percent: three decimals.
fn pages(table: &mut Table, rows: &[Row]) {
    let at = web::conditions("four", 1);
    let metric = "client's link";
    let plain = find(rows, "plain", metric, &at);
    for (what, subject, limit) in [
        (
            "bytes of page loads ÷ plain, client's link: four contexts, one passing middlebox",
            "levada/no rights",
            AtMost(1.03),
        ),
        ("a middlebox with write everywhere", "levada", Any),
        ("TLS", "e2e", Any),
    ] {
        let own = find(rows, subject, metric, &at);
        let Some(ratio) = own.zip(plain).and_then(|(own, plain)| ratio_row(own, plain)) else {
            continue;
        };
        let result = format!("{:.3}{}", ratio.median, limit.verdict(ratio.median));
        table.lines.push(vec![what.to_owned(), limit.text(), result]);
    }
}
