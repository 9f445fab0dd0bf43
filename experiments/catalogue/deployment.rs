//! A testbed with the compared servers, and one run against them.

use std::cell::RefCell;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use levada_harness::{Measured, Monitor, MonitorReport, pin};

use super::fetch;
use super::generator::{self, Plan, Statistics, Target};
use super::levada::{self, Levada};
use super::nginx;
use super::objects::{Bodies, Object};
use super::server::Server;
use crate::process_tree::ProcessTree;
use crate::testbed::Testbed;

/// A run is flagged if the p99 of the generator's lateness is above this.
const LATE: Duration = Duration::from_millis(1);
/// A run is flagged if the generator was busy for more than this share of the time, and the servers
/// for less.
const BUSY: f64 = 0.9;

/// A run is flagged, except in the long sweeps, if the hypervisor took more than this share of the
/// servers' core.
const MAX_STOLEN: f64 = 0.01;

/// The metric of the servers' CPU time per answer.
pub const CPU: &str = "server CPU";

/// The metric of the share of the servers' core that the hypervisor took (steal time).
pub const STOLEN: &str = "stolen";
/// The unit of `/proc/stat`: ticks per second (`USER_HZ`).
const TICKS: f64 = 100.0;

/// A testbed and its servers.
pub struct Deployment {
    /// The first field, so that the servers end before the testbed.
    servers: Vec<Server>,
    /// The testbed.
    pub testbed: Testbed,
}

/// The result of one run.
pub struct Run {
    /// The generator's statistics.
    pub statistics: Statistics,
    /// CPU time of all servers during the run, in seconds.
    pub cpu: f64,
    /// Steal time of the servers' core during the run, in seconds, with a resolution of 0.01 s.
    stolen: f64,
    /// The length of the run, in seconds.
    seconds: f64,
}

impl Deployment {
    /// Starts the named subjects.
    pub fn new(testbed: Testbed, subjects: &[String], levada: &Levada) -> anyhow::Result<Self> {
        let named = |name: &str| subjects.iter().any(|subject| subject == name);
        let mut servers = Vec::new();
        let mut bodies = Bodies::without_digests();
        if named(levada::NAME) {
            let server = levada.serve(&testbed, levada::NAME)?;
            bodies = Bodies::fetch(&testbed, server.address()).context("fetch the bodies")?;
            servers.push(server);
        }
        if named(nginx::NAME) {
            servers.push(nginx::files(&testbed, &bodies)?);
        }
        Ok(Self { servers, testbed })
    }

    /// The running server with this name in rows.
    pub fn server(&self, name: &str) -> anyhow::Result<&Server> {
        let found = self.servers.iter().find(|server| server.name() == name);
        found.ok_or_else(|| anyhow!("there is no subject `{name}` here"))
    }

    /// Requests for `object` to `server`; if `conditional`, with the current entity tag.
    pub fn target(
        &self,
        server: &Server,
        object: Object,
        conditional: bool,
        last: bool,
    ) -> anyhow::Result<Target> {
        fetch::target(&self.testbed, server.address(), &object.path(), conditional, last)
    }
}

/// Runs the generator at the near end, on its core, and measures the CPU time of `servers`.
pub fn run(
    testbed: &Testbed,
    servers: &[ProcessTree],
    target: &Target,
    plan: Plan,
) -> anyhow::Result<Run> {
    let cpu_time = || servers.iter().map(|server| server.cpu_seconds()).sum::<f64>();
    let before = cpu_time();
    let stolen_before = stolen_seconds();
    let begun = Instant::now();
    // A new thread is pinned, so that programs started by this one are not.
    let near = || {
        testbed.near(|| {
            pin(super::GENERATOR)?;
            generator::run(target, plan)
        })?
    };
    let statistics = thread::scope(|scope| scope.spawn(near).join());
    let statistics = statistics.map_err(|_| anyhow!("the generator panicked"))??;
    let cpu = cpu_time() - before;
    let stolen = stolen_seconds() - stolen_before;
    Ok(Run { statistics, cpu, stolen, seconds: begun.elapsed().as_secs_f64() })
}

/// The steal time of the servers' core since boot, in seconds; 0 if the kernel does not report it.
fn stolen_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    stolen_of(super::SERVERS, &text).unwrap_or(0.0)
}

/// The steal time of `core` in the text of `/proc/stat`: the eighth number of its line
/// (proc_stat(5)).
fn stolen_of(core: usize, text: &str) -> Option<f64> {
    let name = format!("cpu{core} ");
    let numbers = text.lines().find_map(|line| line.strip_prefix(name.as_str()))?;
    Some(numbers.split_whitespace().nth(7)?.parse::<f64>().ok()? / TICKS)
}

