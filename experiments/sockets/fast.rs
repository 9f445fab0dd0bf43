//! Measurements in a process whose sockets are fast.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;

use super::apart;
use super::experiment::{ALL, BREAKDOWN, Experiment};
use super::subject::{SUBJECTS, Subject};
use crate::binary::{build, levada};

/// The exchange in which `breakdown` lets connections leave TCP.
pub const OFFER_AT: usize = 4;
/// Of the connections of [`Subject::FastDirect`], the part that must be without the kernel.
const DIRECT_SHARE: f64 = 0.95;

/// Whether a subject is measured in a process of its own, with fast sockets.
pub fn is_fast(subject: Subject) -> bool {
    use Subject::{Fast, FastDirect, FastSleeping, FastSpinning};
    matches!(subject, Fast | FastSleeping | FastSpinning | FastDirect)
}

/// One measurement of one subject.
#[derive(Args)]
pub struct Part {
    /// The experiment's name in rows
    experiment: String,
    /// The subject's
    subject: String,
    /// The value of the condition
    value: usize,
    /// As in the experiment
    #[arg(long)]
    quick: bool,
}

impl Part {
    /// Measures, and prints the figures as JSON.
    pub fn run(&self) -> anyhow::Result<()> {
        let subject = SUBJECTS.into_iter().find(|subject| subject.to_string() == self.subject);
        let subject = subject.context("no subject has this name")?;
        let experiment = ALL.into_iter().find(|experiment| experiment.name == self.experiment);
        let run = experiment.context("no experiment has this name")?.run;
        let value = self.value;
        let quick = self.quick;
        let measured = apart(move || run(subject, value, quick))?;
        let values: Vec<_> = measured.iter().map(|one| (one.metric, one.value)).collect();
        Ok(levada_harness::print(&serde_json::to_string(&values)?)?)
    }
}

/// Measures `subject` in a process that `levada fast` starts, and checks that its bytes went
/// through rings, or that its connections were direct: the values of its metrics.
pub fn measure(
    experiment: &Experiment,
    subject: Subject,
    value: usize,
    quick: bool,
) -> anyhow::Result<Vec<(String, f64)>> {
    let folder = tempfile::tempdir()?;
    let stats = folder.path().join("stats");
    let mut command = Command::new(binary()?);
    command.arg("fast").args((subject == Subject::FastDirect).then_some("--direct"));
    command.arg(format!("--stats={}", stats.display())).arg("--");
    command.arg(env::current_exe()?).args(["sockets", "part", experiment.name]);
    command.args([subject.to_string(), value.to_string()]).args(quick.then_some("--quick"));
    if subject == Subject::FastSleeping {
        command.env("LEVADA_FAST_SPIN", "0");
    }
    if experiment.name == BREAKDOWN.name {
        command.env("LEVADA_FAST_OFFER_AT", OFFER_AT.to_string());
    }
    let output = command.stderr(Stdio::inherit()).output().context("run `levada fast`")?;
    ensure!(output.status.success(), "`levada fast` failed: {}", output.status);
    let stats: Value = serde_json::from_str(&fs::read_to_string(&stats)?)?;
    if subject == Subject::FastDirect {
        let share = direct_share(&stats);
        ensure!(share >= DIRECT_SHARE, "only {share:.3} of the connections were direct: {stats}");
    } else {
        let share = stats["ring_share_after_trigger"].as_f64().unwrap_or(0.0);
        let least = (experiment.through_rings)(value);
        ensure!(share >= least, "only {share:.3} of the bytes went through rings: {stats}");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Of the closed connections that have carried bytes, the part that the kernel did not know.
pub fn direct_share(stats: &Value) -> f64 {
    let count = |name: &str| stats["closed"][name].as_f64().unwrap_or(0.0);
    count("direct") / count("connections").max(1.0)
}

/// The binary `levada`, with the library beside it, built once.
pub fn binary() -> anyhow::Result<&'static PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if BINARY.get().is_none() {
        build(&["--package", "levada-preload"])?;
        let _ = BINARY.set(levada()?);
    }
    BINARY.get().context("there is no binary")
}
