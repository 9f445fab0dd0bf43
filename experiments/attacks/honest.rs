//! The honest client: sequential runs of the service `clock` by `levada run`, with a request of
//! `/healthz` after each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use levada_harness::Measured;

use super::victim::{Middlebox, Target};

/// The time limit for a run or a request. One that fails or takes longer counts as this.
const LIMIT: Duration = Duration::from_secs(10);
/// The pause between two runs.
const PAUSE: Duration = Duration::from_millis(50);

/// A guest of the node.
pub struct Client<'a> {
    /// The `levada` binary.
    pub binary: &'a Path,
    /// Its home.
    pub home: &'a Path,
}

/// Runs the client `count` times.
pub fn runs(client: &Client<'_>, target: &Target, count: usize) -> anyhow::Result<Vec<Measured>> {
    let mut runs = Histogram::new(3)?;
    let mut health = Histogram::new(3)?;
    let mut failed = 0;
    for _ in 0..count {
        let time = timed(|| client.run(target))?;
        failed += usize::from(time >= LIMIT);
        runs.record(nanoseconds(time))?;
        health.record(nanoseconds(timed(|| Ok(is_healthy(target.http)))?))?;
        std::thread::sleep(PAUSE);
    }
    Ok(vec![
        Measured::milliseconds("run", runs),
        Measured::new("failed runs", "%", 100.0 * failed as f64 / count as f64),
        Measured::milliseconds("healthz", health),
    ])
}

impl Client<'_> {
    /// Whether a run succeeds.
    fn run(&self, target: &Target) -> anyhow::Result<bool> {
        match &target.middlebox {
            Some(middlebox) => self.run_through(target, middlebox),
            None => self.run_clock(target),
        }
    }

    /// Opens a session through the middlebox with `levada http`, and makes a request over it.
    fn run_through(&self, target: &Target, middlebox: &Middlebox) -> anyhow::Result<bool> {
        let mut command = Command::new(self.binary);
        // It ends by itself if no session opens.
        command.args(["http", "--via"]);
        command.arg(format!("{}@{}:request-head=r", middlebox.identity, middlebox.address));
        command.arg(format!("{}@{}/web", target.identity, target.address));
        command.env("LEVADA_HOME", self.home).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let port = line.trim().trim_end_matches('/').rsplit(':').next().map(str::parse);
        let answered = match port {
            Some(Ok(port)) => is_healthy(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            _ => false,
        };
        child.kill()?;
        child.wait()?;
        Ok(answered)
    }

    fn run_clock(&self, target: &Target) -> anyhow::Result<bool> {
        let mut command = Command::new("timeout");
        command.arg(LIMIT.as_secs().to_string()).arg(self.binary).arg("run");
        command.arg(format!("{}@{}/clock", target.identity, target.address));
        command.env("LEVADA_HOME", self.home).stdin(Stdio::null());
        let done = command.output().with_context(|| format!("run {command:?}"))?;
        if !done.status.success() {
            let error = String::from_utf8_lossy(&done.stderr);
            eprintln!("an honest run ended with {}: {}", done.status, error.trim());
        }
        Ok(done.status.success())
    }
}

fn is_healthy(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let head = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The time of `work`; [`LIMIT`] if it fails.
fn timed(work: impl FnOnce() -> anyhow::Result<bool>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let succeeded = work()?;
    Ok(if succeeded { begun.elapsed().min(LIMIT) } else { LIMIT })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
