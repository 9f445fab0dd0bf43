//! The runner of groups.

use std::error::Error;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::group::{Group, Measured, Monitor, Samples};
use crate::output::Output;
use crate::ratio::quantile;
use crate::{Case, HarnessError, Options, Params, Row};

/// Most attempts at a run that its monitor flags.
const TRIES: usize = 3;
/// The experiment name of the rows of monitors.
pub(crate) const ATTESTATION: &str = "lab/attestation";

/// Measures the groups of one experiment, one after the other.
pub struct Runner {
    options: Options,
    output: Output,
    bar: ProgressBar,
    started: Instant,
    /// The number of groups left for another call.
    left: usize,
}

/// All runs of one subject so far.
struct Collected {
    subject: String,
    metrics: Vec<Metric>,
    flags: Vec<String>,
}

struct Metric {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
    samples: Option<Samples>,
}

impl Runner {
    /// For the experiment `name` (`reference/experiment`), with `groups` groups to come.
    ///
    /// # Errors
    /// [`HarnessError`] if the folder cannot be used.
    pub fn new(name: &str, options: &Options, groups: usize) -> Result<Self, HarnessError> {
        let output = Output::new(name, options)?;
        // The bar is hidden if standard error is not a terminal.
        let bar = ProgressBar::new(groups as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(500));
        Ok(Self { options: options.clone(), output, bar, started: Instant::now(), left: 0 })
    }

    /// Whether a group with these conditions and subjects still has to be measured and there is
    /// time for it. If not, the caller can skip its preparation.
    pub fn needs<'a>(
        &mut self,
        params: &Params,
        subjects: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        let there = subjects.into_iter().all(|subject| self.output.has(subject, params));
        let minutes = self.options.limit.map(|minutes| Duration::from_secs(60 * minutes));
        let late = minutes.is_some_and(|limit| self.started.elapsed() > limit);
        if there || late {
            self.bar.inc(1);
        }
        self.left += usize::from(late && !there);
        !there && !late
    }

    /// Measures a group: one warm-up run of each subject, then rounds with one run of each, in
    /// alternating order.
    ///
    /// # Errors
    /// The first failure of a subject, or of writing rows.
    pub fn measure(&mut self, mut group: Group<'_>) -> Result<(), HarnessError> {
        let runs = self.options.runs();
        let mut monitor = group.monitor.take();
        let mut collected: Vec<Collected> = group.cases.iter().map(Collected::new).collect();
        let mut attested: Vec<Collected> = group.cases.iter().map(Collected::new).collect();
        for run in 0..=runs {
            let count = group.cases.len();
            for position in 0..count {
                let index = if run % 2 == 0 { position } else { count - 1 - position };
                let case = &mut group.cases[index];
                self.bar.set_message(format!("{} {}", describe(&group.params), case.subject));
                if run == 0 {
                    run_case(case)?;
                    continue;
                }
                let into = (&mut collected[index], &mut attested[index]);
                self.run_attested(case, monitor.as_deref_mut(), into)?;
            }
        }
        let mut rows = Vec::new();
        for (experiment, all) in [(group.experiment, collected), (ATTESTATION, attested)] {
            rows.extend(all.into_iter().flat_map(|one| one.rows(experiment, &group.params)));
        }
        self.bar.inc(1);
        self.bar.suspend(|| self.output.add(&rows))
    }

    fn run_attested(
        &self,
        case: &mut Case<'_>,
        mut monitor: Option<&mut (dyn Monitor + '_)>,
        (collected, attested): (&mut Collected, &mut Collected),
    ) -> Result<(), HarnessError> {
        let tries = if self.options.quick { 1 } else { TRIES };
        for attempt in 1..=tries {
            if let Some(monitor) = &mut monitor {
                monitor.begin();
            }
            let measured = run_case(case)?;
            let report = monitor.as_mut().map(|monitor| monitor.end()).unwrap_or_default();
            if report.flag.is_some() && attempt < tries {
                continue;
            }
            collected.flags.extend(report.flag);
            collected.add(measured);
            attested.add(report.measured);
            break;
        }
        Ok(())
    }

    /// Records the lab's settings for the next group, once if they do not change.
    ///
    /// # Errors
    /// [`HarnessError`] if they cannot be written.
    pub fn note(&mut self, settings: &[(String, String)]) -> Result<(), HarnessError> {
        self.bar.suspend(|| self.output.note(settings))
    }

    /// All rows of this experiment, including those of earlier calls, and the number of groups left
    /// for another call.
    pub fn finish(self) -> (Vec<Row>, usize) {
        self.bar.finish_and_clear();
        (self.output.into_rows(), self.left)
    }

    /// All rows so far.
    pub fn rows(&self) -> &[Row] {
        self.output.rows()
    }
}

