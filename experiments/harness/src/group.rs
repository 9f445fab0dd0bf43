//! Groups: subjects that are compared under the same conditions.

use std::error::Error;

use hdrhistogram::Histogram;

use crate::Params;

/// The result of one run of a subject for one metric.
pub struct Measured {
    /// The metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The value of the run.
    pub value: f64,
    /// The samples of which the value is the median, if they are kept.
    pub samples: Option<Samples>,
}

/// The samples of one run as integers, and their scale in units of the metric.
pub struct Samples {
    pub(crate) histogram: Histogram<u64>,
    pub(crate) scale: f64,
}

impl Measured {
    /// One value.
    pub fn new(metric: &'static str, unit: &'static str, value: f64) -> Self {
        Self { metric, unit, value, samples: None }
    }

    /// The median of samples in nanoseconds, converted to milliseconds.
    pub fn milliseconds(metric: &'static str, nanoseconds: Histogram<u64>) -> Self {
        const SCALE: f64 = 1e-6;
        let value = nanoseconds.value_at_quantile(0.5) as f64 * SCALE;
        let samples = Some(Samples { histogram: nanoseconds, scale: SCALE });
        Self { metric, unit: "ms", value, samples }
    }
}

/// Why a subject failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// One subject.
pub struct Case<'a> {
    /// Its name in rows.
    pub subject: String,
    /// One run of it.
    pub run: Box<dyn FnMut() -> Result<Vec<Measured>, Failure> + 'a>,
}

impl<'a> Case<'a> {
    /// A subject, and a function that runs it once.
    pub fn new(
        subject: impl Into<String>,
        run: impl FnMut() -> Result<Vec<Measured>, Failure> + 'a,
    ) -> Self {
        Self { subject: subject.into(), run: Box::new(run) }
    }
}

/// Checks the conditions during a run: the emulated link, the load of the machine.
pub trait Monitor {
    /// Called before a run.
    fn begin(&mut self);
    /// Called after it.
    fn end(&mut self) -> MonitorReport;
}

/// The report of a [`Monitor`] on one run.
#[derive(Default)]
pub struct MonitorReport {
    /// Its measurements, which become rows of `lab/attestation`.
    pub measured: Vec<Measured>,
    /// Why the run is not reliable, if so.
    pub flag: Option<String>,
}

/// Subjects that are compared under the same conditions.
pub struct Group<'a> {
    /// `reference/experiment`.
    pub experiment: &'static str,
    /// The conditions.
    pub params: Params,
    /// The subjects.
    pub cases: Vec<Case<'a>>,
    /// Checks the conditions of each run.
    pub monitor: Option<Box<dyn Monitor + 'a>>,
}
