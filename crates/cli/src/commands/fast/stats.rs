//! Runs a program, and reports what its connections have carried.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use levada_monitor::Client;

use super::{child, report};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Screen, Wide, note};

/// Where the report goes.
pub enum Stats {
    /// A table to standard error.
    Table,
    /// JSON to a file.
    File(PathBuf, File),
}

impl Stats {
    /// Creates the file, if one is given: not only when the program has ended.
    pub fn new(file: Option<PathBuf>) -> Result<Self, Failure> {
        let Some(path) = file else { return Ok(Self::Table) };
        let file = File::create(&path).map_err(Failure::file("write", &path))?;
        Ok(Self::File(path, file))
    }

    /// Runs the program; returns its exit code. `monitor` has the number of the run.
    pub async fn run(self, command: &Command, monitor: Option<(Client, u64)>) -> Outcome {
        // The program runs, whatever the monitor does.
        let monitor = monitor.filter(|(monitor, run)| {
            let watched = monitor.watch(*run);
            if let Err(error) = &watched {
                note(format_args!("levada: no statistics: {error}"));
            }
            watched.is_ok()
        });
        let code = child::run(command).await?;
        // The exit code is that of the program, whatever happens to the report.
        let reported = match &monitor {
            Some((monitor, run)) => self.report(monitor, *run),
            None => Ok(()),
        };
        if let Err(failure) = reported {
            note(format_args!("levada: no statistics: {}", failure.text()));
        }
        Ok(code)
    }

    fn report(self, monitor: &Client, run: u64) -> Result<(), Failure> {
        let processes = monitor.list(run).map_err(Failure::local)?;
        match self {
            Self::Table => {
                let rows = report::rows(&processes);
                if !rows.is_empty() {
                    let lines =
                        output::lines(report::HEADING, &rows, Wide::default(), Screen::error());
                    output::note_lines(&lines);
                }
                note(report::summary(&processes));
                Ok(())
            }
            Self::File(path, mut file) => {
                let text = output::with_schema(report::json(&processes)).to_string();
                writeln!(file, "{text}").map_err(Failure::file("write", &path))
            }
        }
    }
}
