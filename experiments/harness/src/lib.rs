//! Measures subjects under the same conditions, and makes rows and figures of the results.
//!
//! A [`Group`] holds the subjects that are compared under the same conditions. A [`Runner`]
//! interleaves their runs, so that other load of the machine affects all of them alike, and makes
//! one [`Row`] of all the runs of a subject. Figures and ratios are computed from rows only.

mod ends;
mod error;
mod figure;
mod group;
mod machine;
mod options;
mod output;
mod ratio;
mod row;
mod runner;

pub use ends::{EndClocks, ThreadClock, Window, own_cpu_time, pin};
pub use error::HarnessError;
pub use figure::{Axis, Figure, Panel, Scale, Series, Stroke};
pub use group::{Case, Group, Measured, Monitor, MonitorReport};
pub use machine::{Machine, processors};
pub use options::Options;
pub use output::print;
pub use ratio::{best, exponent_row, fit_line, ratio_row};
pub use row::{Params, Row, compact_line, find, params, read_rows};
pub use runner::Runner;
