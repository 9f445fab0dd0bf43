//! The groups of the experiment, each at its site.

use std::rc::Rc;
use std::time::{Duration, Instant};

use levada_harness::{Case, Group, Options, Params, Row, Witness};

use super::NAME;
use super::family::Family;
use super::generator::{Plan, Target};
use super::levada::Levada;
use super::site::{self, Doubt, Site, Watch};
use super::sweep;
use crate::measuring::{Measuring, Outcome};
use crate::place::Place;

/// What all parts of the experiment need.
pub struct Bench {
    /// The binary that is measured.
    pub levada: Rc<Levada>,
    /// Which of the usual subjects.
    pub subjects: Vec<String>,
    /// Fewer conditions and shorter runs.
    pub quick: bool,
    measuring: Measuring,
    /// The round trip in µs of the latest site.
    latest: Option<(u64, Option<Rc<Site>>)>,
}

impl Bench {
    /// With about so many `groups` to come.
    pub fn new(
        levada: Levada,
        subjects: Vec<String>,
        options: &Options,
        groups: usize,
    ) -> anyhow::Result<Self> {
        let measuring = Measuring::new(NAME, options, groups)?;
        let levada = Rc::new(levada);
        Ok(Self { levada, subjects, quick: options.quick, measuring, latest: None })
    }

    /// Whether a group still has to be measured.
    pub fn wants(&mut self, params: &Params, subjects: &[String]) -> bool {
        self.measuring.wants(params, subjects)
    }

    /// All rows so far.
    pub fn rows(&self) -> &[Row] {
        self.measuring.rows()
    }

    /// A place with the usual subjects; they run until a place with another round trip is asked for. None if that needs
    /// a lab and there can be none.
    pub fn site(&mut self, rtt_us: u64) -> anyhow::Result<Option<Rc<Site>>> {
        if let Some((_, site)) = self.latest.as_ref().filter(|(rtt, _)| *rtt == rtt_us) {
            return Ok(site.clone());
        }
        // What runs elsewhere ends before anything else begins.
        self.latest = None;
        let place = Place::with_round_trip(Duration::from_micros(rtt_us));
        let site = match self.measuring.made(place)? {
            Some(place) => Some(Rc::new(Site::new(place, &self.subjects, &self.levada)?)),
            None => None,
        };
        self.latest = Some((rtt_us, site.clone()));
        Ok(site)
    }

    /// Measures a group of subjects at a site, unless it is there already or there can be no site.
    pub fn side_by_side(
        &mut self,
        rtt_us: u64,
        params: Params,
        subjects: &[String],
        case: impl for<'a> Fn(&'a Site, &'a Doubt, &'a str) -> anyhow::Result<Case<'a>>,
    ) -> anyhow::Result<()> {
        if !self.wants(&params, subjects) {
            return Ok(());
        }
        let Some(site) = self.site(rtt_us)? else { return Ok(()) };
        let doubt = Doubt::default();
        let cases = subjects.iter().map(|name| case(&site, &doubt, name));
        let cases = cases.collect::<anyhow::Result<Vec<_>>>()?;
        self.measure(&site.place, &doubt, params, cases)
    }

    /// Measures a group.
    pub fn measure(
        &mut self,
        place: &Place,
        doubt: &Doubt,
        params: Params,
        cases: Vec<Case<'_>>,
    ) -> anyhow::Result<()> {
        let judged = params.get("part") != Some(&sweep::PART.into());
        let machine = judged.then(|| (Instant::now(), 0.0));
        let watch = Watch { lab: place.witness(), doubt, machine };
        let watch: Box<dyn Witness + '_> = Box::new(watch);
        self.measuring.group(Group { experiment: NAME, params, cases, witness: Some(watch) })
    }

    /// That was all.
    pub fn finish(self) -> Outcome {
        self.measuring.finish()
    }
}

/// One subject, and how it is asked in every run.
pub struct Job {
    /// Its name in rows.
    pub name: String,
    /// What costs CPU time for it.
    pub servers: Vec<Family>,
    /// What it is asked for.
    pub target: Target,
    /// How.
    pub plan: Plan,
    /// The same for the run that does not count, and need not last.
    pub first: Plan,
    /// How often in each run; each time gives values of its own.
    pub repeats: usize,
    /// Whether the distribution of response times goes to rows.
    pub distribution: bool,
}

impl Job {
    /// Asked in the same way each time.
    pub fn new(name: &str, servers: Vec<Family>, target: Target, plan: Plan) -> Self {
        let name = name.to_owned();
        Self { name, servers, target, plan, first: plan, repeats: 1, distribution: false }
    }

    /// A case of a group.
    pub fn case<'a>(self, place: &'a Place, doubt: &'a Doubt) -> Case<'a> {
        let mut next = (self.first, 1);
        Case::new(self.name.clone(), move || {
            let (plan, repeats) = std::mem::replace(&mut next, (self.plan, self.repeats));
            let mut measured = Vec::new();
            for _ in 0..repeats {
                let run = site::run(place, &self.servers, &self.target, plan)?;
                doubt.consider(&run);
                if self.distribution {
                    measured.extend(run.distribution());
                }
                measured.extend(run.measured(plan.load.rate()));
            }
            Ok(measured)
        })
    }
}
