//! Rows: the results of all runs of one subject for one metric, as one JSON object per line.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::HarnessError;

/// The conditions of a measurement, by name.
pub type Params = BTreeMap<String, Value>;

/// Conditions from pairs of name and value.
pub fn params<const N: usize>(pairs: [(&str, Value); N]) -> Params {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The results of all runs of one subject under one set of conditions for one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `reference/experiment`.
    pub experiment: String,
    /// The measured subject.
    pub subject: String,
    /// The conditions.
    pub params: Params,
    /// The metric.
    pub metric: String,
    /// The unit of all values in the row.
    pub unit: String,
    /// The median of the runs' values.
    pub median: f64,
    /// The least of the runs' values.
    pub min: f64,
    /// The greatest of the runs' values.
    pub max: f64,
    /// The quantile of all samples of all runs; without samples, of the runs' values.
    pub p50: f64,
    /// As `p50`.
    pub p99: f64,
    /// As `p50`, if the runs had samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    /// The number of samples, if the runs had samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The number of runs.
    pub runs: usize,
    /// The value of each run, by round: ratios are computed from the pairs of the same round.
    pub values: Vec<f64>,
    /// Why runs that were kept are not reliable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl Row {
    /// A parameter as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.params.get(name)?.as_f64()
    }
}

/// The rows of a file; none if it does not exist.
///
/// # Errors
/// [`HarnessError`] if the file cannot be read or a line is not a row.
pub fn read_rows(path: &Path) -> Result<Vec<Row>, HarnessError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).map_err(HarnessError::file(path))?;
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| HarnessError::NoRow {
            path: path.to_owned(),
            line: number + 1,
            reason: error.to_string(),
        })
    };
    text.lines().enumerate().map(parse).collect()
}

/// The row of `subject` and `metric` whose parameters include `params`.
pub fn find<'a>(rows: &'a [Row], subject: &str, metric: &str, params: &Params) -> Option<&'a Row> {
    rows.iter().find(|row| {
        row.subject == subject
            && row.metric == metric
            && params.iter().all(|(name, value)| row.params.get(name) == Some(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_line_with_the_documented_keys() {
        let row = Row {
            experiment: "channels/throughput".into(),
            subject: "levada/auto".into(),
            params: params([("message_bytes", 256.into()), ("rtt_ms", 4.into())]),
            metric: "MB/s".into(),
            unit: "MB/s".into(),
            median: 2.0,
            min: 1.0,
            max: 3.0,
            p50: 2.0,
            p99: 3.0,
            p999: None,
            samples: None,
            runs: 3,
            values: vec![2.0, 1.0, 3.0],
            flags: Vec::new(),
        };
        let line = serde_json::to_string(&row).unwrap();
        let expected = r#"{"experiment":"channels/throughput","subject":"levada/auto","params":{"message_bytes":256,"rtt_ms":4},"metric":"MB/s","unit":"MB/s","median":2.0,"min":1.0,"max":3.0,"p50":2.0,"p99":3.0,"runs":3,"values":[2.0,1.0,3.0]}"#;
        assert_eq!(line, expected);
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap(), row);
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "{}\n").unwrap();
        let error = read_rows(file.path()).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
