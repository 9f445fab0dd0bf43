//! Reading: from a node with the shared store and one with its own, and from one, two and three
//! nodes.

use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use levada_harness::{Case, Group, Measured, pin};

use super::super::GENERATOR;
use super::super::deployment;
use super::super::fetch;
use super::super::generator::{self, Load, Plan, Reuse, Target};
use super::super::levada::{self, Levada};
use super::super::nginx::{self, Balance};
use super::super::objects::Object;
use super::super::saturation::CONDITIONAL;
use super::super::server::Server;
use super::super::sweep::{POOL, Requests};
use super::conditions::{NAME, SHARED, at};
use super::fleet::Fleet;
use super::quota::Quota;
use super::verdaccio;
use crate::measuring::Measuring;
use crate::testbed::Testbed;

/// Measures a part.
pub type Measure = fn(&mut Measuring, &Levada, bool) -> anyhow::Result<()>;

/// The values of `part` in rows.
pub const READS: &str = "reads";
pub const BALANCED: &str = "balanced";
pub const DIRECT: &str = "direct";
/// The share of a processor that each node has: behind a balancer, and without one.
pub const SHARES: [(&str, f64); 2] = [(BALANCED, 0.05), (DIRECT, 1.0 / 3.0)];
/// The most nodes.
pub const MOST: usize = 3;
/// Connections to several nodes together. A node that has used up its share of a period answers in
/// the next one: the connections that wait for it must not be all that there are.
const CONNECTIONS: usize = 512;
/// The metrics.
pub const RATE: &str = "response rate";
pub const BALANCER: &str = "balancer busy";

/// The name of so many nodes in rows.
pub fn nodes(count: usize) -> String {
    format!("levada/{count}")
}

/// The parameters of what is read.
pub fn reading(object: Object, requests: Requests) -> levada_harness::Params {
    at(READS, [("object", object.name().into()), ("requests", requests.name().into())])
}

/// The highest rate of a node with each store, in closed loops.
pub fn against_sqlite(
    measuring: &mut Measuring,
    levada: &Levada,
    quick: bool,
) -> anyhow::Result<()> {
    let testbed = Testbed::Loopback;
    let own = levada.serve(&testbed, levada::NAME)?;
    let fleet = Fleet::start(levada, 1)?;
    let mut servers = vec![(levada::NAME, &own), (SHARED, fleet.nodes.first().context("no node")?)];
    let verdaccio = verdaccio::start(&testbed)?;
    match &verdaccio {
        Some(server) => servers.push((verdaccio::NAME, server)),
        None => eprintln!("verdaccio is not installed, and left out: npm install -g verdaccio"),
    }
    for object in Object::ALL {
        for requests in Requests::ALL {
            let params = reading(object, requests);
            let cases = targets(&servers, object, requests)?;
            let names: Vec<String> = cases.iter().map(|(name, ..)| name.clone()).collect();
            if !measuring.needs(&params, &names) {
                continue;
            }
            let plan = closed(requests, quick);
            let case = |(name, server, target): (String, &Server, Target)| {
                let tree = server.process_tree();
                Case::new(name, move || {
                    let run = deployment::run(&Testbed::Loopback, &[tree], &target, plan)?;
                    Ok(run.measured(None))
                })
            };
            let cases = cases.into_iter().map(case).collect();
            measuring.group(Group { experiment: NAME, params, cases, monitor: None })?;
        }
    }
    Ok(())
}

