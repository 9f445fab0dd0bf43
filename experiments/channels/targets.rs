//! The comparison with rivals and its thresholds, computed from rows only. Ratios are medians of
//! pairs of runs of the same round, shown with the least and the greatest ratio: a threshold
//! between these is within the machine's noise.

use std::collections::BTreeSet;

use levada_harness::{Params, Row, best, find, params, ratio_row};

use super::{commands, input, screens, throughput};
use crate::table::Table;
use crate::threshold::Threshold::{self, Any, AtLeast, AtMost};

/// The rows, the round trips that they have, and the table under construction.
struct Targets<'a> {
    rows: &'a [Row],
    rtts: Vec<u64>,
    table: Table,
}

/// All comparisons that the rows allow.
pub fn table(rows: &[Row]) -> Table {
    let rtts: BTreeSet<u64> =
        rows.iter().filter_map(|row| row.params.get("rtt_ms")?.as_u64()).collect();
    let rtts: Vec<u64> = rtts.into_iter().collect();
    let heads = rtts.iter().map(|rtt| format!("{rtt} ms RTT"));
    let head = ["comparison".to_owned(), "target".to_owned()].into_iter().chain(heads);
    let table = Table::new("Comparison with rivals", head);
    let mut targets = Targets { rows, rtts, table };
    for bytes in throughput::MESSAGES {
        targets.throughput(bytes);
    }
    targets.connect();
    targets.input();
    targets.screens();
    targets.commands();
    targets.table
}

