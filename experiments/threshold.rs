//! Thresholds of compared figures.

use levada_harness::Row;

use crate::table::{mark, short};

/// The threshold of a figure.
#[derive(Clone, Copy)]
pub enum Threshold {
    /// The figure must be at least this.
    AtLeast(f64),
    /// The figure must be at most this.
    AtMost(f64),
    /// No threshold: the figure is shown for comparison.
    Any,
}

use Threshold::{Any, AtLeast, AtMost};

impl Threshold {
    /// The threshold as text.
    pub fn text(self) -> String {
        match self {
            AtLeast(limit) => format!("≥ {limit}"),
            AtMost(limit) => format!("≤ {limit}"),
            Any => String::new(),
        }
    }

    /// The median, `!` if runs were flagged, a mark whether it meets the threshold, and the range. A threshold within the
    /// range is within the machine's noise.
    pub fn evaluate(self, ratio: &Row) -> String {
        let verdict = self.verdict(ratio.median);
        let flagged = mark(ratio);
        let range = format!("({} … {})", short(ratio.min), short(ratio.max));
        format!("{}{flagged}{verdict} {range}", short(ratio.median))
    }

    /// Returns the mark of a value that meets the threshold or misses it, with a space before it.
    pub fn verdict(self, value: f64) -> &'static str {
        match self {
            AtLeast(limit) if value >= limit => " ✓",
            AtMost(limit) if value <= limit => " ✓",
            AtLeast(_) | AtMost(_) => " ✗",
            Any => "",
        }
    }
}
