//! The source and the clients, each at a link of its own, and one run.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use levada_harness::Measured;
use levada_lab::{Lab, Node, Segment};
use tempfile::TempDir;

use super::counters::{self, Segments};
use super::point::{BLACKOUT_AT, MEDIATED, Point, RATE_MBIT, Scenario};
use super::subjects::{Getter, LOOK, Programs, Source, mark};
use crate::binary;
use crate::swarm::noise;

/// Longer than any subject takes.
const LIMIT: Duration = Duration::from_secs(300);

/// The source and the clients.
pub struct Scene {
    point: Point,
    source: Node,
    clients: Vec<Node>,
    star: Segment,
    addresses: Vec<IpAddr>,
    film: PathBuf,
    levada: PathBuf,
    folder: TempDir,
    _lab: Lab,
}

impl Scene {
    pub fn new(point: Point) -> anyhow::Result<Self> {
        let levada = binary::levada()?;
        let mut lab = Lab::new(levada_lab::Options::default())?;
        let source = lab.node("source")?;
        let clients = (0..point.clients()).map(|number| lab.node(&format!("client {number}")));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        let nodes: Vec<&Node> = [&source].into_iter().chain(&clients).collect();
        let star = lab.star(&nodes, RATE_MBIT * 1_000_000)?;
        for (number, client) in clients.iter().enumerate() {
            star.limit_uplink(client, (point.uplink(number) * 1e6) as u64)?;
            if !point.is_reachable(number) {
                star.refuse_connections(client)?;
            }
        }
        let addresses = nodes.iter().filter_map(|node| star.address(node)).collect();
        // The disk is not what is compared.
        let folder = TempDir::new_in("/dev/shm").context("make a folder in /dev/shm")?;
        let film = folder.path().join("film");
        fs::write(&film, noise(point.bytes))?;
        Ok(Self { point, source, clients, star, addresses, film, levada, folder, _lab: lab })
    }

    /// One run of a subject.
    pub fn measure(&self, subject: &str) -> anyhow::Result<Vec<Measured>> {
        let work = TempDir::new_in(self.folder.path())?;
        let mut programs = Programs::default();
        let source = Source {
            node: &self.source,
            addresses: &self.addresses,
            film: &self.film,
            chunk_kib: self.point.chunk_kib(),
            levada: &self.levada,
            work: work.path(),
        };
        let getter = source.start(subject, &mut programs)?;
        let sent = counters::sent(&self.source)?;
        let segments = self.segments()?;
        let times = self.get(subject, &getter, work.path(), "first")?;
        let sent = counters::sent(&self.source)? - sent;
        let segments = self.segments()?.since(segments);
        let first = times[0];
        let last = times[times.len() - 1];
        let mut rows = vec![
            Measured::new("time", "s", last),
            Measured::new("time ÷ bound", "1", last / self.point.bound()),
            Measured::new("first ÷ last", "1", first / last),
            Measured::new("source ÷ file", "1", sent as f64 / self.point.bytes as f64),
            Measured::new("retransmitted ÷ segments", "1", segments.retransmitted_share()),
        ];
        if subject == MEDIATED {
            let ratio = last / self.point.uplink_bound();
            rows.push(Measured::new("time ÷ uplink bound", "1", ratio));
        }
        if self.point.groups() > 1 {
            let times = self.get(subject, &getter, work.path(), "second")?;
            let ratio = times[times.len() - 1] / self.point.bound();
            rows.push(Measured::new("second group's time ÷ bound", "1", ratio));
        }
        Ok(rows)
    }

    /// A group of clients gets the file: the times in seconds, in ascending order. They each make a
    /// file when they are done.
    fn get(
        &self,
        subject: &str,
        getter: &Getter,
        work: &Path,
        group: &str,
    ) -> anyhow::Result<Vec<f64>> {
        let folder = |client: usize| work.join(group).join(client.to_string());
        let folders: Vec<PathBuf> = (0..self.clients.len()).map(folder).collect();
        for folder in &folders {
            fs::create_dir_all(folder)?;
        }
        let mut programs = Programs::default();
        let start = Instant::now();
        for (number, (client, folder)) in self.clients.iter().zip(&folders).enumerate() {
            programs.start(client, &getter(number, folder)?, work)?;
        }
        let marks: Vec<PathBuf> = folders.iter().map(|folder| mark(subject, folder)).collect();
        let blackout = match self.point.scenario {
            Scenario::Blackout(seconds) if seconds > 0 => Some(Duration::from_secs(seconds)),
            _ => None,
        };
        let times = thread::scope(|scope| {
            let cut = blackout.map(|time| scope.spawn(move || self.cut_off(time)));
            let times = wait_for(&marks, start, &mut programs);
            let cut = cut.map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            cut.transpose()?;
            times
        })?;
        drop(programs);
        for folder in &folders {
            let same = fs::read(folder.join("film"))? == fs::read(&self.film)?;
            ensure!(same, "{subject}: a client has another file");
        }
        Ok(times)
    }

    /// Cuts the source off for a while.
    fn cut_off(&self, time: Duration) -> anyhow::Result<()> {
        thread::sleep(BLACKOUT_AT);
        self.star.cut(&self.source, true)?;
        thread::sleep(time);
        Ok(self.star.cut(&self.source, false)?)
    }

    /// The segments of all programs.
    fn segments(&self) -> anyhow::Result<Segments> {
        Segments::of([&self.source].into_iter().chain(&self.clients))
    }
}

/// When each file was there, in seconds, the first one first.
fn wait_for(
    files: &[PathBuf],
    start: Instant,
    programs: &mut Programs,
) -> anyhow::Result<Vec<f64>> {
    let mut missing: Vec<&PathBuf> = files.iter().collect();
    let mut times = Vec::new();
    while !missing.is_empty() {
        ensure!(start.elapsed() < LIMIT, "{} clients do not finish", missing.len());
        let before = missing.len();
        missing.retain(|file| !file.exists());
        times.extend((missing.len()..before).map(|_| start.elapsed().as_secs_f64()));
        if let Some(failed) = programs.failed() {
            anyhow::bail!("a program has ended with {failed}");
        }
        thread::sleep(LOOK);
    }
    Ok(times)
}
