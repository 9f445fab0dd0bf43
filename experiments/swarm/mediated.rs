//! Mediated mode over the number of peers, with real sockets: a coordinator on one core, and all peers on another, over loopback. The paper's time
//! grows with the cube of the peers.

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, params};
use serde_json::Value;

use super::part::Process;
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "swarm/mediated";
/// The subjects. With thousands of peers there is no room for their files.
pub const VERIFYING: &str = "levada";
pub const KEEPING: &str = "levada, with a file for each peer";
/// The content in bytes.
const LENGTH: usize = 10_000_000;
/// A chunk in bytes.
const CHUNK: u32 = 64 << 10;
/// Chunks in the coordinator's cache: fewer than there are, so that each must come from a provider.
const CACHE: usize = 64;
/// A gigabyte in memory.
const MOST_FILES: usize = 100;
/// Longer than any run takes.
const LIMIT_S: &str = "300";

/// The numbers of peers that are compared.
fn counts(quick: bool) -> &'static [usize] {
    if quick { &[10, 32, 100] } else { &[10, 32, 100, 316, 1000] }
}

fn conditions(peers: usize) -> Params {
    params([
        ("peers", peers.into()),
        ("bytes", LENGTH.into()),
        ("chunk_bytes", CHUNK.into()),
        ("cache", CACHE.into()),
    ])
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let counts = counts(options.quick);
    let mut measuring = Measuring::new(NAME, options, counts.len())?;
    for peers in counts.iter().copied() {
        let (at, subjects) = (conditions(peers), subjects(peers));
        if measuring.needs(&at, &subjects) {
            let case = |subject: &String| {
                let keep = subject == KEEPING;
                Case::new(subject.clone(), move || Ok(measure(peers, keep)?))
            };
            let cases = subjects.iter().map(case).collect();
            measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
        }
    }
    Ok(measuring.finish())
}

fn subjects(peers: usize) -> Vec<String> {
    let keeping = (peers == MOST_FILES).then_some(KEEPING);
    [VERIFYING].into_iter().chain(keeping).map(str::to_owned).collect()
}

fn measure(peers: usize, keep: bool) -> anyhow::Result<Vec<Measured>> {
    let (length, chunk, count) = (LENGTH.to_string(), CHUNK.to_string(), peers.to_string());
    let cache = CACHE.to_string();
    let words = ["coordinator", &length, &chunk, "--cache", &cache, "--wait", &count];
    let mut coordinator = Process::start(&[&words[..], &["--core", "0"]].concat())?;
    let (address, identity) = (coordinator.line()?, coordinator.line()?);
    let words = ["peers", &address, &identity, &count, &length, &chunk, "--core", "1"];
    let limit = ["--limit", LIMIT_S];
    let keep: &[&str] = if keep { &["--keep"] } else { &[] };
    let mut crowd = Process::start(&[&words[..], &limit, keep].concat())?;
    ensure!(crowd.line()? == "ready", "the peers are not there");
    let before = coordinator.state()?;
    ensure!(before["peers"] == peers, "the coordinator has other connections");
    let (ended, after) = (crowd.state()?, coordinator.state()?);
    let chunks = LENGTH.div_ceil(CHUNK as usize) as f64;
    let sent = number(&after, "sent")?;
    ensure!(sent == chunks * peers as f64, "the coordinator has sent {sent} chunks");
    let cpu = number(&after, "cpu")? - number(&before, "cpu")?;
    Ok(vec![
        Measured::new("time", "s", number(&ended, "last")?),
        Measured::new("first ÷ last", "1", number(&ended, "first")? / number(&ended, "last")?),
        Measured::new("coordinator's CPU time", "s", cpu),
        Measured::new("peers' CPU time", "s", number(&ended, "cpu")?),
        Measured::new("fetches ÷ chunks", "1", number(&after, "fetches")? / chunks),
        Measured::new("connecting", "s", number(&ended, "connected")?),
    ])
}

fn number(state: &Value, key: &str) -> anyhow::Result<f64> {
    state[key].as_f64().with_context(|| format!("a process says nothing of {key}"))
}
