//! A histogram with fixed buckets. The one of `prometheus_client` takes a lock for each value.

use std::fmt;
use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Counts durations by upper bounds in seconds. Clones share the counters.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// Upper bounds in seconds, ascending, without the infinite one.
    bounds: &'static [f64],
    /// The number of values in each bucket; the last bucket has no upper bound.
    buckets: Vec<AtomicU64>,
    /// The sum of all values, in microseconds.
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Counts { bounds, buckets, sum: AtomicU64::new(0) }))
    }

    pub(crate) fn observe(&self, duration: Duration) {
        let Counts { bounds, buckets, sum } = &*self.0;
        let seconds = duration.as_secs_f64();
        let index = bounds.partition_point(|bound| *bound < seconds);
        if let Some(bucket) = buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        sum.fetch_add(micros, Ordering::Relaxed);
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        let Counts { bounds, buckets, sum } = &*self.0;
        let counts = buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let bounds = bounds.iter().copied().chain(once(f64::INFINITY));
        let buckets: Vec<_> = bounds.zip(counts).collect();
        // From the same values as the buckets, so that the last one is equal to it.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let seconds = Duration::from_micros(sum.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_value_counts_in_each_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&[0.5, 2.0]);
        let mut registry = Registry::default();
        registry.register("x", "X", histogram.clone());
        for millis in [100, 500, 501, 2000, 9000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "x_sum 12.101",
            "x_count 5",
            "x_bucket{le=\"0.5\"} 2",
            "x_bucket{le=\"2.0\"} 4",
            "x_bucket{le=\"+Inf\"} 5",
        ];
        assert_eq!(lines, expected);
    }
}