/// What each server is asked for, with the name in rows.
fn targets<'a>(
    servers: &[(&str, &'a Server)],
    object: Object,
    requests: Requests,
) -> anyhow::Result<Vec<(String, &'a Server, Target)>> {
    let testbed = Testbed::Loopback;
    let last = requests == Requests::One;
    let mut targets = Vec::new();
    for &(name, server) in servers {
        let (path, has_conditional) = match name {
            verdaccio::NAME => (verdaccio::path(object), false),
            _ => (object.path(), object == Object::Descriptor && !last),
        };
        let target =
            |conditional| fetch::target(&testbed, server.address(), &path, conditional, last);
        targets.push((name.to_owned(), server, target(false)?));
        if has_conditional {
            targets.push((format!("{name}{CONDITIONAL}"), server, target(true)?));
        }
    }
    Ok(targets)
}

fn closed(requests: Requests, quick: bool) -> Plan {
    let length = Duration::from_millis(if quick { 400 } else { 1500 });
    let load = Load::Closed { warm_up: Duration::from_millis(200), length };
    let reuse = match requests {
        Requests::One => Reuse::One(POOL),
        Requests::Many => Reuse::Many(POOL),
    };
    Plan::new(load, reuse)
}

/// The rate of one, two and three nodes, each with a fixed share of a processor: behind nginx, and
/// asked directly.
pub fn of_several_nodes(
    measuring: &mut Measuring,
    levada: &Levada,
    quick: bool,
) -> anyhow::Result<()> {
    for (part, share) in SHARES {
        let params = at(part, [("share", share.into())]);
        let names: Vec<String> = (1..=MOST).map(nodes).collect();
        if !measuring.needs(&params, &names) {
            continue;
        }
        let fleet = Fleet::start(levada, MOST)?;
        let limit = |node: &Server| Quota::limit(node.pid().as_raw_nonzero().get() as u32, share);
        let quotas = fleet.nodes.iter().map(limit).collect::<anyhow::Result<Vec<_>>>();
        let quotas = match quotas {
            Ok(quotas) => quotas,
            Err(error) => {
                eprintln!("{part} is left out: {error:#}");
                continue;
            }
        };
        let addresses: Vec<_> = fleet.nodes.iter().map(Server::address).collect();
        let balancers = (1..=MOST).map(|count| {
            let balancer =
                || nginx::balancer(&Testbed::Loopback, &addresses[..count], Balance::FewestOpen);
            (part == BALANCED).then(balancer)
        });
        let balancers: Vec<_> =
            balancers.map(Option::transpose).collect::<anyhow::Result<Vec<_>>>()?;
        let mut cases = Vec::new();
        for (count, balancer) in (1..=MOST).zip(&balancers) {
            let addresses = match balancer {
                Some(balancer) => vec![balancer.address()],
                None => addresses[..count].to_vec(),
            };
            let path = Object::Descriptor.path();
            let target = |address| fetch::target(&Testbed::Loopback, address, &path, false, false);
            let targets = addresses.into_iter().map(target).collect::<anyhow::Result<Vec<_>>>()?;
            cases.push(Case::new(nodes(count), move || {
                Ok(at_once(&targets, balancer.as_ref(), quick)?)
            }));
        }
        measuring.group(Group { experiment: NAME, params, cases, monitor: None })?;
        drop(balancers);
        drop(fleet);
        drop(quotas);
    }
    Ok(())
}

/// A closed loop on each target at once: the sum of their rates, and how busy the balancer's
/// processor was with it.
fn at_once(
    targets: &[Target],
    balancer: Option<&Server>,
    quick: bool,
) -> anyhow::Result<Vec<Measured>> {
    let length = Duration::from_millis(if quick { 1000 } else { 4000 });
    let load = Load::Closed { warm_up: Duration::from_millis(500), length };
    let reuse = Reuse::Many(CONNECTIONS / targets.len());
    let plan = Plan { alone: targets.len() == 1, ..Plan::new(load, reuse) };
    let busy = || balancer.map_or(0.0, |server| server.process_tree().cpu_seconds());
    let before = busy();
    let run = |target| {
        pin(GENERATOR)?;
        generator::run(target, plan)
    };
    let all: anyhow::Result<Vec<_>> = thread::scope(|scope| {
        let runs: Vec<_> = targets.iter().map(|target| scope.spawn(move || run(target))).collect();
        let joined = runs.into_iter().map(|run| run.join());
        joined.map(|run| run.map_err(|_| anyhow!("the generator panicked"))?).collect()
    });
    let all = all?;
    let share = (busy() - before) / load.length().as_secs_f64();
    let errors: u64 = all.iter().map(|one| one.errors.all()).sum();
    let mut measured = vec![
        Measured::new(RATE, "1/s", all.iter().map(generator::Statistics::rate).sum()),
        Measured::new("errors", "1", errors as f64),
        Measured::new("generator busy", "1", all.iter().map(|one| one.busy.share()).sum()),
    ];
    measured.extend(balancer.map(|_| Measured::new(BALANCER, "1", share)));
    Ok(measured)
}