fn run_case(case: &mut Case<'_>) -> Result<Vec<Measured>, HarnessError> {
    (case.run)().map_err(|error| HarnessError::Subject {
        subject: case.subject.clone(),
        reason: explain(&*error),
    })
}

/// The error and its sources, joined by colons.
fn explain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let source = error.to_string();
        // Some messages already end with their source.
        if !text.ends_with(&source) {
            text = format!("{text}: {source}");
        }
        cause = error.source();
    }
    text
}

fn describe(params: &Params) -> String {
    let pairs: Vec<_> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}

impl Collected {
    fn new(case: &Case<'_>) -> Self {
        Self { subject: case.subject.clone(), metrics: Vec::new(), flags: Vec::new() }
    }

    fn add(&mut self, measured: Vec<Measured>) {
        for Measured { metric, unit, value, samples } in measured {
            let Some(known) = self.metrics.iter_mut().find(|known| known.name == metric) else {
                self.metrics.push(Metric { name: metric, unit, values: vec![value], samples });
                continue;
            };
            known.values.push(value);
            if let (Some(all), Some(more)) = (&mut known.samples, samples) {
                // Both histograms resize automatically, so this cannot fail.
                let _ = all.histogram.add(more.histogram);
            }
        }
    }

    fn rows(self, experiment: &str, params: &Params) -> impl Iterator<Item = Row> {
        let experiment = experiment.to_owned();
        let params = params.clone();
        let subject = self.subject;
        let flags = self.flags;
        self.metrics.into_iter().map(move |metric| Row {
            experiment: experiment.clone(),
            subject: subject.clone(),
            params: params.clone(),
            flags: flags.clone(),
            ..metric.row()
        })
    }
}

