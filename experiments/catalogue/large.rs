//! A catalogue with very many descriptors: how long it takes to start, what it keeps in memory, and how fast it searches.

use anyhow::{Context, ensure};
use levada_harness::{Case, Measured, Params, params};

use super::bench::Bench;
use super::fetch;
use super::generator::{Expect, Load, Plan, Reuse, Target};
use super::levada::{self, Levada};
use super::objects;
use super::server::Server;
use super::site::{self, Doubt};
use crate::place::Place;

/// The value of `part` in its rows.
pub const PART: &str = "large";
/// How many descriptors.
pub const MANY: usize = 100_000;
/// In a quick run.
const FEW: usize = 5_000;
/// Searches per second.
const RATE: u32 = 100;
/// Connections that they share.
const CONNECTIONS: usize = 8;

/// What its rows have in common.
pub fn at(descriptors: Option<usize>) -> Params {
    let mut params = params([("part", PART.into()), ("rtt_us", 0.into())]);
    if let Some(descriptors) = descriptors {
        params.insert("descriptors".to_owned(), descriptors.into());
    }
    params
}

/// Measures it, on this host alone.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let count = if bench.quick { FEW } else { MANY };
    if !bench.wants(&at(Some(count)), &[levada::NAME.to_owned()]) {
        return Ok(());
    }
    let (place, doubt) = (Place::Loopback, Doubt::default());
    let mut empty = bench.levada.start(&place, "empty", tempfile::tempdir()?)?;
    let (mut full, text) = filled(&bench.levada, &place, count)?;
    let target = searches(&full)?;
    let length = if bench.quick { 1 } else { 4 };
    let load = Load::Open { rate: RATE, count: RATE * length };
    let plan = Plan::new(load, Reuse::Many(CONNECTIONS));
    let case = Case::new(levada::NAME, || {
        empty.again(&place)?;
        let nothing = empty.family().memory();
        full.again(&place)?;
        let all = full.family().memory();
        let each = all.saturating_sub(nothing) as f64 / count as f64;
        let mut measured = vec![
            Measured::new("start-up", "s", full.start_up.as_secs_f64()),
            Measured::new("memory per descriptor", "B", each),
            Measured::new("memory per descriptor beyond its text", "B", each - text),
        ];
        let run = site::run(&place, &[full.family()], &target, plan)?;
        doubt.consider(&run);
        measured.extend(run.measured(None));
        Ok(measured)
    });
    bench.measure(&place, &doubt, at(Some(count)), vec![case])
}

/// A catalogue with `count` descriptors, and the bytes of one of them on average.
fn filled(levada: &Levada, place: &Place, count: usize) -> anyhow::Result<(Server, f64)> {
    let home = tempfile::tempdir()?;
    let text = objects::write_many(&home.path().join("import"), count)?;
    let server = levada.start(place, levada::NAME, home)?;
    check(place, &server, count).context("what was imported")?;
    Ok((server, text))
}

/// An import skips what it cannot take, and succeeds all the same.
fn check(place: &Place, server: &Server, count: usize) -> anyhow::Result<()> {
    let text = |path: &str| {
        let answer = fetch::get(place, server.address(), path, None)?;
        ensure!(answer.status == 200, "{path} was answered {}", answer.status);
        anyhow::Ok(String::from_utf8_lossy(&answer.body).into_owned())
    };
    let wanted = levada::count_of_schemas(count);
    let metrics = text(levada::METRICS)?;
    ensure!(metrics.lines().any(|line| line == wanted), "{} lacks {wanted}", levada::METRICS);
    let query = levada::search(objects::KNOWN);
    ensure!(text(&query)?.contains("Schema"), "{query} finds nothing");
    Ok(())
}

fn searches(server: &Server) -> anyhow::Result<Target> {
    let request = |words: &String| fetch::request(&levada::search(words), None, false);
    let requests = objects::queries().iter().map(request).collect();
    let expect = Expect { status: 200, length: None };
    Ok(Target { address: server.address(), requests, expect })
}
