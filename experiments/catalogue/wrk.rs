//! wrk: another load generator, which shows in a closed loop whether ours is too slow.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::fetch::HOST;
use crate::testbed::Testbed;

/// The metric of its rate.
pub const RATE: &str = "response rate by wrk";
/// The length of its run, in seconds.
const SECONDS: u32 = 1;

/// Whether it is installed: the Debian package `wrk`.
pub fn is_here() -> bool {
    crate::binary::find("wrk", []).is_some()
}

/// Answers per second on `connections` connections, measured on the generator's core.
pub fn rate(
    testbed: &Testbed,
    address: SocketAddr,
    path: &str,
    connections: usize,
    last: bool,
) -> anyhow::Result<f64> {
    let mut command = Command::new("taskset");
    command.args(["-c", &super::GENERATOR.to_string(), "wrk", "--threads", "1"]);
    command.args(["--connections", &connections.to_string()]);
    command.args(["--duration", &format!("{SECONDS}s"), "--header", &format!("Host: {HOST}")]);
    if last {
        command.args(["--header", "Connection: close"]);
    }
    command.arg(format!("http://{address}{path}"));
    let output = match testbed.near(|| command.output())? {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("taskset is in util-linux"),
        other => other.context("run wrk")?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk ended with {}: {text}", output.status);
    parse(&text).with_context(|| format!("wrk reported no rate of successful answers: {text}"))
}

/// The rate in wrk's output; `None` if it includes error answers.
fn parse(text: &str) -> Option<f64> {
    if text.contains("Non-2xx or 3xx responses") {
        return None;
    }
    let line = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parses_the_rate_of_wrk() {
        let text = "  15000 requests in 1.00s, 2.1MB read\nRequests/sec:  14985.02\nTransfer/sec:";
        assert_eq!(super::parse(text), Some(14985.02));
        assert_eq!(super::parse("unable to connect"), None);
        let wrong = format!("  Non-2xx or 3xx responses: 15000\n{text}");
        assert_eq!(super::parse(&wrong), None);
    }
}
