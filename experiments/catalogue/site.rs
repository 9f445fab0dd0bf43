//! A place with the servers that are compared there.

use std::cell::RefCell;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use levada_harness::{Attested, Measured, Witness, pin};

use super::family::Family;
use super::fetch;
use super::generator::{self, Plan, Seen, Target};
use super::levada::{self, Levada};
use super::nginx;
use super::objects::{Bodies, Object};
use super::server::Server;
use crate::place::Place;

/// A run is doubted if the generator's own lateness has a p99 above this.
const LATE: Duration = Duration::from_millis(1);
/// It is doubted, too, if the generator was busy for more than this share of the time, and the servers for less.
const BUSY: f64 = 0.9;

/// Except in sweeps, which are long, it is doubted if more than this share of the servers' core was taken away meanwhile.
const TAKEN: f64 = 0.01;

/// The metric of what answers cost the servers.
pub const CPU: &str = "server CPU";

/// The metric of how much of the servers' core the hypervisor gave to others.
pub const STOLEN: &str = "stolen";
/// Of the numbers of `/proc/stat`, per second (`USER_HZ`).
const TICKS: f64 = 100.0;

/// A place, and what runs there.
pub struct Site {
    /// Dropped before the place.
    servers: Vec<Server>,
    /// Where it is.
    pub place: Place,
}

/// What one run gave.
pub struct Run {
    /// What the generator saw.
    pub seen: Seen,
    /// CPU time of all servers meanwhile, in seconds.
    pub cpu: f64,
    /// For how long the servers' core was taken away meanwhile, in seconds, good to a hundredth.
    stolen: f64,
    /// How long it took, in seconds.
    seconds: f64,
}

impl Site {
    /// Starts those of the usual subjects that are named.
    pub fn new(place: Place, subjects: &[String], levada: &Levada) -> anyhow::Result<Self> {
        let named = |name: &str| subjects.iter().any(|subject| subject == name);
        let mut servers = Vec::new();
        let mut bodies = Bodies::without_digests();
        if named(levada::NAME) {
            let server = levada.serve(&place, levada::NAME)?;
            bodies = Bodies::of(&place, server.address()).context("what the catalogue answers")?;
            servers.push(server);
        }
        if named(nginx::NAME) {
            servers.push(nginx::files(&place, &bodies)?);
        }
        Ok(Self { servers, place })
    }

    /// A running server, by its name in rows.
    pub fn server(&self, name: &str) -> anyhow::Result<&Server> {
        let found = self.servers.iter().find(|server| server.name() == name);
        found.ok_or_else(|| anyhow!("there is no subject `{name}` here"))
    }

    /// Requests for `object`, to `server`; if they are `conditional`, with the tag of what it is now.
    pub fn target(
        &self,
        server: &Server,
        object: Object,
        conditional: bool,
        last: bool,
    ) -> anyhow::Result<Target> {
        fetch::target(&self.place, server.address(), &object.path(), conditional, last)
    }
}

/// Asks from the near end, on the generator's core, and tells what it cost `servers`.
pub fn run(place: &Place, servers: &[Family], target: &Target, plan: Plan) -> anyhow::Result<Run> {
    let cost = || servers.iter().map(|server| server.cpu_seconds()).sum::<f64>();
    let (before, taken, begun) = (cost(), stolen_seconds(), Instant::now());
    // A thread of its own is pinned, so that what this one starts is not.
    let near = || {
        place.near(|| {
            pin(super::GENERATOR)?;
            generator::run(target, plan)
        })?
    };
    let seen = thread::scope(|scope| scope.spawn(near).join());
    let seen = seen.map_err(|_| anyhow!("the generator panicked"))??;
    let (cpu, stolen) = (cost() - before, stolen_seconds() - taken);
    Ok(Run { seen, cpu, stolen, seconds: begun.elapsed().as_secs_f64() })
}

/// For how long the servers' core has been somebody else's since the machine started; 0 where nobody says.
fn stolen_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    stolen_of(super::SERVERS, &text).unwrap_or(0.0)
}

/// A core's line begins with its name; the eighth number behind that is its `steal` (proc_stat(5)).
fn stolen_of(core: usize, text: &str) -> Option<f64> {
    let name = format!("cpu{core} ");
    let numbers = text.lines().find_map(|line| line.strip_prefix(name.as_str()))?;
    Some(numbers.split_whitespace().nth(7)?.parse::<f64>().ok()? / TICKS)
}

