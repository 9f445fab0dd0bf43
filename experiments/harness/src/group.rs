//! What is compared: subjects under the same conditions.

use std::error::Error;

use hdrhistogram::Histogram;

use crate::Params;

/// What one run of a subject gave for one metric.
pub struct Measured {
    /// Which property.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The value of the run.
    pub value: f64,
    /// What the value is the median of, if that is worth keeping.
    pub samples: Option<Samples>,
}

/// Samples of one run: whole numbers, and how many units one of them is.
pub struct Samples {
    pub(crate) histogram: Histogram<u64>,
    pub(crate) scale: f64,
}

impl Measured {
    /// One value.
    pub fn new(metric: &'static str, unit: &'static str, value: f64) -> Self {
        Self { metric, unit, value, samples: None }
    }

    /// The median of samples in nanoseconds, told in milliseconds.
    pub fn milliseconds(metric: &'static str, nanoseconds: Histogram<u64>) -> Self {
        const SCALE: f64 = 1e-6;
        let value = nanoseconds.value_at_quantile(0.5) as f64 * SCALE;
        let samples = Some(Samples { histogram: nanoseconds, scale: SCALE });
        Self { metric, unit: "ms", value, samples }
    }
}

/// Why a subject failed: whatever it says.
pub type Failure = Box<dyn Error + Send + Sync>;

/// One subject.
pub struct Case<'a> {
    /// Its name in rows.
    pub subject: String,
    /// One run of it.
    pub run: Box<dyn FnMut() -> Result<Vec<Measured>, Failure> + 'a>,
}

impl<'a> Case<'a> {
    /// A subject and how to run it once.
    pub fn new(
        subject: impl Into<String>,
        run: impl FnMut() -> Result<Vec<Measured>, Failure> + 'a,
    ) -> Self {
        Self { subject: subject.into(), run: Box::new(run) }
    }
}

/// Watches the surroundings of a run, and says whether they were what they should be.
pub trait Witness {
    /// A run begins.
    fn begin(&mut self);
    /// It has ended.
    fn end(&mut self) -> Attested;
}

/// What a [`Witness`] saw.
#[derive(Default)]
pub struct Attested {
    /// Its measurements, which go to rows of their own.
    pub measured: Vec<Measured>,
    /// What speaks against the run.
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
    /// Who watches, if anybody.
    pub witness: Option<Box<dyn Witness + 'a>>,
}
