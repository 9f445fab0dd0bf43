//! Ratios of two subjects, computed from the pairs of runs of the same round.

use crate::row::{Params, Row, find};

/// The ratios of `a`'s values to `b`'s, pair by pair, as a row; `None` if the rows have no pairs.
pub fn ratio_row(a: &Row, b: &Row) -> Option<Row> {
    let pairs = a.values.iter().zip(&b.values).filter(|(_, b)| **b > 0.0);
    let values: Vec<f64> = pairs.map(|(a, b)| a / b).collect();
    let flags = [&a.flags[..], &b.flags[..]].concat();
    let subject = format!("{} ÷ {}", a.subject, b.subject);
    (!values.is_empty()).then(|| Row {
        experiment: a.experiment.clone(),
        subject,
        params: a.params.clone(),
        metric: format!("{} ratio", a.metric),
        unit: "1".to_owned(),
        median: quantile(&values, 0.5),
        min: quantile(&values, 0.0),
        max: quantile(&values, 1.0),
        p50: quantile(&values, 0.5),
        p99: quantile(&values, 0.99),
        p999: None,
        samples: None,
        runs: values.len(),
        values,
        flags,
        call: None,
    })
}

/// The exponent of the values over the parameter `name`, as a row: for each round, the
/// least-squares slope of the logarithms over all `rows`. `None` with fewer than two different
/// parameters.
pub fn exponent_row(rows: &[&Row], name: &str) -> Option<Row> {
    let runs = rows.iter().map(|row| row.values.len()).min()?;
    let round = |run: usize| {
        let point = |row: &&Row| Some((row.number(name)?.ln(), row.values[run].ln()));
        fit_line(&rows.iter().map(point).collect::<Option<Vec<_>>>()?).map(|(_, slope)| slope)
    };
    let values = (0..runs).map(round).collect::<Option<Vec<f64>>>()?;
    let first = rows.first()?;
    let one = Row { values: vec![1.0; runs], ..(*first).clone() };
    let row = ratio_row(&Row { values, ..(*first).clone() }, &one)?;
    Some(Row { metric: format!("exponent of {} over {name}", first.metric), ..row })
}

/// The line through points with the least squares, as its value at 0 and its slope; `None` if all
/// have the same first coordinate.
pub fn fit_line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let x = mean(|point| point.0);
    let y = mean(|point| point.1);
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let joint: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let slope = joint / spread;
    (spread > 0.0).then_some((y - slope * x, slope))
}

/// The row with the highest median among the subjects whose names begin with `prefix`.
pub fn best<'a>(rows: &'a [Row], prefix: &str, metric: &str, params: &Params) -> Option<&'a Row> {
    let of = |row: &&Row| {
        find(std::slice::from_ref(*row), &row.subject, metric, params).is_some()
            && row.subject.starts_with(prefix)
            && !row.subject.contains(" ÷ ")
    };
    rows.iter().filter(of).max_by(|a, b| a.median.total_cmp(&b.median))
}

/// The quantile `q` of `values`, with linear interpolation; 0 if there are none.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let index = q * last as f64;
    let low = sorted[index.floor() as usize];
    let high = sorted[index.ceil() as usize];
    low + (high - low) * index.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, values: &[f64]) -> Row {
        Row {
            experiment: "e".into(),
            subject: subject.into(),
            params: Params::new(),
            metric: "m".into(),
            unit: "u".into(),
            median: quantile(values, 0.5),
            min: 0.0,
            max: 0.0,
            p50: 0.0,
            p99: 0.0,
            p999: None,
            samples: None,
            runs: values.len(),
            values: values.to_vec(),
            flags: Vec::new(),
            call: None,
        }
    }

    #[test]
    fn a_ratio_is_the_median_of_pairs() {
        // The machine was three times as fast in the second run, which cancels out in a pair.
        let a = row("a", &[2.0, 6.0, 2.0]);
        let b = row("b", &[1.0, 3.0, 4.0]);
        assert_eq!(ratio_row(&a, &b).unwrap().median, 2.0);
        assert_eq!(ratio_row(&a, &row("none", &[])), None);
    }

    #[test]
    fn an_exponent_is_that_of_a_power_law() {
        let at = |n: u32, time: fn(f64) -> f64| Row {
            params: crate::params([("n", n.into())]),
            ..row("a", &[time(n.into()), 2.0 * time(n.into())])
        };
        let cubic = [1, 10, 50].map(|n| at(n, |n| 5.0 * n.powi(3)));
        let found = exponent_row(&cubic.iter().collect::<Vec<_>>(), "n").unwrap();
        assert!(found.values.len() == 2 && (found.median - 3.0).abs() < 1e-9, "{found:?}");
        assert_eq!(exponent_row(&[&cubic[0]], "n"), None);
        assert_eq!(exponent_row(&[&cubic[0], &cubic[1]], "m"), None);
    }

    #[test]
    fn best_has_the_highest_median() {
        let rows = [row("x/1", &[1.0]), row("x/2", &[3.0]), row("y", &[9.0])];
        assert_eq!(best(&rows, "x/", "m", &Params::new()).unwrap().subject, "x/2");
    }

    #[test]
    fn quantiles_interpolate_between_neighbours() {
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0], 0.99), 1.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
