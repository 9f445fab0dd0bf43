//! What the command line says about a measurement.

use std::path::PathBuf;

use clap::Args;

/// How to measure, and where to put what was measured.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Print every row as one JSON object per line on standard output, and nothing else
    #[arg(long)]
    pub json: bool,

    /// Fewer conditions and three runs instead of five: a few minutes
    #[arg(long)]
    pub quick: bool,

    /// How often each subject is run; more tell more on a machine whose neighbours come and go
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: Option<u16>,

    /// Keep rows and figures in this folder, which has no rows of this experiment yet
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// As --out, but go on where an earlier call stopped: what has rows in DIR is not measured again
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,

    /// Stop before the next group of subjects once so many minutes have passed (go on with --resume)
    #[arg(long, value_name = "MINUTES")]
    pub limit: Option<u64>,
}

impl Options {
    /// How often each subject is run, after one run that does not count.
    pub fn runs(&self) -> usize {
        let usual = if self.quick { 3 } else { 5 };
        self.runs.map_or(usual, usize::from)
    }

    /// Where rows are kept.
    pub fn folder(&self) -> Option<&PathBuf> {
        self.resume.as_ref().or(self.out.as_ref())
    }
}
