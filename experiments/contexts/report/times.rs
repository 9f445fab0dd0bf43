//! The tables of times to the first and the last byte.

use levada_harness::{Row, find, ratio_row};

use super::{deviation, line, title};
use crate::contexts::cached;
use crate::contexts::connections::{E2E, conditions};
use crate::contexts::download::{LENGTHS, RATES as DOWNLOAD_RATES, STATED};
use crate::contexts::first_byte::{
    CONTEXTS, DELAYS, LOSSES, MIDDLEBOXES, RATES, Sweep, cell, with_links,
};
use crate::contexts::latency::{Cell, HYBRID, MODES, X25519};
use crate::contexts::link::{Links, Profile};
use crate::contexts::mode::Mode;
use crate::table::{Table, mark, median};
use crate::threshold::Threshold::{Any, AtMost};

/// The metrics.
const FIRST: &str = "first byte";
const LAST: &str = "last byte";
/// The greatest quotient of a time to the first byte and the time of TLS that meets the limit.
const MAX_EXCESS: f64 = 1.02;

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
        let what = format!("ms to the first byte, {}, over contexts", profile.name());
        all.push(sweep(rows, &what, ("contexts", FIRST), cells));
    }
    for rate in [1, 8, 10, 100].into_iter().filter(|rate| DOWNLOAD_RATES.contains(rate)) {
        let cells = LENGTHS.map(|response| (response.to_string(), Cell { response, ..cell(rate) }));
        let what = format!("ms of a download at {rate} Mbit/s, over its length");
        all.push(sweep(rows, &what, ("bytes", LAST), cells));
    }
    all
}

/// Times and bytes of answers of a cache and of the origin.
pub fn cache(rows: &[Row]) -> Table {
    const METRICS: [&str; 3] = [FIRST, "whole body", "server's link"];
    let head = [
        "bytes",
        "server's link, Mbit/s",
        "answer",
        "ms to the first byte",
        "ms to the last",
        "bytes on the server's link",
    ];
    let mut table = Table::new("", head);
    let mut used = Vec::new();
    for file in cached::FILES {
        for subject in cached::SUBJECTS {
            let at = cached::conditions(file);
            let found = METRICS.iter().filter_map(|metric| find(rows, subject, metric, &at));
            let found: Vec<&Row> = found.collect();
            let cells = found.iter().copied().map(median);
            let names = [file.0.to_string(), file.1.to_string(), subject.to_owned()];
            let line = names.into_iter().chain(cells);
            table.lines.push(line.collect());
            used.extend(found.into_iter().filter(|row| row.samples.is_some()));
        }
    }
    table.lines.retain(|line| line.len() == head.len());
    let what = "`curl`, `levada http`, a middlebox with a cache, a node and nginx";
    table.title = title(what, "requests", used);
    table
}

/// A line for each cell: the times of each mode with their standard deviation, and the ratio of
/// ours to TLS, with the hybrid key encapsulation.
fn sweep(
    rows: &[Row],
    what: &str,
    (first, metric): (&str, &str),
    cells: impl IntoIterator<Item = (String, Cell)>,
) -> Table {
    let modes = MODES.map(|mode| mode.to_string());
    let head =
        [first.to_owned()].into_iter().chain(modes.clone()).chain(["hybrid ÷ `e2e`".to_owned()]);
    let mut table = Table::new("", head);
    let mut used = Vec::new();
    for (label, cell) in cells {
        let at = cell.params();
        let row = |name: &str| find(rows, name, metric, &at);
        let times = modes.iter().map(|name| row(name).map(time).unwrap_or_default());
        let own = row(&HYBRID.to_string());
        let rival = row("e2e");
        if let (Some(own), Some(rival)) = (own, rival) {
            let ratio =
                ratio_row(own, rival).map(|ratio| format!("{:.3}{}", ratio.median, mark(&ratio)));
            table.lines.push([label].into_iter().chain(times).chain(ratio).collect());
            used.extend(modes.iter().filter_map(|name| row(name)));
        }
    }
    table.lines.retain(|line| line.len() == table.head.len());
    table.title = title(what, "connections", used);
    table
}

/// The median, and the standard deviation.
fn time(row: &Row) -> String {
    format!("{} ± {:.1}", median(row), deviation(row))
}

