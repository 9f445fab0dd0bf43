//! The lines of the paper's table "Latency breakdown", from the rows of `breakdown`.

use levada_harness::{Params, Row, find};

use super::targets::NOT_MEASURED;
use crate::table::{Table, short};

/// The title of the table.
pub const TITLE: &str = "The lines of the reference's table, ns";

/// The source of a figure of ours.
#[derive(Clone, Copy)]
enum Source {
    /// The row of this metric.
    Row(&'static str),
    /// The row of `message`, less that of the subject which spins.
    Waking(&'static str),
    /// There is nothing to measure.
    Nothing,
}

use Source::{Nothing, Row as Of, Waking};

/// A line: its name; the paper's SocksDirect and Linux; ours with TCP, `fast` and `fast/direct`;
/// and why one is not measured.
type Line = (&'static str, &'static str, [Source; 3], &'static str);

const fn all(metric: &'static str) -> [Source; 3] {
    [Of(metric); 3]
}

const HOSTS: &str = "needs two hosts with network cards for RDMA";
const CARD: &str = "needs a network card";
const NONE: [Source; 3] = [Nothing; 3];
const NO_PACKETS: &str = "a ring has no packets";

const LINES: [Line; 22] = [
    ("operation, thread-unsafe", "53, 413", all("operation, one thread"), ""),
    ("operation, thread-safe", "53, 413", all("operation"), ""),
    ("operation, C library", "15, 12", all("C library"), ""),
    ("operation, system call", "–, 205", all("system call"), ""),
    ("operation, lock of the descriptor", "–, 160", all("lock of the descriptor"), ""),
    ("packet between hosts", "850, 15000", NONE, HOSTS),
    ("packet within a host", "150, 5800", all("message"), ""),
    ("packet, buffers", "50, 430", all("buffers"), ""),
    ("packet, transport", "–, 360", [Of("transport"), Nothing, Nothing], NO_PACKETS),
    ("packet, handling", "–, 500", [Of("packet handling"), Nothing, Nothing], NO_PACKETS),
    ("packet, doorbell and DMA", "600, 2100", NONE, CARD),
    ("packet, network card and wire", "200, 200", NONE, CARD),
    ("packet, interrupt", "–, 4000", NONE, "loopback has no interrupts"),
    (
        "packet, wake-up",
        "–, 5000",
        [Waking("tcp/spinning"), Waking("fast/spinning"), Nothing],
        "a spinning subject of `fast/direct` has no rows",
    ),
    ("kilobyte between hosts", "173, 365", NONE, HOSTS),
    ("kilobyte within a host", "13, 160", all("kilobyte"), ""),
    ("kilobyte, line", "160, 160", NONE, CARD),
    ("connection between hosts", "47000, 47000", NONE, HOSTS),
    ("connection within a host", "700, 14700", all("connection"), ""),
    ("connection, handshake of TCP", "16000, –", all("handshake"), ""),
    (
        "connection, monitor",
        "180, –",
        [Nothing, Of("monitor"), Of("monitor")],
        "TCP has no monitor",
    ),
    ("connection, creation of a queue pair", "30000, –", NONE, HOSTS),
];

/// The subjects of the columns. A wait of `fast` may be short enough not to sleep: `fast/sleeping`
/// shows its wake-up.
const COLUMNS: [&str; 3] = ["tcp", "fast", "fast/direct"];

/// A line for each of the paper's.
pub fn table(rows: &[Row]) -> Table {
    let columns = COLUMNS.map(|name| format!("`{name}`"));
    let first = ["line of the table", "the paper: SocksDirect, Linux"].map(str::to_owned);
    let head = first.into_iter().chain(columns).chain(["why not measured".to_owned()]);
    let mut table = Table::new(TITLE, head);
    for (name, paper, ours, why) in LINES {
        let columns = COLUMNS.iter().zip(ours);
        let cells = columns.map(|(subject, from)| value(rows, subject, from));
        let first = [name.to_owned(), paper.to_owned()].into_iter();
        table.lines.push(first.chain(cells).chain([why.to_owned()]).collect());
    }
    table
}

fn value(rows: &[Row], subject: &str, from: Source) -> String {
    let median = |subject: &str, metric: &str| {
        find(rows, subject, metric, &Params::new()).map(|row| row.median)
    };
    let value = match from {
        Nothing => return "–".into(),
        Of(metric) => median(subject, metric),
        Waking(spinning) => {
            let sleeping = if subject == "fast" { "fast/sleeping" } else { subject };
            let both = median(sleeping, "message").zip(median(spinning, "message"));
            both.map(|(sleeping, spinning)| sleeping - spinning)
        }
    };
    value.map_or(NOT_MEASURED.into(), short)
}
