//! The figures of "SocksDirect", section "Performance Microbenchmark", drawn from rows only.

use std::path::Path;

use levada_harness::{Axis, Figure, Panel, Row, Scale, Series, Stroke, find, params, read_rows};

use super::exchange::ROUND_TRIP;
use super::experiment::{CONNECTIONS, CORES, Experiment, LATENCY, SHARING, THROUGHPUT};
use super::scripts;
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
        let spans = spans(&experiment, &rows);
        let series = spans.chain(lines(&experiment, &rows)).chain(paper.iter().map(mark));
        let series = series.collect();
        let panel = Panel { title: String::new(), x, y, series, groups: Vec::new() };
        if panel.series.iter().any(|one| one.stroke == Stroke::Marked) {
            let title = experiment.title.to_owned();
            let figure = Figure { title, columns: 1, size: SIZE, panels: vec![panel] };
            figure.draw(&folder.join(path))?;
        }
    }
    fork(folder)
}

/// Draws the rates around the forks of sender and receiver, and the pauses after each.
fn fork(folder: &Path) -> anyhow::Result<()> {
    let rows = read_rows(&file(folder, scripts::FORK))?;
    if rows.is_empty() {
        return Ok(());
    }
    let phases = ["before", "from T0", "from T1", "from T2", "from T3"];
    let rates = fork_panel(&rows, "MB/s in each phase", &scripts::RATES, &phases);
    let times = ["T0", "T1", "T2", "T3"];
    let pauses = fork_panel(&rows, "ms to half of the phase's rate", &scripts::PAUSES, &times);
    let title = "Around a fork".to_owned();
    let figure = Figure { title, columns: 1, size: SIZE, panels: vec![rates, pauses] };
    Ok(figure.draw(&folder.join("fork.svg"))?)
}

/// The medians and ranges of these metrics, one after the other.
fn fork_panel(rows: &[Row], title: &str, metrics: &[&'static str], labels: &[&str]) -> Panel {
    let at = |number: usize, subject: usize| number as f64 + 0.4 + 0.2 * subject as f64;
    let mut series = Vec::new();
    for (subject, (name, colour)) in [("tcp", 0), ("fast", 4)].into_iter().enumerate() {
        let rows = metrics.iter().map(|metric| find(rows, name, metric, &params([])));
        let numbered = rows.enumerate().filter_map(|(number, row)| Some((number, row?)));
        let numbered: Vec<(usize, &Row)> = numbered.collect();
        let medians = numbered.iter().map(|(number, row)| (at(*number, subject), row.median));
        let range = |(number, row): &(usize, &Row)| {
            [(at(*number, subject), row.min), (at(*number, subject), row.max)]
        };
        let ranges = numbered.iter().flat_map(range).collect();
        series.push(Series { name: String::new(), colour, stroke: Stroke::Span, points: ranges });
        let name = name.to_owned();
        series.push(Series { name, colour, stroke: Stroke::Disc, points: medians.collect() });
    }
    let middle = |(number, label): (usize, &&str)| (number as f64 + 0.5, (*label).to_owned());
    let mut x = Axis::new("", Scale::Linear);
    x.range = Some((0.0, metrics.len() as f64));
    x.ticks = labels.iter().enumerate().map(middle).collect();
    let y = Axis::new(title, Scale::Linear);
    Panel { title: String::new(), x, y, series, groups: Vec::new() }
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

/// From p1 to p99, where an experiment has both, of the subjects whose lines have marks.
fn spans(experiment: &Experiment, rows: &[Row]) -> impl Iterator<Item = Series> {
    let has_both = experiment.metrics == &ROUND_TRIP[..];
    let subjects = experiment.subjects.iter().filter(move |_| has_both);
    let spans = subjects.map(move |subject| {
        let name = subject.to_string();
        let (colour, stroke) = look_of(&name);
        let own = rows.iter().filter(|row| row.subject == name && stroke == Stroke::Marked);
        let end = |row: &Row| Some((row.number(experiment.condition)?, row.median));
        let ends = |quantile: &str| {
            let metric = format!("round trip {quantile}");
            let mut ends: Vec<_> =
                own.clone().filter(|row| row.metric == metric).filter_map(end).collect();
            ends.sort_by(|a, b| a.0.total_cmp(&b.0));
            ends
        };
        let points = ends("p1").into_iter().zip(ends("p99")).flat_map(|(low, high)| [low, high]);
        Series { name: String::new(), colour, stroke: Stroke::Span, points: points.collect() }
    });
    spans.collect::<Vec<_>>().into_iter()
}

/// The colour says what carries the bytes, and the stroke how an end waits.
fn look_of(subject: &str) -> (usize, Stroke) {
    let (family, how) = subject.split_once('/').unwrap_or((subject, ""));
    let colour = ["tcp", "ring", "unix", "", "fast"].iter().position(|known| *known == family);
    match how {
        "sockmap" => (3, Stroke::Marked),
        "direct" => (5, Stroke::Marked),
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
