//! Several catalogues behind nginx, in turn, and one of them killed while they are asked.
//!
//! All share the core of servers with nginx: what this shows is what a killed catalogue costs its clients, not how much
//! more several can answer.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use levada_harness::{Case, Measured, Params, params};
use rustix::process::{Pid, Signal, kill_process};

use super::bench::Bench;
use super::fetch;
use super::generator::{Load, Plan, Reuse, Target};
use super::nginx;
use super::objects::Object;
use super::server::Server;
use super::site::{self, Doubt};
use crate::place::Place;

/// The value of `part` in its rows.
pub const PART: &str = "balanced";
/// How many catalogues there are at most.
const MOST: usize = 3;
/// Requests per second, each on a connection of its own.
const RATE: u32 = 1000;

/// How many catalogues are behind nginx, and whether one of them is killed.
pub const CASES: [(usize, bool); 5] = [(1, false), (2, false), (3, false), (2, true), (3, true)];

/// A subject's name in rows.
pub fn name(count: usize, killed: bool) -> String {
    format!("levada/{count}{}", if killed { "/killed" } else { "" })
}

/// What its rows have in common.
pub fn at() -> Params {
    params([
        ("part", PART.into()),
        ("rtt_us", 0.into()),
        ("object", Object::Descriptor.name().into()),
        ("rate", RATE.into()),
    ])
}

/// Catalogues, and nginx in front of the first, the first two, and all.
struct Fleet {
    balancers: Vec<Server>,
    catalogues: Vec<RefCell<Server>>,
}

/// Measures it, on this host alone.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let subjects: Vec<String> = CASES.iter().map(|&(count, killed)| name(count, killed)).collect();
    if !bench.wants(&at(), &subjects) {
        return Ok(());
    }
    let place = Place::Loopback;
    let fleet = Fleet::new(bench, &place)?;
    let doubt = Doubt::default();
    // In tenths of a second.
    let count = RATE / 10 * if bench.quick { 12 } else { 40 };
    let plan = Plan::new(Load::Open { rate: RATE, count }, Reuse::One(0));
    let path = Object::Descriptor.path();
    let mut cases = Vec::new();
    for (count, killed) in CASES {
        let address = fleet.balancers[count - 1].address();
        let target = fetch::target(&place, address, &path, false, true)?;
        let (fleet, place, doubt) = (&fleet, &place, &doubt);
        cases.push(Case::new(name(count, killed), move || {
            Ok(fleet.ask(place, (&target, plan), (count, killed), doubt)?)
        }));
    }
    bench.measure(&place, &doubt, at(), cases)
}

impl Fleet {
    fn new(bench: &Bench, place: &Place) -> anyhow::Result<Self> {
        let mut catalogues = Vec::new();
        for number in 1..=MOST {
            catalogues.push(bench.levada.serve(place, &format!("catalogue {number}"))?);
        }
        let addresses: Vec<_> = catalogues.iter().map(Server::address).collect();
        let mut balancers = Vec::new();
        for count in 1..=MOST {
            balancers.push(nginx::balancer(place, &addresses[..count])?);
        }
        Ok(Self { balancers, catalogues: catalogues.into_iter().map(RefCell::new).collect() })
    }

    /// One run. Whoever was killed in it is there again at its end.
    fn ask(
        &self,
        place: &Place,
        (target, plan): (&Target, Plan),
        (count, killed): (usize, bool),
        doubt: &Doubt,
    ) -> anyhow::Result<Vec<Measured>> {
        let used = &self.catalogues[..count];
        let mut servers = vec![self.balancers[count - 1].family()];
        servers.extend(used.iter().map(|catalogue| catalogue.borrow().family()));
        let victim = killed.then(|| used[count - 1].borrow().pid());
        let half = plan.load.length() / 2;
        let run = thread::scope(|scope| {
            let killer = victim.map(|victim| scope.spawn(move || kill(victim, half)));
            let run = site::run(place, &servers, target, plan);
            if let Some(killer) = killer {
                let _ = killer.join();
            }
            run
        })?;
        if killed {
            used[count - 1].borrow_mut().again(place)?;
        }
        doubt.consider(&run);
        let mut measured = run.measured(None);
        if killed {
            // What the victim had cost went with it.
            measured.retain(|one| one.metric != site::CPU);
        }
        Ok(measured)
    }
}

/// As a power cut would, after so long.
fn kill(victim: Pid, after: Duration) {
    thread::sleep(after);
    // It has ended by itself if this fails, and the run shows that.
    let _ = kill_process(victim, Signal::KILL);
}
