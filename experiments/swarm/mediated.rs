//! Mediated mode over the number of peers, with real sockets: a coordinator on one core, and all
//! peers on another, over loopback. The paper's time grows with the cube of the peers.

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, Row, params};
use serde_json::Value;

use super::part::Process;
use super::simulated::LARGE;
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "swarm/mediated";
/// The subjects. With thousands of peers there is no room for their files.
pub const VERIFYING: &str = "levada";
pub const KEEPING: &str = "levada, with a file for each peer";
/// A content, and the coordinator's cache.
#[derive(Clone, Copy)]
struct Content {
    bytes: usize,
    chunk_bytes: u32,
    /// Chunks: fewer than there are, so that each must come from a provider.
    cache: usize,
}

/// 10 MB.
const FILE: Content = Content { bytes: 10_000_000, chunk_bytes: 64 << 10, cache: 64 };
/// The clients of the paper's large file of 103,000 chunks of 1 KiB, and the caches: more points
/// are simulated, since each run takes minutes.
const OF_LARGE: usize = 50;
const CACHES: [usize; 2] = [100, 1000];
const LARGE_CHUNK: u32 = 1 << 10;

fn large(quick: bool, cache: usize) -> Content {
    let chunks = if quick { LARGE / 100 } else { LARGE };
    Content { bytes: (chunks << 10) as usize, chunk_bytes: LARGE_CHUNK, cache }
}

/// A gigabyte in memory.
const MOST_FILES: usize = 100;
/// Longer than any run takes.
const LIMIT_S: &str = "900";

/// The numbers of peers that are compared.
fn counts(quick: bool) -> &'static [usize] {
    if quick { &[10, 32, 100] } else { &[10, 32, 100, 316, 1000] }
}

/// All points, with the number of peers.
fn points(quick: bool) -> Vec<(usize, Content)> {
    let files = counts(quick).iter().map(|peers| (*peers, FILE));
    files.chain(CACHES.map(|cache| (OF_LARGE, large(quick, cache)))).collect()
}

fn conditions(peers: usize, content: Content) -> Params {
    params([
        ("peers", peers.into()),
        ("bytes", content.bytes.into()),
        ("chunk_bytes", content.chunk_bytes.into()),
        ("cache", content.cache.into()),
    ])
}

/// Whether a row is of the file of 10 MB.
pub fn is_of_file(row: &Row) -> bool {
    row.number("bytes") == Some(FILE.bytes as f64)
}

/// Whether a row is of the paper's large file.
pub fn is_of_large(row: &Row) -> bool {
    row.number("chunk_bytes") == Some(f64::from(LARGE_CHUNK))
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let points = points(options.quick);
    let mut measuring = Measuring::new(NAME, options, points.len())?;
    for (peers, content) in points {
        let at = conditions(peers, content);
        let subjects = subjects(peers);
        if measuring.needs(&at, &subjects) {
            let case = |subject: &String| {
                let keep = subject == KEEPING;
                Case::new(subject.clone(), move || Ok(measure(peers, keep, content)?))
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

fn measure(peers: usize, keep: bool, content: Content) -> anyhow::Result<Vec<Measured>> {
    let length = content.bytes.to_string();
    let count = peers.to_string();
    let chunk = content.chunk_bytes.to_string();
    let cache = content.cache.to_string();
    let words = ["coordinator", &length, &chunk, "--cache", &cache, "--wait", &count];
    let mut coordinator = Process::start(&[&words[..], &["--core", "0"]].concat())?;
    let address = coordinator.line()?;
    let identity = coordinator.line()?;
    let words = ["peers", &address, &identity, &count, &length, &chunk, "--core", "1"];
    let limit = ["--limit", LIMIT_S];
    let keep: &[&str] = if keep { &["--keep"] } else { &[] };
    let mut crowd = Process::start(&[&words[..], &limit, keep].concat())?;
    ensure!(crowd.line()? == "ready", "the peers are not there");
    let before = coordinator.state_when(|state| state["peers"] == peers)?;
    let ended = crowd.state()?;
    let after = coordinator.state()?;
    let chunks = content.bytes.div_ceil(content.chunk_bytes as usize) as f64;
    let sent = number(&after, "sent")?;
    ensure!(sent == chunks * peers as f64, "the coordinator has sent {sent} chunks");
    let cpu = number(&after, "cpu")? - number(&before, "cpu")?;
    Ok(vec![
        Measured::new("time", "s", number(&ended, "last")?),
        Measured::new("time after distribution", "s", after_distribution(&ended, &after)?),
        Measured::new("first ÷ last", "1", number(&ended, "first")? / number(&ended, "last")?),
        Measured::new("coordinator's CPU time", "s", cpu),
        Measured::new("peers' CPU time", "s", number(&ended, "cpu")?),
        Measured::new("fetches ÷ chunks", "1", number(&after, "fetches")? / chunks),
        Measured::new("connecting", "s", number(&ended, "connected")?),
    ])
}

/// The time from the last chunk's first leaving of the coordinator to the last peer's end, as in
/// the paper.
pub(super) fn after_distribution(ended: &Value, coordinator: &Value) -> anyhow::Result<f64> {
    Ok(number(ended, "began")? + number(ended, "last")? - number(coordinator, "distributed")?)
}

pub(super) fn number(state: &Value, key: &str) -> anyhow::Result<f64> {
    state[key].as_f64().with_context(|| format!("a process says nothing of {key}"))
}
