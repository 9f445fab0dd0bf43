//! One file to several clients, each on a link of its own: Levada beside libtorrent, and nginx with
//! curl. Whole programs.

mod counters;
mod point;
mod scene;
mod subjects;

use std::sync::Mutex;

use clap::Args;
use levada_harness::{Case, Group, Options};
use levada_lab::LabError;

use crate::measuring::{Measuring, Outcome};
pub use point::{LEVADA, LIBTORRENT, MEDIATED, Point, TUNED};
use scene::Scene;

/// The experiment's name in rows.
pub const NAME: &str = "swarm/links";

/// What to measure.
#[derive(Args)]
pub struct Arguments {
    /// How to measure.
    #[command(flatten)]
    pub options: Options,

    /// Only these scenarios: equal, short, uneven, unreachable, blackout
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    scenario: Vec<String>,

    /// Only these subjects, by their names in rows
    #[arg(long, value_name = "NAME")]
    subject: Vec<String>,
}

impl Arguments {
    /// All scenarios and subjects.
    pub fn all(options: Options) -> Self {
        Self { options, scenario: Vec::new(), subject: Vec::new() }
    }

    fn points(&self) -> Vec<Point> {
        let is_chosen = |point: &Point| {
            self.scenario.is_empty() || self.scenario.iter().any(|name| name == point.name())
        };
        Point::all(self.options.quick).into_iter().filter(is_chosen).collect()
    }

    fn is_chosen(&self, subject: &String) -> bool {
        self.subject.is_empty() || self.subject.contains(subject)
    }
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let points = arguments.points();
    let mut measuring = Measuring::new(NAME, &arguments.options, points.len())?;
    let has_libtorrent = subjects::has_libtorrent();
    for point in points {
        let at = point.conditions();
        let mut subjects = point.subjects();
        let can_run = |subject: &String| has_libtorrent || !subject.starts_with(LIBTORRENT);
        subjects.retain(|subject| can_run(subject) && arguments.is_chosen(subject));
        if subjects.is_empty() || !measuring.needs(&at, &subjects) {
            continue;
        }
        let scene = match Scene::new(point).map_err(anyhow::Error::downcast::<LabError>) {
            Ok(scene) => Mutex::new(scene),
            Err(Ok(LabError::NotRoot)) => {
                let outcome = measuring.finish();
                return Ok(Outcome { no_lab: Some(LabError::NotRoot), ..outcome });
            }
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(error)) => return Err(error),
        };
        let scene = &scene;
        let case = |subject: &String| {
            let name = subject.clone();
            Case::new(subject.clone(), move || {
                let scene = scene.lock().map_err(|_| "an earlier run has failed")?;
                Ok(scene.measure(&name)?)
            })
        };
        let cases = subjects.iter().map(case).collect();
        measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
    }
    Ok(measuring.finish())
}
