//! What the connections of processes have carried, as rows, as text and as JSON.

use std::net::SocketAddr;

use levada_core::format_size;
use levada_monitor::Process;
use levada_ring::records::{Connection, Mode, REASONS, Reason, Snapshot, Traffic};
use serde_json::{Map, Value, json};

use crate::output::Cell;

/// The columns of [`rows`].
pub const HEADING: &[&str] = &[
    "process", "local", "remote", "mode", "ring in", "ring out", "tcp in", "tcp out", "messages",
    "sleeps", "wakeups", "reason",
];

/// A row for each open connection.
pub fn rows(processes: &[Process]) -> Vec<Vec<Cell>> {
    let connections = processes.iter().flat_map(|process| {
        let records = process.records.as_ref().ok();
        let connections = records.into_iter().flat_map(|records| &records.connections);
        connections.map(|connection| row(process, connection))
    });
    connections.collect()
}

fn row(process: &Process, connection: &Connection) -> Vec<Cell> {
    let Connection { mode, reason, local, remote, traffic } = connection;
    let address = |address: &Option<SocketAddr>| address.map_or("-".into(), Cell::whole);
    let bytes = [traffic.ring_in, traffic.ring_out, traffic.tcp_in, traffic.tcp_out];
    let counts = [traffic.messages, traffic.sleeps, traffic.wakeups];
    let mut row = vec![Cell::whole(process.pid), address(local), address(remote)];
    row.push(mode_word(*mode).into());
    row.extend(bytes.map(|bytes| Cell::whole(format_size(bytes))));
    row.extend(counts.map(Cell::whole));
    row.push(if *reason == Reason::None { "-" } else { reason_word(*reason) }.into());
    row
}

/// The closed connections, and the part of all bytes that went through rings.
pub fn summary(processes: &[Process]) -> String {
    let Totals { traffic, upgraded, direct, reasons } = Totals::of(processes);
    let by_reason: Vec<String> =
        named(&reasons).map(|(word, count)| format!("{word} {count}")).collect();
    let on_tcp = if by_reason.is_empty() { "none".into() } else { by_reason.join(", ") };
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.1} %", share * 100.0),
        None => "-".into(),
    };
    let direct = match direct {
        0 => String::new(),
        direct => format!(", {direct} of them without the kernel"),
    };
    let late = percent(share_after_trigger(&traffic));
    let all = percent(share(&traffic));
    let mut text = format!(
        "closed connections: {upgraded} had a ring{direct}; on TCP to the end: {on_tcp}\n\
         bytes through rings: {late} of those after the trigger, {all} of all"
    );
    let unreadable = processes.iter().filter(|process| process.records.is_err()).count();
    if unreadable > 0 {
        text += &format!("\nprocesses that show nothing readable: {unreadable}");
    }
    text
}

/// All of it, for programs.
pub fn json(processes: &[Process]) -> Value {
    let Totals { traffic, upgraded, direct, reasons } = Totals::of(processes);
    let processes: Vec<Value> = processes.iter().map(process).collect();
    json!({
        "processes": processes,
        "closed": {
            "connections": reasons.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)),
            "upgraded": upgraded,
            "direct": direct,
            "reasons": by_name(&reasons),
        },
        "traffic": numbers(&traffic),
        "ring_share_after_trigger": share_after_trigger(&traffic),
        "ring_share": share(&traffic),
    })
}

/// The sum over processes.
struct Totals {
    /// Of open and closed connections.
    traffic: Traffic,
    upgraded: u64,
    direct: u64,
    reasons: [u64; REASONS.len()],
}

impl Totals {
    fn of(processes: &[Process]) -> Self {
        let reasons = [0; REASONS.len()];
        let mut totals = Self { traffic: Traffic::default(), upgraded: 0, direct: 0, reasons };
        for records in processes.iter().filter_map(|process| process.records.as_ref().ok()) {
            totals.traffic += records.traffic();
            totals.upgraded = totals.upgraded.saturating_add(records.closed.upgraded);
            totals.direct = totals.direct.saturating_add(records.closed.direct);
            for (sum, count) in totals.reasons.iter_mut().zip(records.closed.reasons) {
                *sum = sum.saturating_add(count);
            }
        }
        totals
    }
}

/// The part of the bytes after the trigger of an upgrade that went through rings; `None` if there
/// were none.
fn share_after_trigger(traffic: &Traffic) -> Option<f64> {
    ratio(traffic.ring(), traffic.tcp_late)
}

/// The part of all bytes that went through rings.
fn share(traffic: &Traffic) -> Option<f64> {
    ratio(traffic.ring(), traffic.tcp())
}

fn ratio(part: u64, rest: u64) -> Option<f64> {
    let sum = part as f64 + rest as f64;
    (sum > 0.0).then(|| part as f64 / sum)
}

