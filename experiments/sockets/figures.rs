//! The figures of "SocksDirect", section "Performance Microbenchmark", drawn from rows only.

use std::path::Path;

use levada_harness::{Axis, Figure, Panel, Row, Scale, Series, Stroke, read_rows};

use super::experiment::{CONNECTIONS, CORES, Experiment, LATENCY, SHARING, THROUGHPUT};
use crate::measuring::file;

/// The width and height of a panel in pixels.
const SIZE: (u32, u32) = (560, 380);

/// Values that the text of the paper gives, by the condition. The colour is that of the subject
/// here that is most alike.
struct Paper {
    name: &'static str,
    colour: usize,
    points: &'static [(f64, f64)],
}

/// Round trips in µs. The text says 0.3 for 8 B, a 35th of Linux, RSocket six times as much, and a
/// queue alone 0.25.
const LATENCIES: [Paper; 4] = [
    Paper { name: "paper: SocksDirect", colour: 4, points: &[(8.0, 0.3)] },
    Paper { name: "paper: Linux, and LibVMA", colour: 0, points: &[(8.0, 10.5)] },
    Paper { name: "paper: RSocket", colour: 5, points: &[(8.0, 1.8)] },
    Paper { name: "paper: a queue alone", colour: 1, points: &[(8.0, 0.25)] },
];
/// Rates in MB/s, of 23 and 27 million messages of 8 B per second, a 20th and a quarter of the
/// first.
const RATES: [Paper; 4] = [
    Paper { name: "paper: SocksDirect", colour: 4, points: &[(8.0, 184.0)] },
    Paper { name: "paper: Linux, and LibVMA", colour: 0, points: &[(8.0, 9.2)] },
    Paper { name: "paper: RSocket", colour: 5, points: &[(8.0, 46.0)] },
    Paper { name: "paper: a queue alone", colour: 1, points: &[(8.0, 216.0)] },
];

/// Draws the figures of all experiments with rows in `folder`, into that folder.
pub fn draw(folder: &Path) -> anyhow::Result<()> {
    let bytes = || Axis::new("bytes of a message", Scale::Log);
    let panels = [
        ("latency.svg", LATENCY, bytes(), Axis::new("round trip, µs", Scale::Log), &LATENCIES[..]),
        ("throughput.svg", THROUGHPUT, bytes(), Axis::new("MB/s", Scale::Log), &RATES[..]),
        (
            "connections.svg",
            CONNECTIONS,
            Axis::new("exchanges of a connection", Scale::Log),
            Axis::new("connections per second", Scale::Log),
            &[],
        ),
        ("cores.svg", CORES, pairs(), Axis::new("MB/s in all, messages of 8 B", Scale::Log), &[]),
        ("sharing.svg", SHARING, pairs(), Axis::new("round trip, µs", Scale::Log), &[]),
    ];
    for (path, experiment, x, y, paper) in panels {
        let rows = read_rows(&file(folder, experiment.name))?;
        let series = lines(&experiment, &rows).chain(paper.iter().map(mark)).collect();
        let panel = Panel { title: String::new(), x, y, series, groups: Vec::new() };
        if panel.series.iter().any(|one| one.stroke == Stroke::Marked) {
            let title = experiment.title.to_owned();
            let figure = Figure { title, columns: 1, size: SIZE, panels: vec![panel] };
            figure.draw(&folder.join(path))?;
        }
    }
    Ok(())
}

fn pairs() -> Axis {
    Axis::new("pairs of threads", Scale::Linear)
}

fn lines(experiment: &Experiment, rows: &[Row]) -> impl Iterator<Item = Series> {
    let metric = experiment.metrics.first().map_or("", |(metric, _)| *metric);
    let lines = experiment.subjects.iter().map(move |subject| {
        let name = subject.to_string();
        let own = rows.iter().filter(|row| row.subject == name && row.metric == metric);
        let point = |row: &Row| Some((row.number(experiment.condition)?, row.median));
        let mut points: Vec<_> = own.filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (colour, stroke) = look_of(&name);
        Series { name, colour, stroke, points }
    });
    lines.filter(|line| !line.points.is_empty()).collect::<Vec<_>>().into_iter()
}

/// The colour says what carries the bytes, and the stroke how an end waits.
fn look_of(subject: &str) -> (usize, Stroke) {
    let (family, how) = subject.split_once('/').unwrap_or((subject, ""));
    let colour = ["tcp", "ring", "unix", "", "fast"].iter().position(|known| *known == family);
    match how {
        "sockmap" => (3, Stroke::Marked),
        "spinning" => (colour.unwrap_or(5), Stroke::Dashed),
        "sleeping" => (colour.unwrap_or(5), Stroke::Dotted),
        _ => (colour.unwrap_or(5), Stroke::Marked),
    }
}

fn mark(paper: &Paper) -> Series {
    let name = paper.name.to_owned();
    let points = paper.points.to_vec();
    Series { name, colour: paper.colour, stroke: Stroke::Triangle, points }
}
