//! The tables of times to the first and the last byte.

use levada_harness::{Row, find, ratio_row};

use super::{deviation, line};
use crate::contexts::cached;
use crate::contexts::download::{LENGTHS, RATES as DOWNLOAD_RATES, STATED};
use crate::contexts::first_byte::{CONTEXTS, DELAYS, LOSSES, MIDDLEBOXES, RATES, cell, with_links};
use crate::contexts::latency::{Cell, HYBRID, MODES, X25519};
use crate::contexts::link::{Links, Profile};
use crate::table::{Table, short};
use crate::threshold::Threshold::{Any, AtMost};

/// The metrics.
const FIRST: &str = "first byte";
const LAST: &str = "last byte";

/// A table for each sweep that has rows.
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let mut all = Vec::new();
    for rate in RATES {
        let at = |what: &str| format!("ms to the first byte at {rate} Mbit/s, over {what}");
        let contexts =
            CONTEXTS.map(|contexts| (contexts.to_string(), Cell { contexts, ..cell(rate) }));
        all.push(sweep(rows, &at("contexts"), ("contexts", FIRST), contexts));
        let delays = DELAYS.map(|ms| (format!("{ms}, {}", 4 * ms), with_links(rate, ms, 0.0)));
        all.push(sweep(rows, &at("delay"), ("ms for each link, round trip", FIRST), delays));
        let middleboxes = MIDDLEBOXES
            .map(|middleboxes| (middleboxes.to_string(), Cell { middleboxes, ..cell(rate) }));
        all.push(sweep(rows, &at("middleboxes"), ("middleboxes", FIRST), middleboxes));
    }
    let nagle =
        [4, 16].map(|contexts| (contexts.to_string(), Cell { contexts, nagle: true, ..cell(8) }));
    all.push(sweep(
        rows,
        "ms to the first byte at 8 Mbit/s with Nagle's algorithm",
        ("contexts", FIRST),
        nagle,
    ));
    let losses = LOSSES.map(|loss| (format!("{} %", 100.0 * loss), with_links(8, 20, loss)));
    all.push(sweep(
        rows,
        "ms to the first byte at 8 Mbit/s, over loss on each link",
        ("loss", FIRST),
        losses,
    ));
    for profile in Profile::ALL {
        let links = Links::Profile(profile);
        let cells =
            CONTEXTS.map(|contexts| (contexts.to_string(), Cell { contexts, links, ..cell(8) }));
        let title = format!("ms to the first byte, {}, over contexts", profile.name());
        all.push(sweep(rows, &title, ("contexts", FIRST), cells));
    }
    for rate in [1, 8, 10, 100].into_iter().filter(|rate| DOWNLOAD_RATES.contains(rate)) {
        let cells = LENGTHS.map(|response| (response.to_string(), Cell { response, ..cell(rate) }));
        let title = format!("ms of a download at {rate} Mbit/s, over its length");
        all.push(sweep(rows, &title, ("bytes", LAST), cells));
    }
    all
}

/// Times and bytes of answers of a cache and of the origin.
pub fn cache(rows: &[Row]) -> Table {
    const METRICS: [&str; 3] = [FIRST, "whole body", "server's link"];
    let head =
        ["bytes", "answer", "ms to the first byte", "ms to the last", "bytes on the server's link"];
    let mut table =
        Table::new("`curl`, `levada http`, a middlebox with a cache, a node and nginx", head);
    for file in cached::FILES {
        for subject in cached::SUBJECTS {
            let cell = |metric| find(rows, subject, metric, &cached::conditions(file));
            let cells = METRICS.iter().filter_map(|metric| Some(short(cell(*metric)?.median)));
            let line = [file.0.to_string(), subject.to_owned()].into_iter().chain(cells);
            table.lines.push(line.collect());
        }
    }
    table.lines.retain(|line| line.len() == head.len());
    table
}

/// A line for each cell: the times of each mode with their standard deviation, and the ratio of ours to TLS.
fn sweep(
    rows: &[Row],
    title: &str,
    (first, metric): (&str, &str),
    cells: impl IntoIterator<Item = (String, Cell)>,
) -> Table {
    let modes = MODES.map(|mode| mode.to_string());
    let head = [first.to_owned()].into_iter().chain(modes.clone()).chain(["÷ `e2e`".to_owned()]);
    let mut table = Table::new(title, head);
    for (label, cell) in cells {
        let at = cell.params();
        let row = |name: &str| find(rows, name, metric, &at);
        let times = modes.iter().map(|name| row(name).map(time).unwrap_or_default());
        let (own, rival) = (row(&HYBRID.to_string()), row("e2e"));
        if let (Some(own), Some(rival)) = (own, rival) {
            let ratio = ratio_row(own, rival).map(|ratio| format!("{:.3}", ratio.median));
            table.lines.push([label].into_iter().chain(times).chain(ratio).collect());
        }
    }
    table.lines.retain(|line| line.len() == table.head.len());
    table
}

/// The median, and the standard deviation.
fn time(row: &Row) -> String {
    format!("{} ± {:.1}", short(row.median), deviation(row))
}

/// The comparisons with thresholds: of all cells the one with the greatest difference, and the download that the paper states.
pub fn compare(table: &mut Table, rows: &[Row]) {
    for (name, mode) in [("X25519", X25519), ("hybrid", HYBRID)] {
        let mut worst: Option<(f64, String)> = None;
        let mut cells = 0;
        for own in rows.iter().filter(|row| row.subject == mode.to_string() && row.metric == FIRST)
        {
            if own.params.get("response_bytes").and_then(|bytes| bytes.as_u64()) != Some(200) {
                continue;
            }
            let Some(rival) = find(rows, "e2e", FIRST, &own.params) else { continue };
            cells += 1;
            let (ratio, difference) = (own.median / rival.median, own.median - rival.median);
            // What is within 1 ms is within the limit.
            let excess = if difference <= 1.0 { 0.0 } else { ratio };
            if worst.as_ref().is_none_or(|(most, _)| excess > *most) {
                let params = serde_json::to_string(&own.params).unwrap_or_default();
                worst = Some((excess, format!("{ratio:.3}, {difference:.1} ms, at {params}")));
            }
        }
        if let Some((excess, text)) = worst {
            let mark = if excess <= 1.02 { "✓" } else { "✗" };
            let what = format!("first byte ÷ `e2e`, the worst of {cells} cells, {name}");
            table.lines.push(vec![what, "≤ 1.02, or 1 ms".to_owned(), format!("{text} {mark}")]);
        }
    }
    let stated = Cell { response: STATED, ..cell(8) }.params();
    let row = |subject: &str| find(rows, subject, LAST, &stated);
    let what = "download of 1,280 KB at 8 Mbit/s ÷ `e2e`, with the time of our further bytes";
    line(table, &format!("{what}, X25519"), AtMost(1.01), (row(&X25519.to_string()), row("e2e")));
    line(table, &format!("{what}, hybrid"), AtMost(1.01), (row(&HYBRID.to_string()), row("e2e")));
    line(table, "the same, `split`", Any, (row("split"), row("e2e")));
    for (file, metric, limit) in
        [(cached::FILES[0], FIRST, AtMost(0.6)), (cached::FILES[1], "whole body", AtMost(0.2))]
    {
        let at = cached::conditions(file);
        let row = |subject: &str| find(rows, subject, metric, &at);
        let what = format!("`curl` through a cache, {} bytes, {metric}: hit ÷ miss", file.0);
        line(table, &what, limit, (row("hit"), row("miss")));
    }
}
