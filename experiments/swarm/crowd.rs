//! A coordinator with thousands of registered connections that do nothing: its memory, and the time of a peer that fetches. Real sockets.

mod coordinator;
mod idle;
mod peer;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{env, fs};

use anyhow::{Context, ensure};
use clap::Subcommand;
use levada_harness::{Case, Group, Measured, Options, Params, params};

use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "swarm/crowd";
/// The subject.
pub const SUBJECT: &str = "levada/coordinator";
/// The content in bytes, in chunks of 1 KiB, so that a download is a sequence of requests and answers.
const LENGTH: usize = 64 << 10;
/// Downloads of a run.
const DOWNLOADS: usize = 40;

/// The numbers of idle connections that are compared.
pub fn counts(quick: bool) -> [usize; 2] {
    [0, if quick { 1000 } else { 10_000 }]
}

/// The conditions of rows.
pub fn conditions(idle: usize) -> Params {
    params([("idle_connections", idle.into()), ("bytes", LENGTH.into())])
}

/// The processes of this experiment, which it starts itself.
#[derive(Subcommand)]
pub enum Part {
    /// The coordinator, until its standard input ends
    Coordinator,
    /// Connections that do nothing, until its standard input ends
    Idle {
        /// Where the coordinator listens
        address: String,
        /// Its identity
        identity: String,
        /// How many
        count: usize,
    },
}

/// Runs one of the processes.
pub fn run_part(part: Part) -> anyhow::Result<()> {
    match part {
        Part::Coordinator => coordinator::run(),
        Part::Idle { address, identity, count } => idle::run(&address, &identity, count),
    }
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let counts = counts(options.quick);
    let mut measuring = Measuring::new(NAME, options, counts.len())?;
    for idle in counts {
        let at = conditions(idle);
        if measuring.needs(&at, &[SUBJECT.to_owned()]) {
            let case = Case::new(SUBJECT, move || Ok(measure(idle)?));
            measuring.group(Group {
                experiment: NAME,
                params: at,
                cases: vec![case],
                monitor: None,
            })?;
        }
    }
    Ok(measuring.finish())
}

fn measure(idle: usize) -> anyhow::Result<Vec<Measured>> {
    let mut coordinator = Process::start(&["coordinator"])?;
    let (address, identity) = (coordinator.line()?, coordinator.line()?);
    let count = idle.to_string();
    let mut crowd = Process::start(&["idle", &address, &identity, &count])?;
    ensure!(crowd.line()? == "ready", "the idle connections are not there");
    ensure!(coordinator.ask("peers")? == count, "the coordinator has other connections");
    let times = peer::downloads(&address, &identity, LENGTH, DOWNLOADS)?;
    let memory = resident(coordinator.child.id())?;
    Ok(vec![
        Measured::new("download", "ms", median(times) * 1e3),
        Measured::new("memory", "MiB", memory as f64 / f64::from(1 << 20)),
    ])
}

/// A process of this program, which ends with its standard input; killed when dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(words: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["swarm", "crowd-part"]).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, input, output })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "a process of the experiment has ended");
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        writeln!(self.input, "{question}")?;
        self.line()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The resident memory of a process in bytes.
fn resident(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kilobytes.context("no VmRSS")? << 10)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
