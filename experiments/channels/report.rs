//! The tables, computed from rows only.

use std::path::Path;

use anyhow::ensure;
use levada_harness::{Params, Row, find, params, read_rows};

use super::subject::{BLOCKS, Subject};
use super::throughput::{MESSAGES, RTTS};
use super::{commands, connect, input, screens, targets, throughput};
use crate::measuring::file;
use crate::table::{Table, filled, mark, median, short};

/// A block length limits throughput if no greater one has this many times its throughput.
const CAP: f64 = 1.05;

/// Every table that the rows in `folder` allow.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    let rows = rows(folder)?;
    ensure!(!rows.is_empty(), "{} has no rows of channels", folder.display());
    let mut tables: Vec<Table> =
        MESSAGES.into_iter().map(|bytes| throughput_table(&rows, bytes)).collect();
    tables.push(caps_table(&rows));
    tables.extend(["full", "resumed"].map(|handshake| connect_table(&rows, handshake)));
    tables.push(input_table(&rows));
    tables.push(screens_table(&rows));
    tables.push(commands_table(&rows));
    tables.push(targets::table(&rows));
    Ok(filled(tables))
}

/// The rows of all experiments in a folder.
pub fn rows(folder: &Path) -> anyhow::Result<Vec<Row>> {
    let mut all = Vec::new();
    for name in [throughput::NAME, connect::NAME, input::NAME, screens::NAME, commands::NAME] {
        all.extend(read_rows(&file(folder, name))?);
    }
    Ok(all)
}

/// One cell: empty if there is no such row, marked with `!` if its runs were flagged.
fn cell(rows: &[Row], subject: &str, metric: &str, at: &Params) -> String {
    find(rows, subject, metric, at).map(median).unwrap_or_default()
}

/// Adds a line for each subject with the given columns of metrics and conditions. Subjects without
/// rows are left out.
fn fill(table: &mut Table, rows: &[Row], subjects: &[String], columns: &[(&str, Params)]) {
    for subject in subjects {
        let cells = columns.iter().map(|(metric, at)| cell(rows, subject, metric, at));
        let line: Vec<String> = [format!("`{subject}`")].into_iter().chain(cells).collect();
        if line[1..].iter().any(|cell| !cell.is_empty()) {
            table.lines.push(line);
        }
    }
}

fn throughput_table(rows: &[Row], bytes: usize) -> Table {
    let mut head = vec!["subject".to_owned()];
    let mut columns = Vec::new();
    for rtt in RTTS {
        let at = params([("message_bytes", bytes.into()), ("rtt_ms", rtt.into())]);
        for metric in ["MB/s", "MB/cpu-s"] {
            head.push(format!("{rtt} ms: {metric}"));
            columns.push((metric, at.clone()));
        }
    }
    let mut table = Table::new(&format!("Messages of {bytes} bytes, by round trip"), head);
    let subjects = Subject::all(&BLOCKS).unwrap_or_default();
    let subjects: Vec<String> = subjects.iter().map(ToString::to_string).collect();
    fill(&mut table, rows, &subjects, &columns);
    table
}

/// The block lengths from which on throughput no longer grows.
fn caps_table(rows: &[Row]) -> Table {
    let heads = RTTS.map(|rtt| format!("{rtt} ms RTT"));
    let head = ["message, bytes".to_owned()].into_iter().chain(heads);
    let mut table = Table::new(
        "The shortest block length that no greater one exceeds by 5 %, and its MB/s",
        head,
    );
    for bytes in MESSAGES {
        let caps = RTTS.map(|rtt| {
            let at = params([("message_bytes", bytes.into()), ("rtt_ms", rtt.into())]);
            cap(rows, &at).map(|(block, value)| format!("{block}: {}", short(value)))
        });
        if caps.iter().any(Option::is_some) {
            let cells = caps.into_iter().map(Option::unwrap_or_default);
            table.lines.push([bytes.to_string()].into_iter().chain(cells).collect());
        }
    }
    table
}

fn cap(rows: &[Row], at: &Params) -> Option<(u16, f64)> {
    let value = |block: u16| {
        let row = find(rows, &format!("levada/block:{block}"), "MB/s", at)?;
        Some((block, row.median))
    };
    let known: Vec<(u16, f64)> = BLOCKS.into_iter().filter_map(value).collect();
    let last =
        |index: &usize| known[index + 1..].iter().all(|(_, more)| *more < known[*index].1 * CAP);
    (0..known.len()).find(last).map(|index| known[index])
}

