//! The figures of the paper, drawn from rows only.

use std::path::Path;

use levada_harness::{Axis, Figure, Panel, Params, Row, Scale, Series, Stroke, find, read_rows};

use super::connections::{E2E, LEVADA, SPLIT, conditions};
use super::download::{LENGTHS, RATES as DOWNLOAD_RATES};
use super::first_byte::{CONTEXTS, DELAYS, MIDDLEBOXES, RATES, cell, with_links};
use super::latency::{Cell, MODES};
use super::link::{Links, Profile};
use super::{connections, download, first_byte, report};
use crate::measuring::file;

/// Makes the figure of one experiment's rows.
type Draw = fn(&[Row]) -> Figure;

/// Draws the figures of all experiments with rows in `folder`, into that folder.
pub fn draw(folder: &Path) -> anyhow::Result<()> {
    let kinds: [(&str, &str, Draw); 4] = [
        (first_byte::NAME, "first-byte.svg", sweeps),
        (first_byte::NAME, "networks.svg", networks),
        (download::NAME, "download.svg", downloads),
        (connections::NAME, "connections.svg", rates),
    ];
    for (name, path, figure) in kinds {
        let mut rows = read_rows(&file(folder, name))?;
        rows.retain(|row| row.experiment == name);
        let mut figure = figure(&rows);
        figure.panels.retain(|panel| !panel.series.is_empty());
        if !figure.panels.is_empty() {
            figure.draw(&folder.join(path))?;
        }
    }
    Ok(())
}

/// The time to the first byte over contexts, delay and middleboxes, a row of panels for each rate.
fn sweeps(rows: &[Row]) -> Figure {
    let mut panels = Vec::new();
    for rate in RATES {
        let contexts = CONTEXTS.map(|contexts| (contexts as f64, Cell { contexts, ..cell(rate) }));
        panels.push(times(
            rows,
            &format!("{rate} Mbit/s, 20 ms for each link"),
            contexts_axis(),
            contexts,
        ));
        let delays = DELAYS.map(|delay| (delay as f64, with_links(rate, delay, 0.0)));
        let mut panel = times(rows, &format!("{rate} Mbit/s, 4 contexts"), delay_axis(), delays);
        panel.groups = DELAYS.map(|delay| (delay as f64, format!("RTT {}", 4 * delay))).into();
        panels.push(panel);
        let middleboxes =
            MIDDLEBOXES.map(|middleboxes| (middleboxes as f64, Cell { middleboxes, ..cell(rate) }));
        let axis = Axis::new("middleboxes", Scale::Linear);
        panels.push(times(rows, &format!("{rate} Mbit/s, 4 contexts, 20 ms"), axis, middleboxes));
    }
    Figure {
        title: "Time to the first byte; bars: standard deviation".into(),
        columns: 3,
        size: (400, 340),
        panels,
    }
}

fn contexts_axis() -> Axis {
    Axis::powers_of_two("contexts", 1, 16)
}

fn delay_axis() -> Axis {
    let mut axis = Axis::powers_of_two("ms for each link", 5, 80);
    axis.ticks = DELAYS.map(|delay| (delay as f64, delay.to_string())).into();
    axis
}

/// The time to the first byte over contexts on emulated networks.
fn networks(rows: &[Row]) -> Figure {
    let panel = |profile: Profile| {
        let links = Links::Profile(profile);
        let cells = CONTEXTS.map(|contexts| (contexts as f64, Cell { contexts, links, ..cell(8) }));
        times(rows, profile.name(), contexts_axis(), cells)
    };
    Figure {
        title: "Time to the first byte on emulated networks, one middlebox".into(),
        columns: 3,
        size: (400, 340),
        panels: Profile::ALL.map(panel).into(),
    }
}

