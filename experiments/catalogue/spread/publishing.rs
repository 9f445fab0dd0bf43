//! Publications per second by all nodes, and what the engine alone does with such messages.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use async_nats::jetstream;
use async_nats::{HeaderMap, header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE};
use levada_harness::{Case, Group, Measured};

use super::super::levada::Levada;
use super::super::objects;
use super::super::publisher::draft;
use super::conditions::{ENGINE, NAME, PUBLISHERS, SHARED, at, seconds};
use super::fleet::Fleet;
use super::own::Publisher;
use crate::measuring::Measuring;

/// The value of `part` in rows, and the metrics.
pub const PART: &str = "publishing";
pub const RATE: &str = "publications";
pub const SYNCS: &str = "synced writes of the disk";
/// The stream of the engine's own messages.
const STREAM: &str = "XP_MESSAGES";
/// What a record has beside the descriptor, in bytes.
const RECORD: usize = 120;

/// Measures both.
pub fn measure(measuring: &mut Measuring, levada: &Levada, quick: bool) -> anyhow::Result<()> {
    let params = at(PART, [("publishers", PUBLISHERS.into())]);
    if !measuring.needs(&params, &[SHARED.to_owned(), ENGINE.to_owned()]) {
        return Ok(());
    }
    let fleet = Fleet::start(levada, 3)?;
    fleet.engine.stream(STREAM)?;
    let length = seconds(6, quick);
    let cases = vec![
        Case::new(SHARED, || Ok(vec![Measured::new(RATE, "1/s", by_nodes(&fleet, length)?)])),
        Case::new(ENGINE, || {
            let syncs = synced_writes(fleet.engine.folder())?;
            let rate = by_engine(fleet.engine.servers(), length)?;
            Ok(vec![Measured::new(RATE, "1/s", rate), Measured::new(SYNCS, "1/s", syncs)])
        }),
    ];
    measuring.group(Group { experiment: NAME, params, cases, monitor: None })
}

/// Publications per second, each publisher at a node, the next after the acknowledgement of the one
/// before.
fn by_nodes(fleet: &Fleet, length: Duration) -> anyhow::Result<f64> {
    let homes: Vec<&Path> = fleet.nodes.iter().map(|node| node.folder()).collect();
    let publish = |number: usize| {
        let mut publisher = Publisher::connect(homes[number % homes.len()])?;
        publisher.publish(&draft()?)?;
        let start = Instant::now();
        let mut count = 0_u32;
        while start.elapsed() < length {
            publisher.publish(&draft()?)?;
            count += 1;
        }
        anyhow::Ok(f64::from(count) / start.elapsed().as_secs_f64())
    };
    thread::scope(|scope| {
        let all: Vec<_> =
            (0..PUBLISHERS).map(|number| scope.spawn(move || publish(number))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| anyhow!("a publisher panicked"))?).sum()
    })
}

/// Messages per second of the engine, as many at a time and as long, each expected to be the first
/// of its subject.
fn by_engine(servers: Vec<String>, length: Duration) -> anyhow::Result<f64> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let context = jetstream::new(async_nats::connect(servers).await?);
        let one = || async {
            let start = Instant::now();
            let mut count = 0_u32;
            while start.elapsed() < length {
                let subject = format!("{STREAM}.{}", NUMBER.fetch_add(1, Ordering::Relaxed));
                let mut payload = objects::description(0).into_bytes();
                payload.resize(payload.len() + RECORD, 0);
                let mut headers = HeaderMap::new();
                headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0");
                let payload = payload.into();
                context.publish_with_headers(subject, headers, payload).await?.await?;
                count += 1;
            }
            anyhow::Ok(f64::from(count) / start.elapsed().as_secs_f64())
        };
        let all = futures_util::future::try_join_all((0..PUBLISHERS).map(|_| one())).await?;
        Ok(all.iter().sum())
    })
}

/// Writes of 4 KiB to the engine's disk per second, each synced: one after the other.
fn synced_writes(folder: &Path) -> anyhow::Result<f64> {
    let mut file = File::create(folder.join("synced")).context("create a file")?;
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < Duration::from_millis(500) {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}
