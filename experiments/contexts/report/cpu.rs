//! The tables of bulk transfers and of page loads.

use levada_harness::{Row, find};

use super::line;
use crate::contexts::{bulk, web};
use crate::table::{Table, short};
use crate::threshold::Threshold::{self, Any, AtLeast, AtMost};

/// What a bulk transfer measures.
const METRICS: [&str; 5] =
    ["MB/s", "middlebox MB/cpu-s", "ends MB/cpu-s", "client MB/cpu-s", "server MB/cpu-s"];

/// A line for each way to cross one middlebox.
pub fn bulk(rows: &[Row]) -> Table {
    let mut table =
        Table::new("A long response through one middlebox", ["subject"].into_iter().chain(METRICS));
    for mode in bulk::MODES {
        let name = mode.to_string();
        let cell =
            |metric| find(rows, &name, metric, &bulk::conditions()).map(|row| short(row.median));
        let cells: Vec<String> = METRICS.iter().filter_map(|metric| cell(*metric)).collect();
        if cells.len() == METRICS.len() {
            table.lines.push([vec![format!("`{name}`")], cells].concat());
        }
    }
    table
}

/// Bytes of all pages on the client's link ÷ those of `plain`, a line for each strategy.
pub fn web(rows: &[Row]) -> Table {
    let head = ["strategy", "middleboxes"].into_iter().chain(web::SUBJECTS[1..].iter().copied());
    let mut table = Table::new(
        "Bytes of page loads on the client's link ÷ plain: sum of all pages, and the worst page",
        head,
    );
    for (strategy, _) in web::STRATEGIES {
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
    let mut of = |what: &str, metric: &str, own: &str, rival: &str, limit: Threshold| {
        let at = bulk::conditions();
        line(table, what, limit, (find(rows, own, metric, &at), find(rows, rival, metric, &at)));
    };
    let [_, _, _, none, reader, writer] = bulk::MODES.map(|mode| mode.to_string());
    let middlebox = "middlebox MB/cpu-s";
    of(
        "bulk, MB/cpu-s of the middlebox: reader ÷ `split`",
        middlebox,
        &reader,
        "split",
        AtLeast(1.05),
    );
    of("no rights ÷ a relay of the same bytes (`e2e`)", middlebox, &none, "e2e", AtLeast(0.9));
    of("no rights ÷ a relay of plain bytes (`plain`)", middlebox, &none, "plain", Any);
    of("writer that passes all ÷ `split`", middlebox, &writer, "split", Any);
    of("relay (`e2e`) ÷ `split`", middlebox, "e2e", "split", Any);
    let ends = "ends MB/cpu-s";
    of(
        "bulk, MB/cpu-s of both ends ÷ `e2e`: four contexts, one reader",
        ends,
        &reader,
        "e2e",
        AtLeast(0.5),
    );
    of("no rights", ends, &none, "e2e", Any);
    of("one writer", ends, &writer, "e2e", Any);
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
        line(table, what, limit, (find(rows, subject, metric, &at), plain));
    }
}
