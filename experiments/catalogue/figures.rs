//! The paper's nine figures, drawn from rows only.

use std::path::Path;

use levada_harness::{Axis, Figure, Panel, Row, Scale, Series, Stroke, find, params, read_rows};

use super::bounds::Bounds;
use super::deployment::QUANTILES;
use super::load::RTTS;
use super::objects::Object;
use super::sweep::{Requests, STABLE, Step, Sweep};
use super::{NAME, levada, nginx};
use crate::measuring::file;

/// Rates up to this are magnified, as in the paper.
const LOW: u64 = 600;
/// The horizontal distance between bounds of the same rate, so that none hides another.
const APART: f64 = 5.0;
/// The sweeps of a figure, one per panel.
const PANELS: [(Requests, Step, &str); 3] = [
    (Requests::One, Step::Twenty, "one request per connection, 20 connections"),
    (Requests::One, Step::Long, "one request per connection, longer steps"),
    (Requests::Many, Step::Long, "many requests per connection, longer steps"),
];

/// Makes a figure about one object.
type Draw = fn(&[Row], Object) -> Figure;

/// The paper's results for an object.
pub struct Paper {
    /// Mean response time of the system in its stable phase, in ms.
    pub stable_ms: f64,
    /// Mean response time at saturation, in ms.
    pub saturated_ms: f64,
    /// Actual rate at saturation, per second.
    pub rate: f64,
}

impl Paper {
    /// The results for this object.
    pub fn of(object: Object) -> Self {
        match object {
            Object::Descriptor => Self { stable_ms: 1.38, saturated_ms: 7.41, rate: 1350.0 },
            Object::Package => Self { stable_ms: 1.35, saturated_ms: 8.54, rate: 1180.0 },
        }
    }
}

/// Draws the figures of the rows in `folder`, into that folder.
pub fn draw(folder: &Path) -> anyhow::Result<()> {
    let mut rows = read_rows(&file(folder, NAME))?;
    rows.retain(|row| row.experiment == NAME);
    let kinds: [(&str, Draw); 4] = [
        ("time", time_figure),
        ("magnified", magnified_figure),
        ("rate", rate_figure),
        ("errors", errors_figure),
    ];
    for object in Object::ALL {
        for (kind, figure) in kinds {
            save(&figure(&rows, object), &folder.join(format!("{}-{kind}.svg", object.name())))?;
        }
    }
    save(&distribution_figure(&rows), &folder.join("distribution.svg"))
}

/// Draws a figure, unless it has no panels.
fn save(figure: &Figure, path: &Path) -> anyhow::Result<()> {
    if figure.panels.is_empty() {
        return Ok(());
    }
    Ok(figure.draw(path)?)
}

fn time_figure(rows: &[Row], object: Object) -> Figure {
    let paper = Paper::of(object);
    let name = format!(
        "the paper: {} ms when stable, {} ms when saturated",
        paper.stable_ms, paper.saturated_ms
    );
    let panel = |shown: &Shown<'_>| {
        let lines = shown.lines("response time mean", |row| Bounds::of(row).mean);
        let limits = [paper.stable_ms, paper.saturated_ms];
        let limits = limits.map(|limit| level(&name, &lines, limit));
        let y = Axis::new("mean response time, ms", Scale::Log);
        shown.panel(y, limits.into_iter().flatten().chain(lines).collect())
    };
    figure(format!("Response time: {}", object.name()), shown(rows, object).iter().map(panel))
}

fn magnified_figure(rows: &[Row], object: Object) -> Figure {
    let panel = |shown: &Shown<'_>| {
        let mut series = Vec::new();
        for line in shown.lines_of() {
            let mut means = Vec::new();
            let mut spans = Vec::new();
            for (rate, row) in shown.points(&line, "response time mean") {
                let x = rate as f64 + line.shift();
                let bounds = Bounds::of(row);
                if rate <= LOW {
                    means.push((x, bounds.mean));
                    spans.extend([(x, bounds.low), (x, bounds.high)]);
                }
            }
            let span = Series { name: String::new(), stroke: Stroke::Span, ..line.series(spans) };
            series.extend([span, line.series(means)]);
        }
        let x = Axis::new("demanded rate, 1/s", Scale::Linear);
        let y = Axis::new("mean response time, ms, and its 95 % bounds", Scale::Linear);
        Panel { x, ..shown.panel(y, series) }
    };
    let title = format!("Response time at low rates: {}", object.name());
    figure(title, shown(rows, object).iter().map(panel))
}

fn rate_figure(rows: &[Row], object: Object) -> Figure {
    let paper = Paper::of(object);
    let name = format!("as demanded; where the paper's system is saturated: {}/s", paper.rate);
    let panel = |shown: &Shown<'_>| {
        let lines = shown.lines("response rate", |row| row.median);
        let demanded = ends(&lines).map(|(low, high)| Series {
            name: name.clone(),
            colour: 0,
            stroke: Stroke::Limit,
            points: vec![(low, low), (high, high)],
        });
        let limits = demanded.into_iter().chain(level(&name, &lines, paper.rate));
        shown.panel(Axis::new("actual rate, 1/s", Scale::Log), limits.chain(lines).collect())
    };
    let title = format!("Actual over demanded rate: {}", object.name());
    figure(title, shown(rows, object).iter().map(panel))
}

