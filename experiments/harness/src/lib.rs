//! Measures subjects side by side, and turns what was measured into rows and figures.
//!
//! A [`Group`] holds the subjects that are compared under the same conditions. A [`Runner`] runs them in turns,
//! so that whatever else the machine does falls on all of them alike, and makes one [`Row`] of all the runs of a
//! subject. Figures and ratios come from rows and from nothing else.

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

pub use ends::{Clock, Ends, Window, on_threads, own_cpu_time, pin};
pub use error::HarnessError;
pub use figure::{Axis, Figure, Panel, Scale, Series, Stroke};
pub use group::{Attested, Case, Group, Measured, Witness};
pub use machine::Machine;
pub use options::Options;
pub use ratio::{best, ratio, ratio_row};
pub use row::{Params, Row, find, params, read_rows};
pub use runner::Runner;
