//! What a figure may be, and whether it is.

use levada_harness::Row;

use crate::table::short;

/// What a figure may be.
#[derive(Clone, Copy)]
pub enum Limit {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
    /// Nothing is wanted of it: it is there to compare with.
    Any,
}

use Limit::{Any, AtLeast, AtMost};

impl Limit {
    /// In words.
    pub fn text(self) -> String {
        match self {
            AtLeast(limit) => format!("≥ {limit}"),
            AtMost(limit) => format!("≤ {limit}"),
            Any => String::new(),
        }
    }

    /// The median, the verdict on it, and the least and greatest: a verdict between these is the machine's.
    pub fn judge(self, ratio: &Row) -> String {
        let value = ratio.median;
        let mark = match self {
            AtLeast(limit) if value >= limit => " ✓",
            AtMost(limit) if value <= limit => " ✓",
            AtLeast(_) | AtMost(_) => " ✗",
            Any => "",
        };
        format!("{}{mark} ({} … {})", short(value), short(ratio.min), short(ratio.max))
    }
}