/// One line for each mode.
fn times(
    rows: &[Row],
    title: &str,
    x: Axis,
    cells: impl IntoIterator<Item = (f64, Cell)> + Clone,
) -> Panel {
    let mut series = Vec::new();
    for (colour, mode) in MODES.into_iter().enumerate() {
        let name = mode.to_string();
        let of = |cell: Cell| find(rows, &name, "first byte", &cell.params());
        let found: Vec<(f64, &Row)> =
            cells.clone().into_iter().filter_map(|(at, cell)| Some((at, of(cell)?))).collect();
        let points = found.iter().map(|(at, row)| (*at, row.median)).collect();
        series.push(Series { name, colour, stroke: Stroke::Marked, points });
        for (at, row) in found {
            let deviation = report::deviation(row);
            let points = vec![(at, row.median - deviation), (at, row.median + deviation)];
            series.push(Series { name: String::new(), colour, stroke: Stroke::Span, points });
        }
    }
    panel(title, x, Axis::new("ms to the first byte", Scale::Linear), series)
}

fn panel(title: &str, x: Axis, y: Axis, mut series: Vec<Series>) -> Panel {
    series.retain(|series| !series.points.is_empty());
    Panel { title: title.to_owned(), x, y, series, groups: Vec::new() }
}

/// The time of downloads as a percentage over that without encryption.
fn downloads(rows: &[Row]) -> Figure {
    let at_rate = |rate: u64| {
        let mut series = Vec::new();
        for (colour, mode) in MODES.into_iter().enumerate().skip(1) {
            let point = |response: usize| {
                let at = Cell { response, ..cell(rate) }.params();
                let plain = find(rows, "plain", "last byte", &at)?.median;
                let own = find(rows, &mode.to_string(), "last byte", &at)?.median;
                Some((response as f64, 100.0 * (own / plain - 1.0)))
            };
            let points = LENGTHS.into_iter().filter_map(point).collect();
            series.push(Series { name: mode.to_string(), colour, stroke: Stroke::Marked, points });
        }
        let x = Axis::new("bytes of the file", Scale::Log);
        let y = Axis::new("% more than without encryption", Scale::Linear);
        panel(&format!("{rate} Mbit/s, 20 ms for each link"), x, y, series)
    };
    let mut rates = DOWNLOAD_RATES;
    rates.sort_unstable();
    Figure {
        title: "Time of a download through one middlebox".into(),
        columns: 2,
        size: (520, 340),
        panels: rates.map(at_rate).into(),
    }
}

/// Connections in a second of CPU time of each party, over contexts and over middleboxes.
fn rates(rows: &[Row]) -> Figure {
    let mut panels = Vec::new();
    let numbers = [1, 2, 4, 8, 16];
    for (over, cells) in [
        ("contexts", numbers.map(|contexts| (contexts, conditions(1, contexts, false)))),
        (
            "middleboxes",
            numbers.map(|middleboxes| (middleboxes, conditions(middleboxes, 4, false))),
        ),
    ] {
        for (party, metric) in
            [("client", "client CPU"), ("one middlebox", "middlebox CPU"), ("server", "server CPU")]
        {
            let subjects = [LEVADA[0], LEVADA[1], E2E, SPLIT].into_iter().enumerate();
            let line = |(colour, subject): (usize, &str)| {
                let point = |(at, params): &(usize, Params)| {
                    let row = find(rows, subject, metric, params)?;
                    Some((*at as f64, 1e6 / row.median))
                };
                let points = cells.iter().filter_map(point).collect();
                Series { name: subject.to_owned(), colour, stroke: Stroke::Marked, points }
            };
            let scale = if metric == "middlebox CPU" { Scale::Log } else { Scale::Linear };
            let y = Axis::new("connections per CPU-second", scale);
            panels.push(panel(
                party,
                Axis::powers_of_two(over, 1, 16),
                y,
                subjects.map(line).collect(),
            ));
        }
    }
    Figure {
        title: "Connections in a second of CPU time, full handshakes".into(),
        columns: 3,
        size: (400, 340),
        panels,
    }
}