/// The times that have limits, beside TLS: of all cells of the sweeps the one with the greatest
/// quotient, and the download that the paper states. The quotient of the medians is compared; what
/// further bytes explain of it stands beside.
pub fn beside_tls(rows: &[Row]) -> Table {
    let head = ["comparison", "cell", "target", "÷ `e2e`", "later, ms", "for bytes, ms"];
    let title = "Times beside TLS. For bytes: those beyond TLS on all links × 8 ÷ rate";
    let mut table = Table::new(title, head);
    for (name, mode) in [("X25519", X25519), ("hybrid", HYBRID)] {
        let all = sweep_cells().into_iter().filter_map(|cell| compared(rows, cell, mode, FIRST));
        let all: Vec<Compared> = all.collect();
        let worst = all.iter().max_by(|one, other| one.excess().total_cmp(&other.excess()));
        if let Some(worst) = worst {
            let misses = all.iter().filter(|one| one.excess() > MAX_EXCESS).count();
            let count = all.len();
            let what = format!(
                "first byte, the worst of {count} cells without loss, Nagle's algorithm and \
                 networks; {misses} miss, {name}"
            );
            let is_met = worst.excess() <= MAX_EXCESS;
            table.lines.push(worst.line(what, "≤ 1.02, or 1 ms later", is_met));
        }
        let stated = Cell { response: STATED, ..cell(8) };
        if let Some(download) = compared(rows, stated, mode, LAST) {
            let what = format!("download of 1,280 KB at 8 Mbit/s, {name}");
            table.lines.push(download.line(what, "≤ 1.01", download.quotient() <= 1.01));
        }
    }
    table
}

/// The comparisons with thresholds.
pub fn compare(table: &mut Table, rows: &[Row]) {
    let stated = Cell { response: STATED, ..cell(8) }.params();
    let row = |subject: &str| find(rows, subject, LAST, &stated);
    line(
        table,
        "download of 1,280 KB at 8 Mbit/s: `split` ÷ `e2e`",
        Any,
        (row("split"), row("e2e")),
    );
    for (file, metric, limit) in
        [(cached::FILES[0], FIRST, AtMost(0.6)), (cached::FILES[1], "whole body", AtMost(0.2))]
    {
        let at = cached::conditions(file);
        let row = |subject: &str| find(rows, subject, metric, &at);
        let (bytes, rate) = file;
        let what = format!(
            "`curl` through a cache, {bytes} bytes, server's link {rate} Mbit/s, {metric}: \
             hit ÷ miss"
        );
        line(table, &what, limit, (row("hit"), row("miss")));
    }
}

/// The cells of the three sweeps, each once.
fn sweep_cells() -> Vec<Cell> {
    let mut all: Vec<Cell> = Vec::new();
    for sweep in [Sweep::Contexts, Sweep::Delay, Sweep::Middleboxes] {
        for cell in sweep.cells() {
            if !cell.nagle && !all.contains(&cell) {
                all.push(cell);
            }
        }
    }
    all
}

/// A time of ours and of TLS.
struct Compared {
    own: f64,
    rival: f64,
    /// The time of our further bytes in ms.
    bytes: f64,
    at: String,
    /// The mark of flagged runs.
    mark: &'static str,
}

impl Compared {
    fn quotient(&self) -> f64 {
        self.own / self.rival
    }

    /// The quotient; what is within 1 ms counts as equal.
    fn excess(&self) -> f64 {
        if self.own - self.rival <= 1.0 { 1.0 } else { self.quotient() }
    }

    fn line(&self, what: String, target: &str, is_met: bool) -> Vec<String> {
        let verdict = if is_met { "✓" } else { "✗" };
        let quotient = format!("{:.3}{} {verdict}", self.quotient(), self.mark);
        let later = format!("{:.1}", self.own - self.rival);
        let bytes = if self.bytes > 0.0 { format!("{:.1}", self.bytes) } else { String::new() };
        vec![what, self.at.clone(), target.to_owned(), quotient, later, bytes]
    }
}

fn compared(rows: &[Row], cell: Cell, mode: Mode, metric: &str) -> Option<Compared> {
    let Links::Alike { delay_ms, rate_mbit, .. } = cell.links else { return None };
    let at = cell.params();
    let own = find(rows, &mode.to_string(), metric, &at)?;
    let rival = find(rows, "e2e", metric, &at)?;
    let bytes = further_bytes(rows, cell, mode) * 8.0 / (rate_mbit as f64 * 1000.0);
    let Cell { middleboxes, contexts, .. } = cell;
    let at = format!(
        "middleboxes {middleboxes}, contexts {contexts}, {delay_ms} ms, {rate_mbit} Mbit/s"
    );
    let mark = if own.flags.is_empty() { mark(rival) } else { mark(own) };
    Some(Compared { own: own.median, rival: rival.median, bytes, at, mark })
}

/// What ours has more than TLS, on all links together: the handshake as `connections` has measured
/// it, 31 bytes for each record and 39 for each audit of a party.
fn further_bytes(rows: &[Row], cell: Cell, mode: Mode) -> f64 {
    let at = conditions(cell.middleboxes, cell.contexts, false);
    let of = |link: &str| {
        let own = find(rows, &mode.to_string(), link, &at)?;
        Some(own.median - find(rows, E2E, link, &at)?.median)
    };
    let (Some(client), Some(server)) = (of("client's link"), of("server's link")) else {
        return 0.0;
    };
    let records = (cell.response / 16_383) as f64;
    let links = (cell.middleboxes + 1) as f64;
    links * ((client + server) / 2.0 + 31.0 * records + 1.5 * 39.0 * (records / 16.0))
}
