//! The figure of key latency between real screens.

use levada_harness::{Axis, Figure, Panel, Row, Scale, Series, find, params};

use super::input::Marks;
use super::measured;
use crate::channels::screens::{LOADS, SUBJECTS};
use crate::channels::throughput::RTTS;

/// The distance between the subjects under one condition.
const APART: f64 = 0.12;

/// A panel for keys on another screen, and one for their echo.
pub fn figure(rows: &[Row]) -> Figure {
    Figure {
        title: "Keys between real screens on a link of 100 Mbit/s".into(),
        columns: 2,
        size: (520, 320),
        panels: SUBJECTS.into_iter().map(|(what, subjects)| panel(rows, what, subjects)).collect(),
    }
}

fn panel(rows: &[Row], what: &str, subjects: [&str; 2]) -> Panel {
    let mut marks = [Marks::new(subjects[0], 0), Marks::new(subjects[1], 1)];
    let mut groups = Vec::new();
    let mut ticks = Vec::new();
    let rtts: Vec<u64> = measured(rows, "rtt_ms", RTTS).collect();
    for (group, rtt) in rtts.iter().copied().enumerate() {
        groups.push((group as f64, format!("{rtt} ms RTT")));
        for (number, load) in LOADS.into_iter().enumerate() {
            let x = group as f64 + (number as f64 - 0.5) * 0.45;
            ticks.push((x, load.to_owned()));
            let at = params([("rtt_ms", rtt.into()), ("load", load.into())]);
            for ((mark, name), side) in marks.iter_mut().zip(subjects).zip([-0.5, 0.5]) {
                if let Some(row) = find(rows, name, "latency", &at) {
                    mark.add(x + side * APART, row);
                }
            }
        }
    }
    let mut x = Axis::new("", Scale::Linear);
    x.range = Some((-0.5, rtts.len().max(1) as f64 - 0.5));
    x.ticks = ticks;
    let series: Vec<Series> = marks.into_iter().flat_map(|mark| mark.series).collect();
    let y = Axis::new("latency, ms", Scale::Log);
    let title = match what {
        "keys" => "From a key to the other screen's window",
        _ => "From a key to its echo in a shown xterm",
    };
    Panel { title: title.into(), x, y, series, groups }
}
