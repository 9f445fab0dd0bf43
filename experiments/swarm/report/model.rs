//! What the time in direct mode would be with more peers than are simulated.

use levada_harness::{Row, fit_line};

use super::super::simulated::DIRECT;
use crate::table::{Table, short};

/// The number of peers of the model.
const PEERS: f64 = 1e6;

/// The line through the medians over the logarithm of the peers, for each number of chunks: a
/// model, not a measurement.
pub fn model(rows: &[Row]) -> Table {
    let head = [
        "chunks",
        "time without peers, s",
        "each tenfold, s",
        "residuals, s",
        "1,000,000 peers, s",
    ];
    let mut table = Table::new("Model of direct mode: a line over log₁₀ of the peers", head);
    let times = rows.iter().filter(|row| row.subject == DIRECT && row.metric == "time");
    let mut chunks: Vec<u64> = times.clone().filter_map(chunks_of).collect();
    chunks.dedup();
    for chunks in chunks {
        let of_chunks = times.clone().filter(|row| chunks_of(row) == Some(chunks));
        let point = |row: &Row| Some((row.number("peers")?.log10(), row.median));
        let points: Vec<(f64, f64)> = of_chunks.filter_map(point).collect();
        let Some((start, slope)) = fit_line(&points) else { continue };
        let at = |x: f64| start + slope * x;
        let residuals: Vec<String> =
            points.iter().map(|(x, y)| format!("{:+.3}", y - at(*x))).collect();
        let cells = [short(start), short(slope), residuals.join(" "), short(at(PEERS.log10()))];
        table.lines.push([chunks.to_string()].into_iter().chain(cells).collect());
    }
    table
}

fn chunks_of(row: &Row) -> Option<u64> {
    row.params.get("chunks")?.as_u64()
}
