//! The measurement of an experiment's groups, each on its testbed.

use std::path::{Path, PathBuf};

use anyhow::bail;
use levada_harness::{Group, Options, Params, Row, Runner};
use levada_lab::LabError;

use crate::table::Table;
use crate::testbed::Testbed;

/// Measures the groups that have no rows yet and can be measured on this machine.
pub struct Measuring {
    runner: Runner,
    no_lab: Option<LabError>,
}

/// The result of an experiment.
#[derive(Default)]
pub struct Outcome {
    /// All rows, including those of earlier calls.
    pub rows: Vec<Row>,
    /// The number of groups left for another call.
    pub left: usize,
    /// Why groups that need a lab were left out.
    pub no_lab: Option<LabError>,
}

impl Measuring {
    /// A measurement of the experiment `name` with `groups` groups.
    pub fn new(name: &str, options: &Options, groups: usize) -> anyhow::Result<Self> {
        Ok(Self { runner: Runner::new(name, options, groups)?, no_lab: None })
    }

    /// The testbed of a group; `None` if the group has rows already, if the time limit is over, or
    /// if it needs a lab and this process is not root.
    pub fn testbed(
        &mut self,
        params: &Params,
        subjects: &[String],
        make: impl FnOnce() -> Result<Testbed, LabError>,
    ) -> anyhow::Result<Option<Testbed>> {
        if self.needs(params, subjects) { self.prepared(make()) } else { Ok(None) }
    }

    /// Whether a group still has to be measured, and there is time for it.
    pub fn needs(&mut self, params: &Params, subjects: &[String]) -> bool {
        self.runner.needs(params, subjects.iter().map(String::as_str))
    }

    /// Records the settings of a testbed; `None` if it needs a lab and this process is not root.
    pub fn prepared(
        &mut self,
        testbed: Result<Testbed, LabError>,
    ) -> anyhow::Result<Option<Testbed>> {
        match testbed {
            Ok(testbed) => {
                self.runner.note(&testbed.settings())?;
                Ok(Some(testbed))
            }
            Err(LabError::NotRoot) => {
                self.no_lab = Some(LabError::NotRoot);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Measures a group.
    pub fn group(&mut self, group: Group<'_>) -> anyhow::Result<()> {
        Ok(self.runner.measure(group)?)
    }

    /// All rows so far.
    pub fn rows(&self) -> &[Row] {
        self.runner.rows()
    }

    /// Ends the measurement.
    pub fn finish(self) -> Outcome {
        let (rows, left) = self.runner.finish();
        Outcome { rows, left, no_lab: self.no_lab }
    }
}

/// The file of an experiment's rows in `folder`.
pub fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(name.rsplit('/').next().unwrap_or(name)).with_extension("jsonl")
}

impl Outcome {
    /// This outcome and another experiment's.
    pub fn and(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        self.left += other.left;
        self.no_lab = self.no_lab.or(other.no_lab);
        self
    }

    /// Draws the figures if rows are kept, prints the table of `compare`, and reports what is
    /// missing.
    pub fn conclude(
        self,
        options: &Options,
        draw: impl FnOnce(&Path) -> anyhow::Result<()>,
        compare: impl FnOnce(&[Row]) -> Table,
    ) -> anyhow::Result<()> {
        if let Some(folder) = options.folder() {
            draw(folder)?;
        }
        let table = compare(&self.rows);
        match (table.lines.is_empty(), options.json) {
            (true, _) => {}
            (false, true) => eprint!("{table}"),
            (false, false) => levada_harness::print(&table.to_string())?,
        }
        if self.left > 0 {
            eprintln!("{} groups are left; continue with --resume DIR", self.left);
        }
        match self.no_lab {
            Some(reason) => bail!("groups that need a link of the lab were left out: {reason}"),
            None => Ok(()),
        }
    }
}
