//! The groups of one experiment, each at its place.

use levada_harness::{Group, Options, Params, Row, Runner};
use levada_lab::LabError;

use super::place::Place;

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
        if !self.runner.wants(params, subjects.iter().map(String::as_str)) {
            return Ok(None);
        }
        match make() {
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

    /// That was all.
    pub fn finish(self) -> Outcome {
        let (rows, left) = self.runner.finish();
        Outcome { rows, left, no_lab: self.no_lab }
    }
}

impl Outcome {
    /// This one and what another experiment gave.
    pub fn and(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        self.left += other.left;
        self.no_lab = self.no_lab.or(other.no_lab);
        self
    }
}
