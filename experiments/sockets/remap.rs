//! Copying long messages through shared memory, against remapping their pages.

use std::env;
use std::process::Command;

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, Row, find, params, ratio_row};

use crate::binary::build;
use crate::measuring::Measuring;
use crate::table::{Table, median};

/// The experiment's name in rows.
pub const NAME: &str = "sockets/remap";
/// How a message is moved, as the program is told.
const SUBJECTS: [&str; 3] = ["copy", "remap", "read"];
const TIME: &str = "time";
/// Bytes of a message.
const LENGTHS: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Measures all lengths.
pub fn run(options: &Options) -> anyhow::Result<()> {
    build(&["--package", "levada-ring", "--example", "remapping"])?;
    let mut measuring = Measuring::new(NAME, options, LENGTHS.len())?;
    let names = SUBJECTS.map(str::to_owned);
    for bytes in LENGTHS {
        let at = conditions(bytes);
        if measuring.needs(&at, &names) {
            let cases = SUBJECTS.map(|how| Case::new(how, move || Ok(one(how, bytes)?))).into();
            measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
        }
    }
    measuring.finish().conclude(options, |_| Ok(()), table)
}

fn conditions(bytes: usize) -> Params {
    params([("bytes", bytes.into())])
}

/// The program is an example of the crate `ring`, where mappings may be made.
fn one(how: &str, bytes: usize) -> anyhow::Result<Vec<Measured>> {
    let program = env::current_exe()?.with_file_name("examples").join("remapping");
    let output = Command::new(&program).args([how, &bytes.to_string()]).output();
    let output = output.with_context(|| format!("run {}", program.display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let time: f64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(vec![Measured::new(TIME, "µs", time / 1e3)])
}

/// The times over the length.
pub fn table(rows: &[Row]) -> Table {
    let head = ["bytes", "copied, µs", "remapped, µs", "remapped and read, µs"];
    let ratios = ["copied ÷ remapped", "copied ÷ remapped and read"];
    let mut table = Table::new("Messages moved within a process", head.into_iter().chain(ratios));
    for bytes in LENGTHS {
        let at = conditions(bytes);
        let [copied, remapped, read] = SUBJECTS.map(|how| find(rows, how, TIME, &at));
        let Some(copied) = copied else { continue };
        let value = |row: Option<&Row>| row.map_or(String::new(), median);
        let ratio = |row: Option<&Row>| {
            let ratio = row.and_then(|row| ratio_row(copied, row));
            ratio.map_or(String::new(), |ratio| median(&ratio))
        };
        let times = [value(Some(copied)), value(remapped), value(read)];
        let ratios = [ratio(remapped), ratio(read)];
        table.lines.push([bytes.to_string()].into_iter().chain(times).chain(ratios).collect());
    }
    table
}
