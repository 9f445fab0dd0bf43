//! What readers and publishers notice when the engine's leader is killed, when all of the engine
//! is, and when a node is cut off from it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use levada_harness::{Case, Group, Measured};

use super::super::levada::Levada;
use super::super::publisher::draft;
use super::super::server::Server;
use super::conditions::{NAME, SHARED, at, seconds};
use super::engine::SERVERS;
use super::fleet::{Fleet, wait_until_visible};
use super::noticed::{BEFORE, Noticed};
use super::own::Publisher;
use super::relay::Relay;
use crate::measuring::Measuring;

/// The values of `part` in rows, and the metrics.
pub const LEADER: &str = "leader killed";
pub const ALL: &str = "engine killed";
pub const CUT: &str = "a node cut off";
pub const STOPPED: &str = "publishing stopped for";
pub const NEWS: &str = "a node's news stopped for";
pub const REFUSED: &str = "until a publication fails";
pub const CAUGHT_UP: &str = "until it has all again";

/// Measures a fault, for so long.
type Fault = fn(&mut Fleet, Duration) -> anyhow::Result<Vec<Measured>>;

/// Measures all of them.
pub fn measure(measuring: &mut Measuring, levada: &Levada, quick: bool) -> anyhow::Result<()> {
    let all: [(&str, u64, Fault); 2] = [(LEADER, 20, without_leader), (ALL, 9, without_engine)];
    for (part, length, fault) in all {
        let length = BEFORE + seconds(length, quick);
        one(measuring, part, || Fleet::start(levada, 3), |fleet| fault(fleet, length))?;
    }
    let length = BEFORE + seconds(20, quick);
    let start = || {
        let mut fleet = Fleet::start(levada, 2)?;
        let relay = Relay::start(fleet.engine.address(SERVERS - 1))?;
        let servers = format!("[catalogue]\nstore = \"nats://{}\"\n", relay.address());
        fleet.add_with(levada, tempfile::tempdir()?, &servers)?;
        Ok((fleet, relay))
    };
    one(measuring, CUT, start, |(fleet, relay)| cut_off(fleet, relay, length))
}

/// Measures one fault of what `start` has started.
fn one<T>(
    measuring: &mut Measuring,
    part: &str,
    start: impl FnOnce() -> anyhow::Result<T>,
    fault: impl Fn(&mut T) -> anyhow::Result<Vec<Measured>>,
) -> anyhow::Result<()> {
    let params = at(part, []);
    if !measuring.needs(&params, &[SHARED.to_owned()]) {
        return Ok(());
    }
    let mut started = start()?;
    let case = Case::new(SHARED, || Ok(fault(&mut started)?));
    let cases = vec![case];
    measuring.group(Group { experiment: NAME, params, cases, monitor: None })
}

/// Kills the leader.
fn without_leader(fleet: &mut Fleet, length: Duration) -> anyhow::Result<Vec<Measured>> {
    let victim = fleet.engine.wait_for_leader()?;
    let Fleet { nodes, engine } = fleet;
    let ((), noticed) = Noticed::of(nodes, nodes, length, || engine.kill(victim))?;
    engine.start_one(victim)?;
    engine.wait_for_leader()?;
    let mut measured = vec![
        Measured::new(STOPPED, "s", noticed.stopped()),
        Measured::new(NEWS, "s", noticed.without_news()),
    ];
    measured.extend(noticed.reads());
    Ok(measured)
}

/// Kills all servers, and publishes at each node.
fn without_engine(fleet: &mut Fleet, length: Duration) -> anyhow::Result<Vec<Measured>> {
    fleet.engine.wait_for_leader()?;
    let Fleet { nodes, engine } = fleet;
    let (slowest, noticed) = Noticed::of(nodes, &[], length, || {
        (0..SERVERS).try_for_each(|number| engine.kill(number))?;
        nodes.iter().try_fold(0.0, |slowest: f64, node| Ok(slowest.max(refused(node)?)))
    })?;
    (0..SERVERS).try_for_each(|number| engine.start_one(number))?;
    engine.wait_for_leader()?;
    let mut measured = vec![Measured::new(REFUSED, "s", slowest)];
    measured.extend(noticed.reads());
    Ok(measured)
}

/// Cuts the last node off from the engine for half of the time; it publishes at once, and the
/// others go on.
fn cut_off(fleet: &Fleet, relay: &Relay, length: Duration) -> anyhow::Result<Vec<Measured>> {
    fleet.engine.wait_for_leader()?;
    let (last, others) = fleet.nodes.split_last().context("there is no node")?;
    let ((refused, caught_up), noticed) = Noticed::of(&fleet.nodes, others, length, || {
        let start = Instant::now();
        relay.cut();
        let refused = refused(last)?;
        thread::sleep((start + length / 2).saturating_duration_since(Instant::now()));
        let other = others.first().context("there is no other node")?;
        let draft = draft()?;
        Publisher::connect(other.folder())?.publish(&draft)?;
        let start = Instant::now();
        relay.join();
        wait_until_visible(last, &format!("/v1/objects/{}/latest", draft.key))?;
        Ok((refused, start.elapsed().as_secs_f64()))
    })?;
    let mut measured = vec![
        Measured::new(REFUSED, "s", refused),
        Measured::new(STOPPED, "s", noticed.stopped()),
        Measured::new(CAUGHT_UP, "s", caught_up),
    ];
    measured.extend(noticed.reads());
    Ok(measured)
}

/// How long a node takes to refuse a publication, in seconds.
fn refused(node: &Server) -> anyhow::Result<f64> {
    let mut publisher = Publisher::connect(node.folder())?;
    let start = Instant::now();
    let refused = publisher.publish(&draft()?).err();
    refused.context("a publication succeeded without the engine")?;
    Ok(start.elapsed().as_secs_f64())
}
