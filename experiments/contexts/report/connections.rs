//! The tables of connections.

use levada_harness::{Params, Row, find};

use super::{line, title};
use crate::contexts::connections::{E2E, LEVADA, SPLIT, conditions};
use crate::table::{Table, median};
use crate::threshold::Threshold::{Any, AtLeast, AtMost};

const METRICS: [&str; 5] =
    ["client CPU", "middlebox CPU", "server CPU", "client's link", "server's link"];
const CONTEXTS: [usize; 5] = [1, 2, 4, 8, 16];
const SUBJECTS: [&str; 4] = [LEVADA[0], LEVADA[1], E2E, SPLIT];

/// CPU time and bytes of a connection, a line for each number of contexts or middleboxes.
pub fn table(rows: &[Row], resumed: bool, processor: &str) -> Table {
    let handshake = if resumed { "Resumed" } else { "Full" };
    let head = ["middleboxes", "contexts", "subject"].into_iter().chain(METRICS);
    let mut table = Table::new("", head);
    let mut used = Vec::new();
    let cells = CONTEXTS.map(|contexts| (1, contexts));
    let more = [2, 4, 8, 16].map(|middleboxes| (middleboxes, 4));
    for (middleboxes, contexts) in cells.into_iter().chain(more) {
        let at = conditions(middleboxes, contexts, resumed);
        for subject in SUBJECTS {
            let found = METRICS.iter().filter_map(|metric| find(rows, subject, metric, &at));
            let found: Vec<&Row> = found.collect();
            if found.len() == METRICS.len() {
                let mut line =
                    vec![middleboxes.to_string(), contexts.to_string(), format!("`{subject}`")];
                line.extend(found.iter().copied().map(median));
                table.lines.push(line);
                used.extend(found);
            }
        }
    }
    let what = format!("{handshake} connections on {processor}: µs of CPU, and bytes");
    table.title = title(&what, "", used);
    table
}

/// The most that the control may vary for processors to be compared.
const MAX_SPREAD: f64 = 0.03;

/// The spread of the control: the client's CPU time of a connection with TLS, which the number of
/// contexts does not change.
fn spread(rows: &[Row], resumed: bool) -> Option<f64> {
    let of = |contexts| find(rows, E2E, "client CPU", &conditions(1, contexts, resumed));
    let times = || CONTEXTS.into_iter().filter_map(of).map(|row| row.median);
    Some(times().reduce(f64::max)? / times().reduce(f64::min)? - 1.0)
}

/// CPU time of a connection through one middlebox with four contexts, a line for each processor
/// whose control is steady.
pub fn by_processor(measured: &[(String, Vec<Row>)]) -> Table {
    let head =
        ["handshake", "subject", "processor"].into_iter().chain(METRICS[..3].iter().copied());
    let mut table =
        Table::new("CPU-µs of a connection by processor: one middlebox, four contexts", head);
    for (handshake, resumed) in [("full", false), ("resumed", true)] {
        let at = conditions(1, 4, resumed);
        for subject in SUBJECTS {
            for (processor, rows) in measured {
                if spread(rows, resumed).is_none_or(|spread| spread > MAX_SPREAD) {
                    continue;
                }
                let cell = |metric| find(rows, subject, metric, &at).map(median);
                let cells: Vec<String> =
                    METRICS[..3].iter().filter_map(|metric| cell(*metric)).collect();
                if cells.len() == 3 {
                    let names = [handshake.to_owned(), format!("`{subject}`"), processor.clone()];
                    table.lines.push(names.into_iter().chain(cells).collect());
                }
            }
        }
    }
    table
}

/// The comparisons with thresholds: connections per CPU-second, hence CPU times the other way
/// round, with one middlebox and four contexts.
pub fn compare(table: &mut Table, rows: &[Row]) {
    let full = conditions(1, 4, false);
    let resumed = conditions(1, 4, true);
    let [x25519, hybrid] = LEVADA;
    let mut cpu = |what: &str, rival: &str, own: &str, metric: &str, at: &Params, limit| {
        let pair = (find(rows, rival, metric, at), find(rows, own, metric, at));
        line(table, what, limit, pair);
    };
    cpu(
        "connections per CPU-second, middlebox: ÷ `split`, X25519",
        SPLIT,
        x25519,
        "middlebox CPU",
        &full,
        AtLeast(1.4),
    );
    cpu("the same, hybrid", SPLIT, hybrid, "middlebox CPU", &full, Any);
    cpu("server: ÷ `e2e`, X25519", E2E, x25519, "server CPU", &full, AtLeast(0.5));
    cpu("the same, hybrid", E2E, hybrid, "server CPU", &full, Any);
    cpu("resumed server: ÷ resumed `e2e`", E2E, hybrid, "server CPU", &resumed, AtLeast(0.85));
    cpu("client: ÷ `e2e`, X25519", E2E, x25519, "client CPU", &full, Any);
    cpu("resumed middlebox: ÷ resumed `split`", SPLIT, hybrid, "middlebox CPU", &resumed, Any);
    let beyond = [
        ("client's link, X25519", x25519, "client's link", AtMost(700.0)),
        ("server's link, X25519", x25519, "server's link", AtMost(900.0)),
        ("server's link, hybrid", hybrid, "server's link", AtMost(3300.0)),
    ];
    for (what, subject, metric, limit) in beyond {
        let own = find(rows, subject, metric, &full);
        let tls = find(rows, E2E, metric, &full);
        if let (Some(own), Some(tls)) = (own, tls) {
            let mut extra = own.clone();
            for value in [&mut extra.median, &mut extra.min, &mut extra.max] {
                *value -= tls.median;
            }
            let what = format!("bytes of the handshake beyond TLS: {what}");
            table.lines.push(vec![what, limit.text(), limit.evaluate(&extra)]);
        }
    }
}
