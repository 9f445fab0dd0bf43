//! A catalogue on several nodes: NODE/SERVICE for each of them, separated by commas.

use levada_core::{SystemRandom, shuffle};

/// The nodes in random order, so that the requests of many clients spread over them.
pub(crate) fn in_random_order(targets: &str) -> Vec<&str> {
    let mut targets: Vec<&str> = targets.split(',').collect();
    shuffle(&mut targets, &SystemRandom);
    targets
}

/// Why each of the nodes has failed so far.
#[derive(Default)]
pub(crate) struct Failures(Vec<String>);

impl Failures {
    pub(crate) fn add(&mut self, target: &str, text: String) {
        self.0.push(format!("{target}: {text}"));
    }

    /// Logs the failures that preceded the success at `target`, which would otherwise remain
    /// unnoticed.
    pub(crate) fn log_before(&self, target: &str) {
        if !self.0.is_empty() {
            tracing::warn!(failed = %self.text(), %target, "asked another node of the catalogue");
        }
    }

    pub(crate) fn text(&self) -> String {
        self.0.join("; ")
    }
}
