//! Pictures: drawn again from the rows, and their captions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use levada_harness::{Row, read_rows};

use super::pages::REPORTS;

/// A picture: its folder, its name, the files of its rows, what its marks are, and the rows of the
/// files that it has.
struct Picture {
    folder: &'static str,
    name: &'static str,
    rows: &'static [&'static str],
    marks: &'static str,
    is_drawn: fn(&Row) -> bool,
}

const MEDIANS: &str = "Marks are medians of the runs.";
const QUANTILES: &str = "Disc, triangle and bar are p50, p99 and p99.9 of all runs together.";

const fn picture(
    folder: &'static str,
    name: &'static str,
    rows: &'static [&'static str],
    marks: &'static str,
) -> Picture {
    Picture { folder, name, rows, marks, is_drawn: |_| true }
}

const PICTURES: [Picture; 28] = [
    picture("channels", "throughput.svg", &["throughput"], MEDIANS),
    picture("channels", "connect.svg", &["connect"], MEDIANS),
    picture("channels", "input.svg", &["input"], QUANTILES),
    picture("channels", "screens.svg", &["screens"], QUANTILES),
    picture("catalogue", "descriptor-time.svg", &["load"], "Marks are means of all repetitions."),
    picture("catalogue", "descriptor-magnified.svg", &["load"], BOUNDS),
    picture("catalogue", "descriptor-rate.svg", &["load"], MEDIANS),
    picture("catalogue", "descriptor-errors.svg", &["load"], "Marks are sums over the runs."),
    picture("catalogue", "package-time.svg", &["load"], "Marks are means of all repetitions."),
    picture("catalogue", "package-magnified.svg", &["load"], BOUNDS),
    picture("catalogue", "package-rate.svg", &["load"], MEDIANS),
    picture("catalogue", "package-errors.svg", &["load"], "Marks are sums over the runs."),
    picture("catalogue", "distribution.svg", &["load"], "Marks are quantiles of all requests."),
    picture("contexts", "first-byte.svg", &["first-byte"], FIRST_BYTE),
    picture("contexts", "networks.svg", &["first-byte"], DEVIATION),
    picture("contexts", "download.svg", &["download"], DOWNLOADS),
    picture("contexts", "connections.svg", &["connections"], MEDIANS),
    picture("sockets", "latency.svg", &["latency"], SPANS),
    picture("sockets", "throughput.svg", &["throughput"], MEDIANS),
    picture("sockets", "connections.svg", &["connections"], MEDIANS),
    picture("sockets", "cores.svg", &["cores"], MEDIANS),
    picture("sockets", "sharing.svg", &["sharing"], SPANS),
    picture("sockets", "fork.svg", &["fork"], RANGES),
    Picture {
        is_drawn: |row| !is_simulated(row),
        ..picture("swarm", "rtt.svg", &["rtt"], CLIENTS)
    },
    Picture { is_drawn: is_simulated, ..picture("swarm", "random.svg", &["rtt"], CLIENTS) },
    picture("swarm", "load.svg", &["load", "mediated"], MEDIANS),
    picture("swarm", "cache.svg", &["mediated"], MEDIANS),
    picture("swarm", "order.svg", &["order"], MEDIANS),
];
const SPANS: &str =
    "Marks are medians of the runs; thin lines are from the medians of p1 to those of p99.";
const RANGES: &str = "Discs are medians of the runs, and lines their ranges.";
const BOUNDS: &str = "Bars are 95 % bounds of the mean over all repetitions.";
const DEVIATION: &str = "Marks are medians of the runs, bars the standard deviation of the runs.";
const FIRST_BYTE: &str = "Marks are medians of the runs, bars the standard deviation of the runs. \
                          Those with 16 middleboxes are of another build than the others.";
const DOWNLOADS: &str = "Marks are quotients of medians. The longest files at 1, 8 and 10 Mbit/s \
                         are of another build and processor than the others.";
const CLIENTS: &str = "Marks are medians of the runs' means over the clients.";

fn is_simulated(row: &Row) -> bool {
    row.subject.ends_with("(simulated)")
}

/// The pictures that differ from the rows.
pub fn errors(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut errors = Vec::new();
    for (path, drawn) in drawn(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        match fs::read_to_string(&path) {
            Ok(there) if there == drawn => {}
            Ok(_) => errors.push(format!("{shown}: differs from what its rows give")),
            Err(error) => errors.push(format!("{shown}: {error}")),
        }
    }
    Ok(errors)
}

/// Draws all pictures again.
pub fn write(root: &Path) -> anyhow::Result<()> {
    for (path, drawn) in drawn(root)? {
        fs::write(&path, drawn).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The pictures of all reports, as the rows give them: drawn in copies of the folders.
fn drawn(root: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut all = Vec::new();
    for report in REPORTS {
        let folder = root.join("experiments").join(report.folder);
        let copy = tempfile::tempdir()?;
        for path in super::files::within(&folder, "jsonl")? {
            fs::copy(&path, copy.path().join(path.file_name().unwrap_or_default()))?;
        }
        (report.draw)(copy.path())?;
        for path in super::files::within(copy.path(), "svg")? {
            let drawn = fs::read_to_string(&path)?;
            all.push((folder.join(path.file_name().unwrap_or_default()), drawn));
        }
        for path in super::files::within(&folder, "svg")? {
            anyhow::ensure!(
                all.iter().any(|(drawn, _)| *drawn == path),
                "{}: no rows give this picture",
                path.display()
            );
        }
    }
    Ok(all)
}

/// The picture and its caption: what its marks are, and how many runs it has.
pub fn block(path: &Path, folder: &str, name: &str) -> anyhow::Result<String> {
    let found = PICTURES.iter().find(|one| one.folder == folder && one.name == name);
    let picture = found.with_context(|| format!("`{folder}` has no picture `{name}`"))?;
    let mut rows = Vec::new();
    for file in picture.rows {
        rows.extend(read_rows(&path.join(format!("{file}.jsonl")))?);
    }
    rows.retain(picture.is_drawn);
    let marks = picture.marks;
    let files: Vec<String> = picture.rows.iter().map(|file| format!("`{file}.jsonl`")).collect();
    let files = files.join(", ");
    let runs = runs(&rows);
    Ok(format!("\n![{name}]({name})\n\n*{marks} {runs}Rows: {files}.*\n\n"))
}

fn runs(rows: &[Row]) -> String {
    let least = rows.iter().map(|row| row.runs).min().unwrap_or_default();
    let most = rows.iter().map(|row| row.runs).max().unwrap_or_default();
    let flagged = rows.iter().filter(|row| !row.flags.is_empty()).count();
    let count = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let flagged = match flagged {
        0 => String::new(),
        _ => format!(" Flagged: {flagged} of {} rows.", rows.len()),
    };
    format!("Runs: {count}.{flagged} ")
}