fn connect_table(rows: &[Row], handshake: &str) -> Table {
    let mut head = vec!["subject".to_owned()];
    let mut columns = Vec::new();
    for rtt in RTTS {
        let at = params([("rtt_ms", rtt.into()), ("handshake", handshake.into())]);
        for (metric, text) in
            [("time", "ms"), ("client CPU", "client µs"), ("server CPU", "server µs")]
        {
            head.push(format!("{rtt} ms: {text}"));
            columns.push((metric, at.clone()));
        }
    }
    let title =
        format!("To the first reply, handshake {handshake}, by round trip; CPU per connection");
    let mut table = Table::new(&title, head);
    let mut subjects: Vec<String> = vec!["levada/auto".into()];
    subjects.extend(BLOCKS.map(|block| format!("levada/block:{block}")));
    subjects.extend(["rustls".into(), "tcp/plain".into()]);
    fill(&mut table, rows, &subjects, &columns);
    table
}

fn input_table(rows: &[Row]) -> Table {
    let texts = ["p50", "p99", "p99.9", "bulk MB/s"];
    let of = |name: &str| texts.map(|text| format!("{name} {text}"));
    let head = ["RTT, load, congestion, rate".to_owned()].into_iter();
    let head = head.chain(of("Levada")).chain(of("TCP"));
    let mut table = Table::new("Latency of input events in ms, of all runs together", head);
    let of_input =
        rows.iter().filter(|row| row.metric == "latency" && row.subject == input::LEVADA);
    for row in of_input {
        let word = |name: &str| row.params.get(name).map(ToString::to_string).unwrap_or_default();
        let [rtt, load, congestion, rate] = ["rtt_ms", "load", "congestion", "rate_hz"].map(word);
        let condition = format!("{rtt} ms, {load}, {congestion}, {rate} Hz").replace('"', "");
        let cells =
            [input::LEVADA, input::TCP].map(|subject| input_cells(rows, subject, &row.params));
        table.lines.push([condition].into_iter().chain(cells.into_iter().flatten()).collect());
    }
    table
}

fn input_cells(rows: &[Row], subject: &str, at: &Params) -> [String; 4] {
    let Some(row) = find(rows, subject, "latency", at) else { return Default::default() };
    let [p50, p99] = [row.p50, row.p99].map(|value| short(value) + mark(row));
    let p999 = row.p999.map(|value| short(value) + mark(row)).unwrap_or_default();
    [p50, p99, p999, cell(rows, subject, "bulk MB/s", at)]
}

/// A line for each condition, with Levada and its rival.
fn screens_table(rows: &[Row]) -> Table {
    let texts = ["p50", "p99"];
    let of = |name: &str| texts.map(|text| format!("{name} {text}"));
    let head = ["what, RTT, load".to_owned()].into_iter();
    let head = head.chain(of("Levada")).chain(["rival".to_owned()]).chain(of("rival"));
    let mut table = Table::new("Between real screens, in ms, of all runs together", head);
    for (what, [ours, rival]) in screens::SUBJECTS {
        let ours = rows.iter().filter(|row| row.metric == "latency" && row.subject == ours);
        for row in ours {
            let word = |name: &str| row.params.get(name).map(ToString::to_string);
            let [rtt, load] = ["rtt_ms", "load"].map(|name| word(name).unwrap_or_default());
            let condition = format!("{what}, {rtt} ms, {load}").replace('"', "");
            let mut line = vec![condition];
            line.extend(marked(Some(row)));
            line.push(format!("`{rival}`"));
            line.extend(marked(find(rows, rival, "latency", &row.params)));
            table.lines.push(line);
        }
    }
    table
}

fn commands_table(rows: &[Row]) -> Table {
    use commands::{BEFORE, DIRECTIONS, LEVADA, SSH, SSH_AES, TRUE};
    let mut head = vec!["subject".to_owned()];
    let mut columns = Vec::new();
    let of_true = [("time", "ms"), ("client CPU", "client ms"), ("server CPU", "server ms")];
    let of_true = of_true.map(|(metric, text)| (TRUE, metric, text));
    let forwarded = DIRECTIONS.map(|direction| (direction, "MB/s", "MB/s"));
    for rtt in RTTS {
        for (work, metric, text) in forwarded.into_iter().chain(of_true) {
            head.push(format!("{rtt} ms, {work}: {text}"));
            columns.push((metric, params([("rtt_ms", rtt.into()), ("work", work.into())])));
        }
    }
    let title = "A forwarded connection (down, up), and a command (`true`) with its CPU time";
    let mut table = Table::new(title, head);
    fill(&mut table, rows, &[LEVADA, BEFORE, SSH, SSH_AES].map(str::to_owned), &columns);
    table
}

/// p50 and p99, marked with `!` if the runs were flagged.
fn marked(row: Option<&Row>) -> [String; 2] {
    let Some(row) = row else { return Default::default() };
    [row.p50, row.p99].map(|value| short(value) + mark(row))
}