impl Run {
    /// The measurements for rows.
    pub fn measured(self, rate: Option<u32>) -> Vec<Measured> {
        let Self { statistics, cpu, stolen, seconds } = self;
        let errors = statistics.errors;
        let own = statistics.busy.share();
        let count = |number: u64| number as f64;
        let mut all = vec![
            Measured::new("response rate", "1/s", statistics.rate()),
            Measured::new("errors", "1", count(errors.all())),
            Measured::new("time-outs", "1", count(errors.timed_out)),
            Measured::new(CPU, "µs", cpu * 1e6 / count(statistics.answered.max(1))),
            Measured::new(STOLEN, "1", stolen / seconds),
            Measured::new("generator busy", "1", own),
        ];
        all.extend(rate.map(|rate| Measured::new("demanded rate", "1/s", f64::from(rate))));
        if !statistics.times.is_empty() {
            let milliseconds = |nanoseconds: f64| nanoseconds * 1e-6;
            let at = |q: f64| milliseconds(statistics.times.value_at_quantile(q) as f64);
            let mean = milliseconds(statistics.times.mean());
            all.push(Measured::new("response time mean", "ms", mean));
            all.push(Measured::new("response time p95", "ms", at(0.95)));
            all.push(Measured::new("response time p99", "ms", at(0.99)));
            all.push(Measured::milliseconds("response time", statistics.times));
        }
        all.push(Measured::milliseconds("generator lateness", statistics.lateness));
        all
    }

    /// Quantiles of the response times, each as a metric.
    pub fn distribution(&self) -> Vec<Measured> {
        let at = |q: f64| self.statistics.times.value_at_quantile(q) as f64 * 1e-6;
        let point = |&(q, name): &(f64, &'static str)| Measured::new(name, "ms", at(q));
        QUANTILES.iter().map(point).collect()
    }
}

/// The quantiles of response times that rows keep.
pub const QUANTILES: [(f64, &str); 15] = [
    (0.01, "response time q1"),
    (0.05, "response time q5"),
    (0.1, "response time q10"),
    (0.2, "response time q20"),
    (0.3, "response time q30"),
    (0.4, "response time q40"),
    (0.5, "response time q50"),
    (0.6, "response time q60"),
    (0.7, "response time q70"),
    (0.8, "response time q80"),
    (0.9, "response time q90"),
    (0.95, "response time q95"),
    (0.98, "response time q98"),
    (0.99, "response time q99"),
    (0.999, "response time q99.9"),
];

/// Why the latest run is not reliable because of the generator, if so.
#[derive(Default)]
pub struct RunFlag(RefCell<Option<String>>);

impl RunFlag {
    /// Flags a run that is not reliable.
    pub fn check(&self, run: &Run) {
        let late = Duration::from_nanos(run.statistics.lateness.value_at_quantile(0.99));
        let busy = run.statistics.busy.share();
        let servers = run.cpu / run.seconds;
        let run_flag = if busy > BUSY && servers < BUSY {
            Some(format!("the generator was busy {:.0} %", busy * 100.0))
        } else {
            let milliseconds = late.as_secs_f64() * 1e3;
            (late > LATE).then(|| format!("generator lateness p99 {milliseconds:.1} ms"))
        };
        let mut known = self.0.borrow_mut();
        *known = known.take().or(run_flag);
    }
}

/// Checks the lab, the generator and the machine in each run.
pub struct DeploymentMonitor<'a> {
    /// The lab's monitor, if there is a lab.
    pub lab: Option<Box<dyn Monitor + 'a>>,
    /// The generator's flag.
    pub run_flag: &'a RunFlag,
    /// The start of the run and the steal time at that moment in seconds; `None` to ignore steal
    /// time.
    pub machine: Option<(Instant, f64)>,
}

impl DeploymentMonitor<'_> {
    /// Why the run is not reliable because of steal time, if so.
    fn stolen_flag(&self) -> Option<String> {
        let (begun, before) = self.machine?;
        let share = (stolen_seconds() - before) / begun.elapsed().as_secs_f64();
        let percent = share * 100.0;
        (share > MAX_STOLEN)
            .then(|| format!("the hypervisor took {percent:.1} % of the servers' core"))
    }
}

impl Monitor for DeploymentMonitor<'_> {
    fn begin(&mut self) {
        self.run_flag.0.take();
        self.machine = self.machine.map(|_| (Instant::now(), stolen_seconds()));
        if let Some(lab) = &mut self.lab {
            lab.begin();
        }
    }

    fn end(&mut self) -> MonitorReport {
        let mut statistics = self.lab.as_mut().map(|lab| lab.end()).unwrap_or_default();
        statistics.flag = statistics.flag.or(self.run_flag.0.take()).or(self.stolen_flag());
        statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_that_of_one_core() {
        let text =
            "cpu  9 9 9 9 9 9 9 900 0 0\ncpu0 9 9 9 9 9 9 9 650 0 0\ncpu1 9 9 9 9 9 9 9 250 7 7\n";
        assert_eq!(stolen_of(1, text), Some(2.5));
        assert_eq!(stolen_of(2, text), None);
        assert_eq!(stolen_of(0, "cpu0 1 2 3\n"), None);
    }

    #[test]
    fn a_run_with_much_steal_time_is_flagged() {
        let begun = Instant::now() - Duration::from_secs(60);
        let watch = |machine| {
            DeploymentMonitor { lab: None, run_flag: &RunFlag::default(), machine }.stolen_flag()
        };
        assert_eq!(watch(None), None);
        assert_eq!(watch(Some((begun, stolen_seconds()))), None);
        assert!(watch(Some((begun, stolen_seconds() - 5.0))).is_some());
    }
}