fn process(process: &Process) -> Value {
    let mut object = json!({ "pid": process.pid, "run": process.run, "alive": process.alive });
    match &process.records {
        Ok(Snapshot { closed, connections }) => {
            let connections: Vec<Value> = connections.iter().map(connection).collect();
            object["connections"] = connections.into();
            object["closed"] = json!({
                "upgraded": closed.upgraded,
                "direct": closed.direct,
                "reasons": by_name(&closed.reasons),
                "traffic": numbers(&closed.traffic),
            });
        }
        Err(error) => object["error"] = error.to_string().into(),
    }
    object
}

fn connection(connection: &Connection) -> Value {
    let Connection { mode, reason, local, remote, traffic } = connection;
    json!({
        "local": local.map(|address| address.to_string()),
        "remote": remote.map(|address| address.to_string()),
        "mode": mode_word(*mode),
        "reason": (*reason != Reason::None).then(|| reason_word(*reason)),
        "traffic": numbers(traffic),
    })
}

fn numbers(traffic: &Traffic) -> Value {
    json!({
        "ring_in": traffic.ring_in,
        "ring_out": traffic.ring_out,
        "tcp_in": traffic.tcp_in,
        "tcp_out": traffic.tcp_out,
        "tcp_after_trigger": traffic.tcp_late,
        "messages": traffic.messages,
        "sleeps": traffic.sleeps,
        "wakeups": traffic.wakeups,
    })
}

fn by_name(reasons: &[u64; REASONS.len()]) -> Map<String, Value> {
    named(reasons).map(|(word, count)| (word.to_owned(), count.into())).collect()
}

/// The reasons that occurred, with their numbers.
fn named(reasons: &[u64; REASONS.len()]) -> impl Iterator<Item = (&'static str, u64)> {
    let all = REASONS.iter().zip(reasons);
    let occurred = all.filter(|(reason, count)| **reason != Reason::None && **count > 0);
    occurred.map(|(reason, count)| (reason_word(*reason), *count))
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Free => "free",
        Mode::Tcp => "tcp",
        Mode::Offered => "offered",
        Mode::Ring => "ring",
        Mode::Kernel => "kernel",
    }
}

fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::None => "none",
        Reason::Short => "short",
        Reason::NoPeer => "no-peer",
        Reason::Monitor => "monitor",
        Reason::Exhausted => "exhausted",
        Reason::Unsupported => "unsupported",
        Reason::Forked => "forked",
        Reason::Handed => "handed-over",
        Reason::Peer => "peer",
        Reason::Corrupt => "corrupt",
    }
}

#[cfg(test)]
mod tests {
    use levada_ring::records::Closed;

    use super::*;

    fn process_with(ring_in: u64, tcp_late: u64, tcp_in: u64) -> Process {
        let traffic = Traffic { ring_in, tcp_late, tcp_in, ..Traffic::default() };
        let mut reasons = [0; REASONS.len()];
        reasons[Reason::None as usize] = 9;
        reasons[Reason::NoPeer as usize] = 2;
        let closed = Closed { traffic, upgraded: 3, direct: 2, reasons };
        let open = Connection {
            mode: Mode::Kernel,
            reason: Reason::Handed,
            local: Some("127.0.0.1:80".parse().unwrap()),
            remote: None,
            traffic: Traffic::default(),
        };
        let records = Ok(Snapshot { closed, connections: vec![open] });
        Process { pid: 7, run: 1, alive: true, records }
    }

    #[test]
    fn reports_what_went_through_rings() {
        let processes = [process_with(90, 10, 100), process_with(0, 0, 0)];
        let text = summary(&processes);
        assert!(text.contains("6 had a ring, 4 of them without the kernel;"), "{text}");
        assert!(text.contains("on TCP to the end: no-peer 4\n"), "{text}");
        assert!(text.contains("90.0 % of those after the trigger, 47.4 % of all"), "{text}");
        let object = json(&processes);
        assert_eq!(object["ring_share_after_trigger"], 0.9);
        assert_eq!(object["closed"]["connections"], 22);
        assert_eq!(object["closed"]["direct"], 4);
        assert_eq!(object["closed"]["reasons"], json!({ "no-peer": 4 }));
        assert_eq!(object["processes"][0]["connections"][0]["reason"], "handed-over");
        let rows = rows(&processes);
        assert_eq!((rows.len(), rows[0].len()), (2, HEADING.len()));
        let expected = [Cell::whole(7), Cell::whole("127.0.0.1:80"), "-".into(), "kernel".into()];
        assert_eq!(rows[0][..4], expected);
    }

    #[test]
    fn without_traffic_there_is_no_share() {
        assert!(summary(&[]).contains("- of those after the trigger, - of all"));
        assert_eq!(json(&[])["ring_share"], Value::Null);
    }
}