impl Targets<'_> {
    /// Adds a line, unless `value` returns `None` for all round trips.
    fn line(&mut self, what: String, threshold: Threshold, value: impl Fn(u64) -> Option<Row>) {
        self.line_by_rtt(what, &threshold.text(), |rtt| Some((value(rtt)?, threshold)));
    }

    fn line_by_rtt(
        &mut self,
        what: String,
        target: &str,
        value: impl Fn(u64) -> Option<(Row, Threshold)>,
    ) {
        let cell = |&rtt: &u64| value(rtt).map(|(ratio, limit)| limit.evaluate(&ratio));
        let cells: Vec<Option<String>> = self.rtts.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let mut line = vec![what, target.to_owned()];
            line.extend(cells.into_iter().map(Option::unwrap_or_default));
            self.table.lines.push(line);
        }
    }

    fn throughput(&mut self, bytes: usize) {
        let rows = self.rows;
        let at = |rtt: u64| params([("message_bytes", bytes.into()), ("rtt_ms", rtt.into())]);
        let over = |rtt, metric: &str, a: &str, b: &str| pair(rows, metric, (a, b), &at(rtt));
        let over_best = |rtt: u64| {
            let best = best(rows, "levada/block:", "MB/s", &at(rtt))?;
            let limit = AtLeast(if rtt == 0 { 1.0 } else { 0.97 });
            Some((over(rtt, "MB/s", "levada/auto", &best.subject)?, limit))
        };
        let what = |metric: &str, a: &str, b: &str| format!("{metric}, {bytes} B: `{a}` ÷ {b}");
        let name = what("MB/s", "levada/auto", "the best `levada/block:N`");
        self.line_by_rtt(name, "≥ 1 (0 ms), 0.97", over_best);
        if bytes == 256 {
            for (rival, least) in [("levada/block:512", 1.4), ("levada/block:512/unbatched", 15.0)]
            {
                let name = what("MB/s", "levada/auto", &format!("`{rival}`"));
                let value = |rtt| over(rtt, "MB/s", "levada/auto", rival).filter(|_| rtt == 0);
                self.line(name, AtLeast(least), value);
            }
        }
        let (framed, batched, many) = match bytes {
            256 => (0.6, 1.05, Some(1.2)),
            1024 => (0.72, 1.2, Some(1.25)),
            102_400 => (0.75, 1.3, None),
            _ => (0.73, 1.2, None),
        };
        let targets = [
            ("levada/auto", "tcp/plain-framed", framed),
            ("levada/auto", "rustls/batched", batched),
            ("levada/many", "rustls/batched", many.unwrap_or_default()),
        ];
        for (subject, rival, least) in targets.into_iter().filter(|(.., least)| *least > 0.0) {
            let name = what("MB/cpu-s", subject, &format!("`{rival}`"));
            let at_0 = |rtt| over(rtt, "MB/cpu-s", subject, rival).filter(|_| rtt == 0);
            self.line(name.clone(), AtLeast(least), at_0);
            let later = |rtt| over(rtt, "MB/cpu-s", subject, rival).filter(|_| rtt > 0);
            let limit = if rival == "rustls/batched" { AtLeast(1.0) } else { Any };
            self.line(name, limit, later);
        }
        for rival in ["tcp/plain-framed/120K", "rustls/batched/56K"] {
            let name = what("MB/cpu-s", "levada/auto", &format!("`{rival}`"));
            self.line(name, Any, |rtt| over(rtt, "MB/cpu-s", "levada/auto", rival));
        }
        if bytes > 1024 {
            let one_way = "`levada/auto`, one way";
            // An echoed byte has crossed both ends twice, and is counted twice.
            let name = what("MB/s of echoed data", "levada/node", one_way);
            let value = |rtt| over(rtt, "MB/s", "levada/node", "levada/auto").map(halved);
            self.line(name, AtLeast(0.85), value);
            let name = what("MB/cpu-s, both ways together", "levada/node", one_way);
            let value = |rtt| over(rtt, "MB/cpu-s", "levada/node", "levada/auto");
            self.line(name, AtLeast(0.85), value);
        }
    }

    fn connect(&mut self) {
        let rows = self.rows;
        let at = |rtt: u64, handshake: &str| {
            params([("rtt_ms", rtt.into()), ("handshake", handshake.into())])
        };
        self.line("connect, full, time: `levada/auto` ÷ `rustls`".into(), AtMost(1.05), |rtt| {
            pair(rows, "time", ("levada/auto", "rustls"), &at(rtt, "full"))
        });
        self.line("connect, full, CPU: `levada/auto` ÷ `rustls`".into(), AtMost(1.05), |rtt| {
            let of = |subject| both_sides(rows, subject, &at(rtt, "full"));
            ratio_row(&of("levada/auto")?, &of("rustls")?)
        });
        // Wanted: at most that of rustls and 0.02 more, which the two lines show.
        for (subject, limit) in [("levada/auto", Any), ("rustls", Any)] {
            let name = format!("connect, CPU: `{subject}` resumed ÷ full");
            self.line(name, limit, |rtt| {
                let of = |handshake| both_sides(rows, subject, &at(rtt, handshake));
                ratio_row(&of("resumed")?, &of("full")?)
            });
        }
    }

    fn input(&mut self) {
        let rows = self.rows;
        for congestion in input::CONGESTION {
            for rate in input::RATES {
                let at = |rtt: u64, load: &str| {
                    let link = [("rtt_ms", rtt.into()), ("congestion", congestion.into())];
                    let [rtt, congestion] = link;
                    params([rtt, congestion, ("rate_hz", rate.into()), ("load", load.into())])
                };
                let name = format!("input p50, idle, {rate} Hz, {congestion}: ÷ `tcp/plain`");
                self.line(name, AtMost(1.15), |rtt| {
                    pair(rows, "latency", ("levada/auto", "tcp/plain"), &at(rtt, "idle"))
                });
                let name = format!("input p99, {rate} Hz, {congestion}: bulk − idle, ms");
                self.line(name, AtMost(12.0), |rtt| {
                    let of = |load| find(rows, "levada/auto", "latency p99", &at(rtt, load));
                    // Otherwise the latency is that of the queue: of 64 KiB, or filled by cubic.
                    let applies = rtt == 40 && congestion == "bbr";
                    difference(of("bulk")?, of("idle")?).filter(|_| applies)
                });
            }
        }
    }

    fn screens(&mut self) {
        let rows = self.rows;
        for (what, [ours, rival]) in screens::SUBJECTS {
            for load in screens::LOADS {
                let name = format!("screens, {what}, {load}, p50: `{ours}` ÷ `{rival}`");
                self.line(name, Any, |rtt| {
                    let at = params([("rtt_ms", rtt.into()), ("load", load.into())]);
                    pair(rows, "latency", (ours, rival), &at)
                });
            }
        }
    }

    fn commands(&mut self) {
        use commands::{BEFORE, DIRECTIONS, LEVADA, SSH, SSH_AES, TRUE};
        let rows = self.rows;
        let at = |rtt: u64, work: &str| params([("rtt_ms", rtt.into()), ("work", work.into())]);
        for direction in DIRECTIONS {
            for (rival, least) in [(SSH, 2.2), (SSH_AES, 1.2)] {
                let name = format!("forward, {direction}, MB/s: `levada` ÷ `{rival}`");
                self.line_by_rtt(name, &format!("≥ {least} (0 ms)"), |rtt| {
                    let limit = if rtt == 0 { AtLeast(least) } else { Any };
                    Some((pair(rows, "MB/s", (LEVADA, rival), &at(rtt, direction))?, limit))
                });
            }
        }
        for (rival, limit) in [(BEFORE, AtMost(0.7)), (SSH, Any)] {
            self.line(format!("run of `true`, CPU: `levada` ÷ `{rival}`"), limit, |rtt| {
                let of = |subject| both_sides(rows, subject, &at(rtt, TRUE));
                ratio_row(&of(LEVADA)?, &of(rival)?)
            });
        }
        self.line(format!("run of `true`, time: `levada` ÷ `{SSH}`"), Any, |rtt| {
            pair(rows, "time", (LEVADA, SSH), &at(rtt, TRUE))
        });
    }
}

