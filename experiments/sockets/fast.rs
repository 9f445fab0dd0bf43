//! Measurements in a process whose sockets are fast.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use anyhow::{Context, ensure};
use clap::Args;
use levada_harness::Measured;
use serde_json::Value;

use super::exchange::{ONE_WAY, ROUND_TRIP, latency, throughput};
use super::subject::{SUBJECTS, Subject};
use super::{LATENCY, apart};
use crate::binary::levada;

/// Of the bytes after the trigger of the upgrade, the part that must go through rings: else the row would not be what it says.
const THROUGH_RINGS: f64 = 0.99;

/// Whether a subject is measured in a process of its own, with fast sockets.
pub fn is_fast(subject: Subject) -> bool {
    matches!(subject, Subject::Fast | Subject::FastSleeping | Subject::FastSpinning)
}

/// One measurement of one subject.
#[derive(Args)]
pub struct Part {
    /// The experiment's name in rows
    experiment: String,
    /// The subject's
    subject: String,
    /// Bytes of a message
    length: usize,
    /// As in the experiment
    #[arg(long)]
    quick: bool,
}

impl Part {
    /// Measures, and prints the figures as JSON.
    pub fn run(self) -> anyhow::Result<()> {
        let subject = SUBJECTS.into_iter().find(|subject| subject.to_string() == self.subject);
        let subject = subject.context("no subject has this name")?;
        let one = if self.experiment == LATENCY { latency } else { throughput };
        let measured = apart(move || one(subject, self.length, self.quick))?;
        let values: Vec<f64> = measured.iter().map(|one| one.value).collect();
        Ok(levada_harness::print(&serde_json::to_string(&values)?)?)
    }
}

/// Measures `subject` in a process that `levada fast` starts, and checks that its bytes went through rings.
pub fn measure(
    experiment: &str,
    subject: Subject,
    length: usize,
    quick: bool,
) -> anyhow::Result<Vec<Measured>> {
    let folder = tempfile::tempdir()?;
    let stats = folder.path().join("stats");
    let mut command = Command::new(binary()?);
    command.arg("fast").arg(format!("--stats={}", stats.display())).arg("--");
    command.arg(env::current_exe()?).args(["sockets", "part", experiment]);
    command.args([subject.to_string(), length.to_string()]).args(quick.then_some("--quick"));
    if subject == Subject::FastSleeping {
        command.env("LEVADA_FAST_SPIN", "0");
    }
    let output = command.stderr(Stdio::inherit()).output().context("run `levada fast`")?;
    ensure!(output.status.success(), "`levada fast` failed: {}", output.status);
    let stats: Value = serde_json::from_str(&fs::read_to_string(&stats)?)?;
    let share = stats["ring_share_after_trigger"].as_f64().unwrap_or(0.0);
    ensure!(share >= THROUGH_RINGS, "only {share:.3} of the bytes went through rings: {stats}");
    let values: Vec<f64> = serde_json::from_slice(&output.stdout)?;
    let figures = if experiment == LATENCY { ROUND_TRIP.as_slice() } else { ONE_WAY.as_slice() };
    ensure!(values.len() == figures.len(), "the process printed other figures");
    let named = figures.iter().zip(values);
    Ok(named.map(|(&(metric, unit), value)| Measured::new(metric, unit, value)).collect())
}

/// The binary `levada`, with the library beside it, built once.
fn binary() -> anyhow::Result<&'static PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if BINARY.get().is_none() {
        if let Some(cargo) = env::var_os("CARGO") {
            let words = ["build", "--release", "--quiet", "--package", "levada-preload"];
            let built = Command::new(cargo).args(words).status().context("run cargo")?;
            ensure!(built.success(), "the library cannot be built");
        }
        let _ = BINARY.set(levada()?);
    }
    BINARY.get().context("there is no binary")
}