impl Metric {
    fn row(self) -> Row {
        let of_runs = |q| quantile(&self.values, q);
        let of_samples =
            |samples: &Samples, q| samples.histogram.value_at_quantile(q) as f64 * samples.scale;
        let samples = self.samples.as_ref();
        let count = |samples: &Samples| Histogram::len(&samples.histogram);
        Row {
            experiment: String::new(),
            subject: String::new(),
            params: Params::new(),
            metric: self.name.to_owned(),
            unit: self.unit.to_owned(),
            median: of_runs(0.5),
            min: of_runs(0.0),
            max: of_runs(1.0),
            p50: samples.map_or_else(|| of_runs(0.5), |samples| of_samples(samples, 0.5)),
            p99: samples.map_or_else(|| of_runs(0.99), |samples| of_samples(samples, 0.99)),
            p999: samples.map(|samples| of_samples(samples, 0.999)),
            samples: samples.map(count),
            runs: self.values.len(),
            flags: Vec::new(),
            call: None,
            values: self.values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::MonitorReport;
    use std::cell::RefCell;

    /// Flags the first runs.
    struct FlagFirst(usize);

    impl Monitor for FlagFirst {
        fn begin(&mut self) {}

        fn end(&mut self) -> MonitorReport {
            self.0 = self.0.saturating_sub(1);
            let flag = (self.0 > 0).then(|| "late".to_owned());
            MonitorReport { measured: vec![Measured::new("lateness", "ms", 1.0)], flag }
        }
    }

    fn group<'a>(calls: &'a RefCell<String>, monitor: Option<Box<dyn Monitor + 'a>>) -> Group<'a> {
        let case = |name: &'static str| {
            let mut value = 0.0;
            Case::new(name, move || {
                calls.borrow_mut().push_str(name);
                value += 1.0;
                Ok(vec![Measured::new("m", "u", value)])
            })
        };
        let cases = vec![case("a"), case("b")];
        Group { experiment: "t/e", params: Params::new(), cases, monitor }
    }

    fn options(quick: bool) -> Options {
        Options { json: true, quick, commit: Some("test".into()), ..Options::default() }
    }

    #[test]
    fn subjects_alternate_and_the_warm_up_round_is_not_counted() {
        let calls = RefCell::default();
        let mut runner = Runner::new("t/e", &options(true), 1).unwrap();
        runner.measure(group(&calls, None)).unwrap();
        assert_eq!(*calls.borrow(), "abbaabba");
        let (rows, left) = runner.finish();
        assert_eq!((rows.len(), left), (2, 0));
        assert_eq!((rows[0].subject.as_str(), &rows[0].values), ("a", &vec![2.0, 3.0, 4.0]));
    }

    #[test]
    fn a_flagged_run_is_repeated_then_kept_with_its_flag() {
        let calls = RefCell::default();
        let mut runner = Runner::new("t/e", &options(false), 1).unwrap();
        runner.measure(group(&calls, Some(Box::new(FlagFirst(5))))).unwrap();
        let (rows, _) = runner.finish();
        let of = |experiment: &str| rows.iter().filter(|row| row.experiment == experiment).count();
        assert_eq!((of("t/e"), of(ATTESTATION)), (2, 2));
        // b is first in the first counted round: it is flagged three times and kept; then a is
        // flagged once.
        let b = rows.iter().find(|row| row.subject == "b").unwrap();
        assert_eq!((b.runs, b.flags.len()), (5, 1));
        assert_eq!(calls.borrow().matches('a').count(), 1 + 5 + 1);
        assert_eq!(calls.borrow().matches('b').count(), 1 + 5 + 2);
    }

    #[test]
    fn a_quick_run_is_never_repeated() {
        let calls = RefCell::default();
        let mut runner = Runner::new("t/e", &options(true), 1).unwrap();
        runner.measure(group(&calls, Some(Box::new(FlagFirst(99))))).unwrap();
        assert_eq!(calls.borrow().len(), 8);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("start the server")]
    struct NotStarted(#[source] std::io::Error);

    #[test]
    fn explain_joins_sources_without_repetition() {
        let full = || std::io::Error::other("the disk is full");
        assert_eq!(explain(&NotStarted(full())), "start the server: the disk is full");
        let file = HarnessError::File { path: "rows".into(), source: full() };
        assert_eq!(explain(&file), "rows: the disk is full");
    }

    #[test]
    fn existing_rows_need_resume() {
        let folder = tempfile::tempdir().unwrap();
        let calls = RefCell::default();
        let out = Options { out: Some(folder.path().into()), ..options(true) };
        let mut runner = Runner::new("t/e", &out, 1).unwrap();
        runner.measure(group(&calls, None)).unwrap();
        drop(runner);
        assert!(matches!(Runner::new("t/e", &out, 1), Err(HarnessError::RowsThere(_))));
        let resume = Options { resume: Some(folder.path().into()), ..options(true) };
        let mut runner = Runner::new("t/e", &resume, 1).unwrap();
        assert!(!runner.needs(&Params::new(), ["a", "b"]));
        assert!(runner.needs(&Params::new(), ["a", "c"]));
        assert_eq!(runner.finish().0.len(), 2);
    }
}