/// The differences of two rows' values, pair by pair.
fn difference(a: &Row, b: &Row) -> Option<Row> {
    let ones = Row { values: vec![1.0; a.values.len()], ..a.clone() };
    let values = a.values.iter().zip(&b.values).map(|(a, b)| a - b).collect();
    ratio_row(&Row { values, ..a.clone() }, &ones)
}

/// The ratios of two subjects' values, pair by pair.
fn pair(rows: &[Row], metric: &str, (a, b): (&str, &str), at: &Params) -> Option<Row> {
    ratio_row(find(rows, a, metric, at)?, find(rows, b, metric, at)?)
}

/// All values of a ratio, halved.
fn halved(mut row: Row) -> Row {
    row.values.iter_mut().for_each(|value| *value /= 2.0);
    [&mut row.median, &mut row.min, &mut row.max].into_iter().for_each(|value| *value /= 2.0);
    row
}

/// The CPU time of a connection, of client and server together.
fn both_sides(rows: &[Row], subject: &str, at: &Params) -> Option<Row> {
    let client = find(rows, subject, "client CPU", at)?;
    let server = find(rows, subject, "server CPU", at)?;
    let values = client.values.iter().zip(&server.values).map(|(a, b)| a + b).collect();
    Some(Row { values, ..client.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, metric: &str, at: &Params, values: [f64; 3]) -> Row {
        let row = serde_json::json!({
            "experiment": "e", "subject": subject, "params": at, "metric": metric, "unit": "u",
            "median": values[1], "min": 0.0, "max": 0.0, "p50": 0.0, "p99": 0.0,
            "runs": 3, "values": values,
        });
        serde_json::from_value(row).unwrap()
    }

    fn cells(rows: &[Row], beginning: &str) -> Vec<String> {
        let lines = table(rows).lines;
        let line = lines.into_iter().find(|line| line[0].starts_with(beginning)).unwrap();
        line[2..].to_vec()
    }

    #[test]
    fn auto_is_compared_with_the_best_block_length_and_more_strictly_at_0_ms() {
        let mut rows = Vec::new();
        for rtt in [0, 40] {
            let at = params([("message_bytes", 256.into()), ("rtt_ms", rtt.into())]);
            rows.push(row("levada/auto", "MB/s", &at, [98.0, 98.0, 98.0]));
            rows.push(row("levada/block:64", "MB/s", &at, [10.0, 10.0, 10.0]));
            rows.push(row("levada/block:4096", "MB/s", &at, [90.0, 100.0, 100.0]));
        }
        assert_eq!(
            cells(&rows, "MB/s, 256 B"),
            ["0.980 ✗ (0.980 … 1.09)", "0.980 ✓ (0.980 … 1.09)"]
        );
    }

    #[test]
    fn the_cpu_time_of_a_connection_includes_both_sides() {
        let of = |handshake: &str| params([("rtt_ms", 0.into()), ("handshake", handshake.into())]);
        let mut rows = Vec::new();
        for (handshake, client) in [("full", 300.0), ("resumed", 100.0)] {
            rows.push(row("rustls", "client CPU", &of(handshake), [client; 3]));
            rows.push(row("rustls", "server CPU", &of(handshake), [100.0; 3]));
        }
        assert_eq!(cells(&rows, "connect, CPU: `rustls`"), ["0.500 (0.500 … 0.500)"]);
    }

    #[test]
    fn commands_are_compared_with_ssh() {
        let at = |work: &str| params([("rtt_ms", 0.into()), ("work", work.into())]);
        let mut rows = Vec::new();
        for (subject, value) in [("levada", 3.0), ("levada/before", 4.0), ("ssh", 2.0)] {
            rows.push(row(subject, "MB/s", &at("up"), [value; 3]));
            rows.push(row(subject, "client CPU", &at("true"), [value; 3]));
            rows.push(row(subject, "server CPU", &at("true"), [1.0; 3]));
        }
        assert_eq!(cells(&rows, "forward, up, MB/s: `levada` ÷ `ssh`"), ["1.50 ✗ (1.50 … 1.50)"]);
        let before = "run of `true`, CPU: `levada` ÷ `levada/before`";
        assert_eq!(cells(&rows, before), ["0.800 ✗ (0.800 … 0.800)"]);
        assert_eq!(cells(&rows, "run of `true`, CPU: `levada` ÷ `ssh`"), ["1.33 (1.33 … 1.33)"]);
    }

    #[test]
    fn without_rows_the_table_is_empty() {
        assert!(table(&[]).lines.is_empty());
    }
}