fn errors_figure(rows: &[Row], object: Object) -> Figure {
    let panel = |shown: &Shown<'_>| {
        let lines = shown.lines("errors", |row| row.values.iter().sum());
        let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let most = most.fold(1.0, f64::max);
        let mut y = Axis::new("errors in all runs", Scale::Linear);
        y.range = Some((0.0, most * 1.08));
        shown.panel(y, lines)
    };
    let title = format!("Requests without an answer within 5 s: {}", object.name());
    figure(title, shown(rows, object).iter().map(panel))
}

/// The response times of descriptor and package, well below saturation.
fn distribution_figure(rows: &[Row]) -> Figure {
    let panel = |rtt_us: u64| {
        let mut series = Vec::new();
        for (colour, object) in Object::ALL.into_iter().enumerate() {
            let requests = Requests::One;
            let step = Step::Long;
            let mut at = Sweep { rtt_us, object, requests, step }.params();
            at.insert("rate".to_owned(), STABLE.into());
            for (subject, stroke) in [(levada::NAME, Stroke::Marked), (nginx::NAME, Stroke::Dashed)]
            {
                let point = |&(share, metric): &(f64, &str)| {
                    Some((find(rows, subject, metric, &at)?.median, share))
                };
                let points = QUANTILES.iter().filter_map(point).collect();
                let name = format!("{subject}, {}", object.name());
                series.push(Series { name, colour, stroke, points });
            }
        }
        series.retain(|series| !series.points.is_empty());
        let mut y = Axis::new("share of requests answered", Scale::Linear);
        y.range = Some((0.0, 1.0));
        let x = Axis::new("response time, ms", Scale::Log);
        Panel { title: round_trip(rtt_us), x, y, series, groups: Vec::new() }
    };
    let panels = RTTS.into_iter().map(panel).filter(|panel| !panel.series.is_empty());
    let title = format!("Response times at {STABLE} requests per second, one per connection");
    Figure { columns: 2, size: (520, 360), ..figure(title, panels) }
}

/// One sweep of an object, at all round trips.
struct Shown<'a> {
    rows: &'a [Row],
    object: Object,
    requests: Requests,
    step: Step,
    title: &'a str,
}

/// One subject at one round trip.
struct Line {
    subject: &'static str,
    number: usize,
    rtt: usize,
}

/// The sweeps that have rows.
fn shown(rows: &[Row], object: Object) -> Vec<Shown<'_>> {
    let all = PANELS.map(|(requests, step, title)| Shown { rows, object, requests, step, title });
    let has = |shown: &Shown<'_>| {
        shown.lines_of().iter().any(|line| shown.points(line, "errors").next().is_some())
    };
    all.into_iter().filter(has).collect()
}

impl Shown<'_> {
    fn panel(&self, y: Axis, mut series: Vec<Series>) -> Panel {
        series.retain(|series| !series.points.is_empty());
        let x = Axis::new("demanded rate, 1/s", Scale::Log);
        Panel { title: self.title.to_owned(), x, y, series, groups: Vec::new() }
    }

    fn lines_of(&self) -> Vec<Line> {
        let subjects = [levada::NAME, nginx::NAME].into_iter().enumerate();
        let lines = subjects.flat_map(|(number, subject)| {
            (0..RTTS.len()).map(move |rtt| Line { subject, number, rtt })
        });
        lines.collect()
    }

    /// The rows of a line, by ascending demanded rate.
    fn points(&self, line: &Line, metric: &str) -> impl Iterator<Item = (u64, &Row)> {
        let Self { object, requests, step, .. } = *self;
        let at = Sweep { rtt_us: RTTS[line.rtt], object, requests, step }.params();
        let rate = |row: &Row| row.params.get("rate").and_then(|rate| rate.as_u64());
        let mut rates: Vec<u64> = self.rows.iter().filter_map(rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let subject = line.subject;
        let metric = metric.to_owned();
        rates.into_iter().filter_map(move |rate| {
            let mut at = at.clone();
            at.extend(params([("rate", rate.into())]));
            Some((rate, find(self.rows, subject, &metric, &at)?))
        })
    }

    fn lines(&self, metric: &str, value: impl Fn(&Row) -> f64) -> Vec<Series> {
        let series = |line: Line| {
            let points = self.points(&line, metric);
            line.series(points.map(|(rate, row)| (rate as f64, value(row))).collect())
        };
        self.lines_of().into_iter().map(series).collect()
    }
}

impl Line {
    fn series(&self, points: Vec<(f64, f64)>) -> Series {
        let name = format!("{}, {}", self.subject, round_trip(RTTS[self.rtt]));
        let stroke = if self.rtt == 0 { Stroke::Marked } else { Stroke::Dashed };
        Series { name, colour: self.number, stroke, points }
    }

    fn shift(&self) -> f64 {
        APART * (self.number + 2 * self.rtt) as f64
    }
}

fn round_trip(rtt_us: u64) -> String {
    match rtt_us {
        0 => "loopback".to_owned(),
        rtt_us => format!("{} ms RTT", rtt_us as f64 / 1e3),
    }
}

/// The least and the greatest demanded rate.
fn ends(lines: &[Series]) -> Option<(f64, f64)> {
    let rates = || lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let low = rates().reduce(f64::min)?;
    let high = rates().reduce(f64::max)?;
    Some((low, high))
}

/// A horizontal line.
fn level(name: &str, lines: &[Series], value: f64) -> Option<Series> {
    let (low, high) = ends(lines)?;
    let points = vec![(low, value), (high, value)];
    Some(Series { name: name.to_owned(), colour: 0, stroke: Stroke::Limit, points })
}

fn figure(title: String, panels: impl Iterator<Item = Panel>) -> Figure {
    Figure { title, columns: 3, size: (440, 360), panels: panels.collect() }
}
