//! The start of a node that has no replica yet, of a catalogue with many descriptors; and a long
//! package, up and down.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use levada_catalogue::model::{Draft, Package, Version, digest_text};
use levada_core::{Digest, Hasher};
use levada_harness::{Case, Group, Measured};

use super::super::fetch;
use super::super::levada::{self, Levada};
use super::super::objects;
use super::super::server::Server;
use super::conditions::{NAME, SHARED, at};
use super::fleet::{Fleet, wait_until_visible};
use super::own::Publisher;
use crate::measuring::Measuring;
use crate::testbed::Testbed;

/// The values of `part` in rows, and the metrics.
pub const PART: &str = "start";
pub const PACKAGE: &str = "package";
pub const NEW: &str = "start-up without a replica";
pub const AGAIN: &str = "start-up with one";
pub const SEARCH: &str = "first search after a start-up without a replica";
pub const UP: &str = "package up";
pub const DOWN: &str = "package down";
/// Descriptors, and those of a quick run.
pub const MANY: usize = 100_000;
const FEW: usize = 5_000;
/// Bytes of the package, and those of a quick run.
pub const LONG: usize = 256 << 20;
const SHORTER: usize = 64 << 20;
/// The time limit for each read of a package.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// After so long a node has made the snapshot that is due.
const SNAPSHOT_DELAY: Duration = Duration::from_secs(20);
/// Drafts of one request.
const BATCH: usize = 64;

/// Measures both.
pub fn measure(measuring: &mut Measuring, levada: &Levada, quick: bool) -> anyhow::Result<()> {
    let subjects = [SHARED.to_owned()];
    let (count, length) = if quick { (FEW, SHORTER) } else { (MANY, LONG) };
    let params = at(PART, [("descriptors", count.into())]);
    if measuring.needs(&params, &subjects) {
        let fleet = Fleet::start(levada, 1)?;
        fill(&fleet, count)?;
        thread::sleep(SNAPSHOT_DELAY);
        let case = Case::new(SHARED, || Ok(start_one(levada, &fleet, count)?));
        measuring.group(Group { experiment: NAME, params, cases: vec![case], monitor: None })?;
    }
    let params = at(PACKAGE, [("bytes", length.into())]);
    if measuring.needs(&params, &subjects) {
        let fleet = Fleet::start(levada, 2)?;
        let mut number = 0;
        let case = Case::new(SHARED, || {
            number += 1;
            Ok(carry(&fleet, length, number)?)
        });
        measuring.group(Group { experiment: NAME, params, cases: vec![case], monitor: None })?;
    }
    Ok(())
}

fn fill(fleet: &Fleet, count: usize) -> anyhow::Result<()> {
    let node = fleet.nodes.first().context("there is no node")?;
    let mut publisher = Publisher::connect(node.folder())?;
    let all: Vec<usize> = (0..count).collect();
    for numbers in all.chunks(BATCH) {
        let drafts = numbers.iter().map(|number| schema(*number, None));
        publisher.publish_all(drafts.collect::<anyhow::Result<Vec<_>>>()?)?;
    }
    wait_until_visible(node, &path(count - 1))
}

fn schema(number: usize, package: Option<Package>) -> anyhow::Result<Draft> {
    Ok(Draft {
        key: format!("dataschema/Schema{number}").parse()?,
        version: Version::new(1, 0, 0),
        descriptor: objects::description(number).into(),
        package,
        signatures: Vec::new(),
    })
}

fn path(number: usize) -> String {
    format!("/v1/objects/dataschema/Schema{number}/latest")
}

/// The time until a node answers that had no replica, until it then answers a search, and until it
/// answers after a restart.
fn start_one(levada: &Levada, fleet: &Fleet, count: usize) -> anyhow::Result<Vec<Measured>> {
    let home = tempfile::tempdir()?;
    let configuration = fleet.engine.configuration();
    let mut node = levada.start_with(&Testbed::Loopback, "new node", home, &configuration)?;
    let new = node.start_up;
    wait_until_visible(&node, &path(count - 1))?;
    let start = Instant::now();
    wait_until_visible(&node, &levada::search(objects::KNOWN))?;
    let search = start.elapsed();
    node.restart(&Testbed::Loopback)?;
    let named = [(NEW, new), (SEARCH, search), (AGAIN, node.start_up)];
    Ok(named.map(|(name, time)| Measured::new(name, "s", time.as_secs_f64())).into())
}

/// Publishes a package at the first node, and fetches it from the second one, which does not have
/// it yet.
fn carry(fleet: &Fleet, length: usize, number: u64) -> anyhow::Result<Vec<Measured>> {
    let mut file = tempfile::tempfile()?;
    let digest = write_noise(&mut file, length, number)?;
    file.seek(SeekFrom::Start(0))?;
    let package = Package {
        digest,
        length: length as u64,
        media_type: "application/octet-stream".to_owned(),
        description: b"{}".to_vec(),
    };
    let draft = schema(1_000_000 + number as usize, Some(package))?;
    let [near, far] = &fleet.nodes[..] else { anyhow::bail!("two nodes are needed") };
    let mut publisher = Publisher::connect(near.folder())?;
    let start = Instant::now();
    publisher.publish_with(&draft, &mut file)?;
    let up = start.elapsed();
    wait_until_visible(far, &path(1_000_000 + number as usize))?;
    let start = Instant::now();
    let received = received(far, &format!("/v1/blobs/{}", digest_text(&digest)))?;
    ensure!(received >= length as u64, "the package has {received} bytes");
    let named = [(UP, up), (DOWN, start.elapsed())];
    Ok(named.map(|(name, time)| Measured::new(name, "s", time.as_secs_f64())).into())
}

/// Writes bytes that compress badly, others for each number: their digest.
fn write_noise(file: &mut File, length: usize, number: u64) -> anyhow::Result<Digest> {
    let mut hasher = Hasher::default();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = vec![0; 1 << 20];
    for _ in 0..length / block.len() {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        hasher.update(&block);
        file.write_all(&block)?;
    }
    Ok(hasher.finish())
}

/// The bytes of an answer, with its head.
fn received(node: &Server, path: &str) -> anyhow::Result<u64> {
    let mut socket = TcpStream::connect(node.address())?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    socket.write_all(&fetch::request(path, None, true))?;
    let mut block = vec![0; 1 << 20];
    let mut received = 0;
    loop {
        match socket.read(&mut block)? {
            0 => return Ok(received),
            length => received += length as u64,
        }
    }
}
