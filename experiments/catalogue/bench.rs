//! The groups of the experiment, each on its deployment.

use std::rc::Rc;
use std::time::{Duration, Instant};

use levada_harness::{Case, Group, Monitor, Options, Params, Row};

use super::NAME;
use super::deployment::{self, Deployment, DeploymentMonitor, RunFlag};
use super::generator::{Plan, Target};
use super::levada::Levada;
use super::sweep;
use crate::measuring::{Measuring, Outcome};
use crate::process_tree::ProcessTree;
use crate::testbed::Testbed;

/// The state shared by all parts of the experiment.
pub struct Bench {
    /// The measured binary.
    pub levada: Rc<Levada>,
    /// The selected subjects: `levada`, `nginx` or both.
    pub subjects: Vec<String>,
    /// Whether to measure fewer conditions in shorter runs.
    pub quick: bool,
    measuring: Measuring,
    /// The latest deployment and its round trip in µs.
    latest: Option<(u64, Option<Rc<Deployment>>)>,
}

impl Bench {
    /// A bench for about `groups` groups.
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
    pub fn needs(&mut self, params: &Params, subjects: &[String]) -> bool {
        self.measuring.needs(params, subjects)
    }

    /// All rows so far.
    pub fn rows(&self) -> &[Row] {
        self.measuring.rows()
    }

    /// The deployment with this round trip, which runs until one with another round trip is
    /// requested. `None` if it needs a lab and this process is not root.
    pub fn deployment(&mut self, rtt_us: u64) -> anyhow::Result<Option<Rc<Deployment>>> {
        if let Some((_, deployment)) = self.latest.as_ref().filter(|(rtt, _)| *rtt == rtt_us) {
            return Ok(deployment.clone());
        }
        // Ends the servers of the previous deployment first.
        self.latest = None;
        let testbed = Testbed::with_round_trip(Duration::from_micros(rtt_us));
        let deployment = match self.measuring.prepared(testbed)? {
            Some(testbed) => Some(Rc::new(Deployment::new(testbed, &self.subjects, &self.levada)?)),
            None => None,
        };
        self.latest = Some((rtt_us, deployment.clone()));
        Ok(deployment)
    }

    /// Measures a group of subjects on a deployment, unless it has rows already or there can be no
    /// deployment.
    pub fn measure_subjects(
        &mut self,
        rtt_us: u64,
        params: Params,
        subjects: &[String],
        case: impl for<'a> Fn(&'a Deployment, &'a RunFlag, &'a str) -> anyhow::Result<Case<'a>>,
    ) -> anyhow::Result<()> {
        if !self.needs(&params, subjects) {
            return Ok(());
        }
        let Some(deployment) = self.deployment(rtt_us)? else { return Ok(()) };
        let run_flag = RunFlag::default();
        let cases = subjects.iter().map(|name| case(&deployment, &run_flag, name));
        let cases = cases.collect::<anyhow::Result<Vec<_>>>()?;
        self.measure(&deployment.testbed, &run_flag, params, cases)
    }

    /// Measures a group.
    pub fn measure(
        &mut self,
        testbed: &Testbed,
        run_flag: &RunFlag,
        params: Params,
        cases: Vec<Case<'_>>,
    ) -> anyhow::Result<()> {
        let checks_machine = params.get("part") != Some(&sweep::PART.into());
        let machine = checks_machine.then(|| (Instant::now(), 0.0));
        let monitor = DeploymentMonitor { lab: testbed.monitor(), run_flag, machine };
        let monitor: Box<dyn Monitor + '_> = Box::new(monitor);
        self.measuring.group(Group { experiment: NAME, params, cases, monitor: Some(monitor) })
    }

    /// Ends the experiment.
    pub fn finish(self) -> Outcome {
        self.measuring.finish()
    }
}

/// One subject and its requests.
pub struct Job {
    /// Its name in rows.
    pub name: String,
    /// The processes whose CPU time counts.
    pub servers: Vec<ProcessTree>,
    /// The requests and their server.
    pub target: Target,
    /// The plan of a run.
    pub plan: Plan,
    /// The plan of the warm-up run, which may be shorter.
    pub first: Plan,
    /// How many times each run repeats the plan; each repetition gives values of its own.
    pub repeats: usize,
    /// Whether rows keep the distribution of response times.
    pub distribution: bool,
}

impl Job {
    /// A job with one repetition per run.
    pub fn new(name: &str, servers: Vec<ProcessTree>, target: Target, plan: Plan) -> Self {
        let name = name.to_owned();
        Self { name, servers, target, plan, first: plan, repeats: 1, distribution: false }
    }

    /// A case of a group.
    pub fn case<'a>(self, testbed: &'a Testbed, run_flag: &'a RunFlag) -> Case<'a> {
        let mut next = (self.first, 1);
        Case::new(self.name.clone(), move || {
            let (plan, repeats) = std::mem::replace(&mut next, (self.plan, self.repeats));
            let mut measured = Vec::new();
            for _ in 0..repeats {
                let run = deployment::run(testbed, &self.servers, &self.target, plan)?;
                run_flag.check(&run);
                if self.distribution {
                    measured.extend(run.distribution());
                }
                measured.extend(run.measured(plan.load.rate()));
            }
            Ok(measured)
        })
    }
}
