//! A catalogue with many descriptors: start-up time, memory and search time.

use anyhow::{Context, ensure};
use levada_harness::{Case, Measured, Params, params};

use super::bench::Bench;
use super::deployment::{self, RunFlag};
use super::fetch;
use super::generator::{Expect, Load, Plan, Reuse, Target};
use super::levada::{self, Levada};
use super::objects;
use super::server::Server;
use crate::testbed::Testbed;

/// The value of `part` in its rows.
pub const PART: &str = "large";
/// The number of descriptors.
pub const MANY: usize = 100_000;
/// The number of descriptors in a quick run.
const FEW: usize = 5_000;
/// Searches per second.
const RATE: u32 = 100;
/// Connections of all searches.
const CONNECTIONS: usize = 8;

/// The parameters of all its rows.
pub fn at(descriptors: Option<usize>) -> Params {
    let mut params = params([("part", PART.into()), ("rtt_us", 0.into())]);
    if let Some(descriptors) = descriptors {
        params.insert("descriptors".to_owned(), descriptors.into());
    }
    params
}

/// Runs this part, on loopback.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let count = if bench.quick { FEW } else { MANY };
    if !bench.needs(&at(Some(count)), &[levada::NAME.to_owned()]) {
        return Ok(());
    }
    let testbed = Testbed::Loopback;
    let run_flag = RunFlag::default();
    let mut empty = bench.levada.start(&testbed, "empty", tempfile::tempdir()?)?;
    let (mut full, text) = filled(&bench.levada, &testbed, count)?;
    let target = searches(&full)?;
    let length = if bench.quick { 1 } else { 4 };
    let load = Load::Open { rate: RATE, count: RATE * length };
    let plan = Plan::new(load, Reuse::Many(CONNECTIONS));
    let case = Case::new(levada::NAME, || {
        empty.restart(&testbed)?;
        let nothing = empty.process_tree().memory();
        full.restart(&testbed)?;
        let all = full.process_tree().memory();
        let each = all.saturating_sub(nothing) as f64 / count as f64;
        let mut measured = vec![
            Measured::new("start-up", "s", full.start_up.as_secs_f64()),
            Measured::new("memory per descriptor", "B", each),
            Measured::new("memory per descriptor beyond its text", "B", each - text),
        ];
        let run = deployment::run(&testbed, &[full.process_tree()], &target, plan)?;
        run_flag.check(&run);
        measured.extend(run.measured(None));
        Ok(measured)
    });
    bench.measure(&testbed, &run_flag, at(Some(count)), vec![case])
}

/// A catalogue with `count` descriptors, and their mean length in bytes.
fn filled(levada: &Levada, testbed: &Testbed, count: usize) -> anyhow::Result<(Server, f64)> {
    let home = tempfile::tempdir()?;
    let text = objects::write_many(&home.path().join("import"), count)?;
    let server = levada.start(testbed, levada::NAME, home)?;
    check(testbed, &server, count).context("check the import")?;
    Ok((server, text))
}

/// Checks that all objects were imported: an import skips invalid ones and still succeeds.
fn check(testbed: &Testbed, server: &Server, count: usize) -> anyhow::Result<()> {
    let text = |path: &str| {
        let answer = fetch::get(testbed, server.address(), path, None)?;
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
