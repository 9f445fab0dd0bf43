//! The groups of one experiment, each at its place.

use std::path::{Path, PathBuf};

use anyhow::bail;
use levada_harness::{Group, Options, Params, Row, Runner};
use levada_lab::LabError;

use crate::place::Place;
use crate::table::Table;

/// Measures what is not there yet and can be measured here.
pub struct Measuring {
    runner: Runner,
    no_lab: Option<LabError>,
}

/// What there is when an experiment ends.
#[derive(Default)]
pub struct Outcome {
    /// Every row, those of earlier calls included.
    pub rows: Vec<Row>,
    /// How many groups were left for another call.
    pub left: usize,
    /// Why some groups could not be measured here.
    pub no_lab: Option<LabError>,
}

impl Measuring {
    /// For the experiment `name`, with `groups` groups to come.
    pub fn new(name: &str, options: &Options, groups: usize) -> anyhow::Result<Self> {
        Ok(Self { runner: Runner::new(name, options, groups)?, no_lab: None })
    }

    /// Where to measure a group; None if it is there already, if it is too late, or if it needs a lab and there can
    /// be none.
    pub fn place(
        &mut self,
        params: &Params,
        subjects: &[String],
        make: impl FnOnce() -> Result<Place, LabError>,
    ) -> anyhow::Result<Option<Place>> {
        if self.wants(params, subjects) { self.made(make()) } else { Ok(None) }
    }

    /// Whether a group still has to be measured, and there is time for it.
    pub fn wants(&mut self, params: &Params, subjects: &[String]) -> bool {
        self.runner.wants(params, subjects.iter().map(String::as_str))
    }

    /// Records what a place is; None if it needs a lab and there can be none.
    pub fn made(&mut self, place: Result<Place, LabError>) -> anyhow::Result<Option<Place>> {
        match place {
            Ok(place) => {
                self.runner.note(&place.settings())?;
                Ok(Some(place))
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

    /// That was all.
    pub fn finish(self) -> Outcome {
        let (rows, left) = self.runner.finish();
        Outcome { rows, left, no_lab: self.no_lab }
    }
}

/// Where the rows of an experiment are kept.
pub fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(name.rsplit('/').next().unwrap_or(name)).with_extension("jsonl")
}

impl Outcome {
    /// This one and what another experiment gave.
    pub fn and(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        self.left += other.left;
        self.no_lab = self.no_lab.or(other.no_lab);
        self
    }

    /// Draws the figures where rows are kept, shows what `compare` says of the rows, and what is missing.
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
            (false, false) => print!("{table}"),
        }
        if self.left > 0 {
            eprintln!("{} groups are left for another call: give --resume DIR", self.left);
        }
        match self.no_lab {
            Some(reason) => bail!("what needs a link of the lab was left out: {reason}"),
            None => Ok(()),
        }
    }
}