impl Run {
    /// All that goes to rows.
    pub fn measured(self, rate: Option<u32>) -> Vec<Measured> {
        let Self { seen, cpu, stolen, seconds } = self;
        let (errors, own) = (seen.errors, seen.busy.share());
        let count = |number: u64| number as f64;
        let mut all = vec![
            Measured::new("response rate", "1/s", seen.rate()),
            Measured::new("errors", "1", count(errors.all())),
            Measured::new("time-outs", "1", count(errors.timed_out)),
            Measured::new(CPU, "µs", cpu * 1e6 / count(seen.answered.max(1))),
            Measured::new(STOLEN, "1", stolen / seconds),
            Measured::new("generator busy", "1", own),
        ];
        all.extend(rate.map(|rate| Measured::new("demanded rate", "1/s", f64::from(rate))));
        if !seen.times.is_empty() {
            let milliseconds = |nanoseconds: f64| nanoseconds * 1e-6;
            let at = |q: f64| milliseconds(seen.times.value_at_quantile(q) as f64);
            let mean = milliseconds(seen.times.mean());
            all.push(Measured::new("response time mean", "ms", mean));
            all.push(Measured::new("response time p95", "ms", at(0.95)));
            all.push(Measured::new("response time p99", "ms", at(0.99)));
            all.push(Measured::milliseconds("response time", seen.times));
        }
        all.push(Measured::milliseconds("generator lateness", seen.lateness));
        all
    }

    /// Points of the distribution of response times, as metrics of their own.
    pub fn distribution(&self) -> Vec<Measured> {
        let at = |q: f64| self.seen.times.value_at_quantile(q) as f64 * 1e-6;
        let point = |&(q, name): &(f64, &'static str)| Measured::new(name, "ms", at(q));
        QUANTILES.iter().map(point).collect()
    }
}

/// The points of a distribution that rows keep.
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

/// What speaks against the run that was just made, because of the generator.
#[derive(Default)]
pub struct Doubt(RefCell<Option<String>>);

impl Doubt {
    /// Judges a run.
    pub fn consider(&self, run: &Run) {
        let late = Duration::from_nanos(run.seen.lateness.value_at_quantile(0.99));
        let (busy, servers) = (run.seen.busy.share(), run.cpu / run.seconds);
        let doubt = if busy > BUSY && servers < BUSY {
            Some(format!("the generator was busy {:.0} %", busy * 100.0))
        } else {
            let milliseconds = late.as_secs_f64() * 1e3;
            (late > LATE).then(|| format!("generator lateness p99 {milliseconds:.1} ms"))
        };
        let mut known = self.0.borrow_mut();
        *known = known.take().or(doubt);
    }
}

/// Says of each run whether the lab and the generator kept their word.
pub struct Watch<'a> {
    /// The lab's, if there is one.
    pub lab: Option<Box<dyn Witness + 'a>>,
    /// The generator's.
    pub doubt: &'a Doubt,
    /// Where the machine has a say: when the run began, and for how long the servers' core had been taken away then.
    pub machine: Option<(Instant, f64)>,
}

impl Watch<'_> {
    /// What speaks against the run because of the machine.
    fn taken(&self) -> Option<String> {
        let (begun, before) = self.machine?;
        let share = (stolen_seconds() - before) / begun.elapsed().as_secs_f64();
        let percent = share * 100.0;
        (share > TAKEN).then(|| format!("{percent:.1} % of the servers' core was taken away"))
    }
}

impl Witness for Watch<'_> {
    fn begin(&mut self) {
        self.doubt.0.take();
        self.machine = self.machine.map(|_| (Instant::now(), stolen_seconds()));
        if let Some(lab) = &mut self.lab {
            lab.begin();
        }
    }

    fn end(&mut self) -> Attested {
        let mut seen = self.lab.as_mut().map(|lab| lab.end()).unwrap_or_default();
        seen.flag = seen.flag.or(self.doubt.0.take()).or(self.taken());
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_away_is_of_one_core() {
        let text =
            "cpu  9 9 9 9 9 9 9 900 0 0\ncpu0 9 9 9 9 9 9 9 650 0 0\ncpu1 9 9 9 9 9 9 9 250 7 7\n";
        assert_eq!(stolen_of(1, text), Some(2.5));
        assert_eq!(stolen_of(2, text), None);
        assert_eq!(stolen_of(0, "cpu0 1 2 3\n"), None);
    }

    #[test]
    fn a_run_whose_core_was_taken_away_is_doubted() {
        let begun = Instant::now() - Duration::from_secs(60);
        let watch = |machine| Watch { lab: None, doubt: &Doubt::default(), machine }.taken();
        assert_eq!(watch(None), None);
        assert_eq!(watch(Some((begun, stolen_seconds()))), None);
        assert!(watch(Some((begun, stolen_seconds() - 5.0))).is_some());
    }
}
