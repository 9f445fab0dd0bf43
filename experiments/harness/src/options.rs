//! The command-line options of a measurement.

use std::path::PathBuf;

use clap::Args;

/// How to measure, and where to keep the rows.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Print every row as one JSON object per line on standard output, and nothing else
    #[arg(long)]
    pub json: bool,

    /// Fewer conditions and three runs instead of five: a few minutes
    #[arg(long)]
    pub quick: bool,

    /// The number of runs of each subject; more runs help on a machine with changing load
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: Option<u16>,

    /// Keep rows and figures in this folder, which must not have rows of this experiment
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// As --out, but continue an earlier call: what has rows in DIR is not measured again
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,

    /// Start no further group of subjects after this time (continue with --resume)
    #[arg(long, value_name = "MINUTES")]
    pub limit: Option<u64>,

    /// The commit to record with the rows, for a binary that was built outside a checkout;
    /// otherwise the binary has it
    #[arg(long, value_name = "COMMIT")]
    pub commit: Option<String>,
}

impl Options {
    /// The number of runs of each subject, after one warm-up run.
    pub fn runs(&self) -> usize {
        let default = if self.quick { 3 } else { 5 };
        self.runs.map_or(default, usize::from)
    }

    /// The folder of the rows.
    pub fn folder(&self) -> Option<&PathBuf> {
        self.resume.as_ref().or(self.out.as_ref())
    }
}
