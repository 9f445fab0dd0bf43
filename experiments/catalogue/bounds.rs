//! Means with confidence intervals.

use levada_harness::Row;

/// Student's t for 95 %, two-sided, by degrees of freedom from 1 on.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A mean and its confidence interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The mean.
    pub mean: f64,
    /// The lower bound, never below 0.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl Bounds {
    /// The mean and bounds of a row's values; both bounds equal the mean if there is only one
    /// value.
    pub fn of(row: &Row) -> Self {
        let count = row.values.len() as f64;
        let mean = row.values.iter().sum::<f64>() / count.max(1.0);
        let squares = row.values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        let off = t(row.values.len().saturating_sub(1)) * deviation / count.max(1.0).sqrt();
        Self { mean, low: (mean - off).max(0.0), high: mean + off }
    }
}

/// The quantile for these degrees of freedom; beyond the table it is approximated by 1.96 + 2.4 /
/// freedom.
fn t(freedom: usize) -> f64 {
    match freedom.checked_sub(1) {
        None => 0.0,
        Some(index) => T.get(index).copied().unwrap_or(1.96 + 2.4 / freedom as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Bounds {
        let row = serde_json::json!({
            "experiment": "e", "subject": "s", "params": {}, "metric": "m", "unit": "u",
            "median": 0.0, "min": 0.0, "max": 0.0, "p50": 0.0, "p99": 0.0,
            "runs": values.len(), "values": values,
        });
        Bounds::of(&serde_json::from_value(row).unwrap())
    }

    #[test]
    fn bounds_follow_students_t() {
        // The mean of 1 to 5 is 3, the deviation 1.5811, t(4) 2.776.
        let bounds = of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((bounds.mean - 3.0).abs() < 1e-9);
        assert!((bounds.high - 4.963).abs() < 1e-3, "{bounds:?}");
        assert!((bounds.low - 1.037).abs() < 1e-3, "{bounds:?}");
    }

    #[test]
    fn the_bounds_of_one_value_are_the_value() {
        assert_eq!(of(&[2.0]), Bounds { mean: 2.0, low: 2.0, high: 2.0 });
        // t(60) is 2.000 in the tables.
        assert!((t(60) - 2.0).abs() < 1e-3);
    }
}
