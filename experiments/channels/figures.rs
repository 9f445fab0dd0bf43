//! The figures of Capone, drawn from rows only.

mod input;
mod screens;

use std::path::Path;

use levada_harness::{
    Axis, Figure, Panel, Params, Row, Scale, Series, Stroke, find, params, read_rows,
};

use super::throughput::{MESSAGES, RTTS};
use super::{connect, throughput};
use crate::measuring::file;

/// Capone's targets in MB/s: Ethernet and the internet.
const AIMS: [f64; 2] = [120.0, 10.0];
/// The least and the greatest block length, in bytes.
const ENDS: (u32, u32) = (64, 4096);

/// Makes the figure of one experiment's rows.
type Draw = fn(&[Row]) -> Figure;

/// Draws the figures of all experiments with rows in `folder`, into that folder.
pub fn draw(folder: &Path) -> anyhow::Result<()> {
    let kinds: [(&str, Draw); 4] = [
        (throughput::NAME, throughput_figure),
        (connect::NAME, connect_figure),
        (super::input::NAME, input::figure),
        (super::screens::NAME, screens::figure),
    ];
    for (name, figure) in kinds {
        let path = file(folder, name);
        let mut rows = read_rows(&path)?;
        rows.retain(|row| row.experiment == name);
        if !rows.is_empty() {
            figure(&rows).draw(&path.with_extension("svg"))?;
        }
    }
    Ok(())
}

fn throughput_figure(rows: &[Row]) -> Figure {
    let panel = |bytes: usize| {
        let aims =
            AIMS.map(|aim| level("aims of the paper: 120 and 10 MB/s", 0, Stroke::Limit, aim));
        let mut series: Vec<Series> = aims.into();
        for (colour, rtt) in RTTS.into_iter().enumerate() {
            let at = params([("message_bytes", bytes.into()), ("rtt_ms", rtt.into())]);
            let name = |what: &str| format!("{rtt} ms RTT, {what}");
            series.push(blocks(rows, "MB/s", &at, (name("blocks"), colour)));
            let auto = find(rows, "levada/auto", "MB/s", &at);
            series.extend(auto.map(|row| level(&name("auto"), colour, Stroke::Dashed, row.median)));
        }
        let y = Axis::new("MB/s", Scale::Log);
        panel(format!("Messages of {bytes} bytes"), y, series)
    };
    Figure {
        title: "Throughput over block length, and of auto framing, which has none".into(),
        columns: 2,
        size: (520, 350),
        panels: measured(rows, "message_bytes", MESSAGES.map(|bytes| bytes as u64))
            .map(|bytes| panel(bytes as usize))
            .collect(),
    }
}

fn connect_figure(rows: &[Row]) -> Figure {
    let panel = |rtt: u64| {
        let mut series = Vec::new();
        for (colour, handshake) in ["full", "resumed"].into_iter().enumerate() {
            let at = params([("rtt_ms", rtt.into()), ("handshake", handshake.into())]);
            let name = |what: &str| format!("{what}, {handshake}");
            series.push(blocks(rows, "time", &at, (name("blocks"), colour)));
            for (subject, text, stroke) in
                [("levada/auto", "auto", Stroke::Dashed), ("rustls", "rustls", Stroke::Dotted)]
            {
                let row = find(rows, subject, "time", &at);
                series.extend(row.map(|row| level(&name(text), colour, stroke, row.median)));
            }
        }
        let tcp = find(rows, "tcp/plain", "time", &params([("rtt_ms", rtt.into())]));
        series.extend(tcp.map(|row| level("plain TCP", 0, Stroke::Limit, row.median)));
        let y = Axis::new("ms from connecting to the first reply", Scale::Linear);
        panel(format!("{rtt} ms RTT"), y, series)
    };
    Figure {
        title: "Connection time over block length".into(),
        columns: 3,
        size: (400, 340),
        panels: measured(rows, "rtt_ms", RTTS).map(panel).collect(),
    }
}

/// The `values` that the parameter `name` has in at least one row.
fn measured<const N: usize>(
    rows: &[Row],
    name: &str,
    values: [u64; N],
) -> impl Iterator<Item = u64> {
    let has =
        |row: &Row, value| row.params.get(name).and_then(|known| known.as_u64()) == Some(value);
    values.into_iter().filter(move |value| rows.iter().any(|row| has(row, *value)))
}

/// A panel over block lengths.
fn panel(title: String, y: Axis, mut series: Vec<Series>) -> Panel {
    series.retain(|series| !series.points.is_empty());
    let x = Axis::powers_of_two("block length, bytes", ENDS.0, ENDS.1);
    Panel { title, x, y, series, groups: Vec::new() }
}

/// The medians of `levada/block:N`, over N.
fn blocks(rows: &[Row], metric: &str, at: &Params, (name, colour): (String, usize)) -> Series {
    let point = |length: u16| {
        let row = find(rows, &format!("levada/block:{length}"), metric, at)?;
        Some((f64::from(length), row.median))
    };
    let points = super::subject::BLOCKS.into_iter().filter_map(point).collect();
    Series { name, colour, stroke: Stroke::Marked, points }
}

/// A horizontal line.
fn level(name: &str, colour: usize, stroke: Stroke, value: f64) -> Series {
    let points = [ENDS.0, ENDS.1].map(|length| (f64::from(length), value)).into();
    Series { name: name.to_owned(), colour, stroke, points }
}
