//! Several catalogues behind nginx, round-robin, one of which is killed during a run.
//!
//! All share the servers' core with nginx: this measures the effect of a killed catalogue on
//! clients, not the rate of several.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use levada_harness::{Case, Measured, Params, params};
use rustix::process::{Pid, Signal, kill_process};

use super::bench::Bench;
use super::deployment::{self, RunFlag};
use super::fetch;
use super::generator::{Load, Plan, Reuse, Target};
use super::nginx::{self, Balance};
use super::objects::Object;
use super::server::Server;
use crate::testbed::Testbed;

/// The value of `part` in its rows.
pub const PART: &str = "balanced";
/// The most catalogues.
const MOST: usize = 3;
/// Requests per second, each on a connection of its own.
const RATE: u32 = 1000;

/// The number of catalogues behind nginx, and whether one of them is killed.
pub const CASES: [(usize, bool); 5] = [(1, false), (2, false), (3, false), (2, true), (3, true)];

/// A subject's name in rows.
pub fn name(count: usize, killed: bool) -> String {
    format!("levada/{count}{}", if killed { "/killed" } else { "" })
}

/// The parameters of all its rows.
pub fn at() -> Params {
    params([
        ("part", PART.into()),
        ("rtt_us", 0.into()),
        ("object", Object::Descriptor.name().into()),
        ("rate", RATE.into()),
    ])
}

/// Catalogues, and an nginx for the first, for the first two, and for all.
struct Fleet {
    balancers: Vec<Server>,
    catalogues: Vec<RefCell<Server>>,
}

/// Runs this part, on loopback.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let subjects: Vec<String> = CASES.iter().map(|&(count, killed)| name(count, killed)).collect();
    if !bench.needs(&at(), &subjects) {
        return Ok(());
    }
    let testbed = Testbed::Loopback;
    let fleet = Fleet::new(bench, &testbed)?;
    let run_flag = RunFlag::default();
    // In tenths of a second.
    let count = RATE / 10 * if bench.quick { 12 } else { 40 };
    let plan = Plan::new(Load::Open { rate: RATE, count }, Reuse::One(0));
    let path = Object::Descriptor.path();
    let mut cases = Vec::new();
    for (count, killed) in CASES {
        let address = fleet.balancers[count - 1].address();
        let target = fetch::target(&testbed, address, &path, false, true)?;
        let fleet = &fleet;
        let testbed = &testbed;
        let run_flag = &run_flag;
        cases.push(Case::new(name(count, killed), move || {
            Ok(fleet.run(testbed, (&target, plan), (count, killed), run_flag)?)
        }));
    }
    bench.measure(&testbed, &run_flag, at(), cases)
}

impl Fleet {
    fn new(bench: &Bench, testbed: &Testbed) -> anyhow::Result<Self> {
        let mut catalogues = Vec::new();
        for number in 1..=MOST {
            catalogues.push(bench.levada.serve(testbed, &format!("catalogue {number}"))?);
        }
        let addresses: Vec<_> = catalogues.iter().map(Server::address).collect();
        let mut balancers = Vec::new();
        for count in 1..=MOST {
            balancers.push(nginx::balancer(testbed, &addresses[..count], Balance::InTurn)?);
        }
        Ok(Self { balancers, catalogues: catalogues.into_iter().map(RefCell::new).collect() })
    }

    /// One run. A killed catalogue is restarted at its end.
    fn run(
        &self,
        testbed: &Testbed,
        (target, plan): (&Target, Plan),
        (count, killed): (usize, bool),
        run_flag: &RunFlag,
    ) -> anyhow::Result<Vec<Measured>> {
        let used = &self.catalogues[..count];
        let mut servers = vec![self.balancers[count - 1].process_tree()];
        servers.extend(used.iter().map(|catalogue| catalogue.borrow().process_tree()));
        let victim = killed.then(|| used[count - 1].borrow().pid());
        let half = plan.load.length() / 2;
        let run = thread::scope(|scope| {
            let killer = victim.map(|victim| scope.spawn(move || kill(victim, half)));
            let run = deployment::run(testbed, &servers, target, plan);
            if let Some(killer) = killer {
                let _ = killer.join();
            }
            run
        })?;
        if killed {
            used[count - 1].borrow_mut().restart(testbed)?;
        }
        run_flag.check(&run);
        let mut measured = run.measured(None);
        if killed {
            // The CPU time of the killed process is lost.
            measured.retain(|one| one.metric != deployment::CPU);
        }
        Ok(measured)
    }
}

/// Kills a process after a delay.
fn kill(victim: Pid, after: Duration) {
    thread::sleep(after);
    // Fails if the process has already ended, which shows in the run.
    let _ = kill_process(victim, Signal::KILL);
}
