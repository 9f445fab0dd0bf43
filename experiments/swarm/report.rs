//! The tables, computed from rows only.

use std::path::Path;

use anyhow::ensure;
use levada_harness::{Params, Row, find, ratio_row, read_rows};

use super::loss::{self, ORDERS};
use super::subject::{CONTROLLERS, Subject};
use crate::measuring::file;
use crate::table::{Table, short};
use crate::threshold::Threshold::{self, AtLeast};

/// Prints every table that the rows in `folder` allow.
pub fn print(folder: &Path) -> anyhow::Result<()> {
    let rows = read_rows(&file(folder, loss::NAME))?;
    ensure!(!rows.is_empty(), "{} has no rows of the swarm", folder.display());
    for table in [goodput(&rows), shares(&rows), cpu(&rows), targets(&rows)] {
        if !table.lines.is_empty() {
            levada_harness::print(&table.compact().to_string())?;
        }
    }
    Ok(())
}

fn goodput(rows: &[Row]) -> Table {
    let mut table = Table::new("Goodput at 1 % loss, Mbit/s", ["subject", "median", "min", "max"]);
    let of_part = |row: &&Row| row.metric == "goodput" && row.params == loss::lossy();
    for row in rows.iter().filter(of_part) {
        let values = [row.median, row.min, row.max].map(short);
        table.lines.push([format!("`{}`", row.subject)].into_iter().chain(values).collect());
    }
    table
}

/// The shares of the link beside TCP cubic, by the flow that starts first.
fn shares(rows: &[Row]) -> Table {
    let heads = ORDERS.iter().flat_map(|first| [format!("{first}: QUIC"), "TCP cubic".to_owned()]);
    let head = ["subject".to_owned()].into_iter().chain(heads);
    let mut table = Table::new("Shares of the link, by the flow that starts first", head);
    for subject in CONTROLLERS.map(Subject::ChannelQuic) {
        let cells = ORDERS.iter().flat_map(|first| {
            ["share", "TCP's share"].map(|metric| {
                let row = find(rows, &subject.to_string(), metric, &loss::shared(first));
                row.map(|row| short(row.median)).unwrap_or_default()
            })
        });
        table.lines.push([format!("`{subject}`")].into_iter().chain(cells).collect());
    }
    table.lines.retain(|line| line[1..].iter().any(|cell| !cell.is_empty()));
    table
}

fn cpu(rows: &[Row]) -> Table {
    let mut table = Table::new("On loopback", ["subject", "MB/s", "MB/cpu-s"]);
    let at = loss::loopback();
    for row in rows.iter().filter(|row| row.metric == "MB/cpu-s" && row.params == at) {
        let rate = find(rows, &row.subject, "MB/s", &at).map(|row| short(row.median));
        table.lines.push(vec![
            format!("`{}`", row.subject),
            rate.unwrap_or_default(),
            short(row.median),
        ]);
    }
    table
}

/// The comparisons with thresholds.
pub fn targets(rows: &[Row]) -> Table {
    let mut table = Table::new("Comparison with TCP", ["comparison", "target", "result"]);
    let lossy = loss::lossy();
    for subject in CONTROLLERS.map(Subject::ChannelQuic) {
        let name = subject.to_string();
        for (rival, limit) in [("tcp/cubic", AtLeast(5.0)), ("tcp/bbr", AtLeast(0.9))] {
            let of = |subject: &str| find(rows, subject, "goodput", &lossy);
            let ratio = of(&name).zip(of(rival)).and_then(|(own, rival)| ratio_row(own, rival));
            line(&mut table, format!("goodput, 1 % loss: `{name}` ÷ `{rival}`"), limit, ratio);
        }
        for first in ORDERS {
            let least = least_share(rows, &name, &loss::shared(first));
            let what = format!("the smaller share, `{name}` and `tcp/cubic`, first: {first}");
            line(&mut table, what, AtLeast(0.3), least);
        }
    }
    table
}

/// The smaller share of each run.
fn least_share(rows: &[Row], subject: &str, at: &Params) -> Option<Row> {
    let own = find(rows, subject, "share", at)?;
    let tcp = find(rows, subject, "TCP's share", at)?;
    let values = own.values.iter().zip(&tcp.values).map(|(own, tcp)| own.min(*tcp)).collect();
    let ones = Row { values: vec![1.0; own.values.len()], ..own.clone() };
    ratio_row(&Row { values, ..own.clone() }, &ones)
}

fn line(table: &mut Table, what: String, limit: Threshold, ratio: Option<Row>) {
    if let Some(ratio) = ratio {
        table.lines.push(vec![what, limit.text(), limit.evaluate(&ratio)]);
    }
}
