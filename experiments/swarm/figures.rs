//! Figures 5 to 8 of "Trickle: A PSP File Sharing Protocol", drawn from rows only.

use std::path::Path;

use levada_harness::{Axis, Figure, Panel, Row, Scale, Series, Stroke, find, read_rows};

use super::rtt::{CHUNKS, Variant};
use super::simulated::{BLOCKS, LOAD, ORDER, STRIPES, Swap};
use super::{mediated, rtt};
use crate::measuring::file;

/// The width and height of a panel in pixels.
const SIZE: (u32, u32) = (520, 340);

/// Draws the figures of all experiments with rows in `folder`, into that folder.
pub fn draw(folder: &Path) -> anyhow::Result<()> {
    let read = |name: &str| read_rows(&file(folder, name));
    let of_rtt = read(rtt::NAME)?;
    let figures = [
        ("rtt.svg", round_trips(&of_rtt)),
        ("random.svg", random(&of_rtt)),
        ("load.svg", load(&read(LOAD.name)?, &read(mediated::NAME)?)),
        ("cache.svg", cache(&read(mediated::NAME)?)),
        ("order.svg", order(&read(ORDER.name)?)),
    ];
    for (path, mut figure) in figures {
        figure
            .panels
            .iter_mut()
            .for_each(|panel| panel.series.retain(|one| !one.points.is_empty()));
        figure.panels.retain(|panel| !panel.series.is_empty());
        if !figure.panels.is_empty() {
            figure.draw(&folder.join(path))?;
        }
    }
    Ok(())
}

fn figure(title: &str, columns: usize, panels: Vec<Panel>) -> Figure {
    Figure { title: title.to_owned(), columns, size: SIZE, panels }
}

fn panel(title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
    Panel { title: title.to_owned(), x, y, series, groups: Vec::new() }
}

/// The mean over the clients, for each chunk.
fn of_chunks(rows: &[Row], variant: Variant, (name, colour): (&str, usize)) -> Series {
    let at = variant.conditions();
    let subject = variant.subject();
    let point = |chunk: u32| {
        let row = find(rows, &subject, &format!("chunk {chunk}"), &at)?;
        Some((f64::from(chunk), row.median))
    };
    let points = (0..CHUNKS).filter_map(point).collect();
    Series { name: name.to_owned(), colour, stroke: Stroke::Marked, points }
}

fn chunk_panel(title: &str, series: Vec<Series>) -> Panel {
    let y = Axis::new("ms from request to arrival", Scale::Linear);
    panel(title, Axis::new("chunk", Scale::Linear), y, series)
}

/// Figure 5.
fn round_trips(rows: &[Row]) -> Figure {
    let of = |swap: Swap| {
        let line = |(colour, blocks): (usize, bool)| {
            let name = if blocks { "blocks, as in the paper" } else { "stripes" };
            of_chunks(rows, Variant { swap, blocks, random: false }, (name, colour))
        };
        let (control, data) = swap.names();
        let series = [false, true].into_iter().enumerate().map(line).collect();
        chunk_panel(&format!("control {control}, data {data}"), series)
    };
    let title = "Time of each chunk, mean of five clients; sequential requests, real sockets";
    figure(title, 2, [Swap::ControlByUdp, Swap::ControlByTcp].map(of).into())
}

/// Figure 8, which exists in the simulator only.
fn random(rows: &[Row]) -> Figure {
    let of = |(blocks, title): (bool, &str)| {
        let line = |(colour, random): (usize, bool)| {
            let name = if random { "random" } else { "sequential" };
            let swap = Swap::None;
            of_chunks(rows, Variant { swap, blocks, random }, (name, colour))
        };
        chunk_panel(title, [false, true].into_iter().enumerate().map(line).collect())
    };
    let title = "Time of each chunk, mean of five clients, by the order of requests (simulated)";
    figure(title, 2, [(false, "stripes"), (true, "blocks, as in the paper")].map(of).into())
}

/// The medians of a metric over a parameter, of the rows that `is` selects.
fn over(rows: &[Row], metric: &str, key: &str, is: impl Fn(&Row) -> bool) -> Vec<(f64, f64)> {
    let own = rows.iter().filter(|row| row.metric == metric && is(row));
    own.filter_map(|row| Some((row.number(key)?, row.median))).collect()
}

/// Figure 6.
fn load(simulated: &[Row], real: &[Row]) -> Figure {
    let metrics = ["time after distribution", "time"];
    let panels = metrics.map(|metric| {
        let line = |name: &str, colour, points| Series {
            name: name.to_owned(),
            colour,
            stroke: Stroke::Marked,
            points,
        };
        let own = over(simulated, metric, "peers", |row| row.subject == STRIPES);
        let sockets = over(real, metric, "peers", |row| {
            row.subject == mediated::VERIFYING && mediated::is_of_file(row)
        });
        let series = vec![
            line("links of 100 Mbit/s, cache of 100 chunks (simulated)", 0, own),
            line("loopback, cache of 64 chunks (real sockets)", 1, sockets),
        ];
        let x = Axis::new("clients", Scale::Log);
        panel(metric, x, Axis::new("s", Scale::Log), series)
    });
    figure("Mediated mode over the number of clients, 10 MB", 2, panels.into())
}

/// Figure 7, with real sockets. The simulator gives the same time with every cache.
fn cache(rows: &[Row]) -> Figure {
    let panels = ["time after distribution", "fetches ÷ chunks"].map(|metric| {
        let points = over(rows, metric, "cache", mediated::is_of_large);
        let name = "50 clients, loopback (real sockets)".to_owned();
        let series = vec![Series { name, colour: 0, stroke: Stroke::Disc, points }];
        let y = Axis::new(if metric == "fetches ÷ chunks" { "" } else { "s" }, Scale::Linear);
        panel(metric, Axis::new("chunks in the cache", Scale::Linear), y, series)
    });
    let bytes =
        rows.iter().filter(|row| mediated::is_of_large(row)).find_map(|row| row.number("bytes"));
    let chunks = bytes.unwrap_or_default() / 1024.0;
    figure(&format!("Mediated mode over the cache, {chunks} chunks of 1 KiB"), 2, panels.into())
}

/// Random against sequential order, over cache ÷ file.
fn order(rows: &[Row]) -> Figure {
    // Time is not drawn: unless the cache has one chunk, it is the bound of the uplink.
    let panels = ["fetches ÷ chunks"].map(|metric| {
        let mut series = Vec::new();
        for (colour, (subject, placement)) in
            [(STRIPES, "stripes"), (BLOCKS, "blocks")].into_iter().enumerate()
        {
            for (is_random, stroke) in [(false, Stroke::Marked), (true, Stroke::Dashed)] {
                let is = |row: &Row| {
                    row.subject == subject && row.params.contains_key("order") == is_random
                };
                let chunks = rows.iter().find_map(|row| row.number("chunks")).unwrap_or(1.0);
                let points = over(rows, metric, "cache", is).into_iter();
                let points = points.map(|(cache, value)| (cache / chunks, value)).collect();
                let order = if is_random { "random" } else { "sequential" };
                series.push(Series {
                    name: format!("{placement}, {order}"),
                    colour,
                    stroke,
                    points,
                });
            }
        }
        panel(metric, Axis::new("cache ÷ file", Scale::Log), Axis::new("", Scale::Log), series)
    });
    figure("Sequential and random requests of 50 clients (simulated)", 1, panels.into())
}
