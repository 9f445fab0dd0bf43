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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<f64>,
    /// Why runs that were kept are not reliable.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "counted")]
    pub flags: Vec<String>,
    /// The date of the call that measured them, which identifies its line of `machine.jsonl`. Rows
    /// of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
}

/// Flags as a map of their counts; lists are read, too.
mod counted {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Flags {
        Listed(Vec<String>),
        Counted(BTreeMap<String, u32>),
    }

    pub fn serialize<S: Serializer>(flags: &[String], to: S) -> Result<S::Ok, S::Error> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for flag in flags {
            *counts.entry(flag).or_default() += 1;
        }
        counts.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match Flags::deserialize(from)? {
            Flags::Listed(flags) => flags,
            Flags::Counted(counts) => counts
                .into_iter()
                .flat_map(|(flag, count)| std::iter::repeat_n(flag, count as usize))
                .collect(),
        })
    }
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

/// The significant digits of a value in a file of rows.
const DIGITS: usize = 6;

/// A row as a line of its file: one JSON object, with values of six significant digits.
pub fn compact_line(row: &Row) -> String {
    let mut row = row.clone();
    let values = [&mut row.median, &mut row.min, &mut row.max, &mut row.p50, &mut row.p99];
    for value in values.into_iter().chain(&mut row.p999).chain(&mut row.values) {
        *value = rounded(*value);
    }
    // A row has only values that JSON can represent.
    serde_json::to_string(&row).map(|line| line + "\n").unwrap_or_default()
}

fn rounded(value: f64) -> f64 {
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
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
            call: None,
        };
        let line = serde_json::to_string(&row).unwrap();
        let expected = r#"{"experiment":"channels/throughput","subject":"levada/auto","params":{"message_bytes":256,"rtt_ms":4},"metric":"MB/s","unit":"MB/s","median":2.0,"min":1.0,"max":3.0,"p50":2.0,"p99":3.0,"runs":3,"values":[2.0,1.0,3.0]}"#;
        assert_eq!(line, expected);
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap(), row);
        let late = vec!["late".to_owned(), "late".to_owned()];
        let flagged = Row { flags: late, median: 2.0 / 3.0, ..row };
        let line = compact_line(&flagged);
        assert!(line.contains(r#""median":0.666667,"#), "{line}");
        assert!(line.contains(r#""flags":{"late":2}"#), "{line}");
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap().flags, flagged.flags);
        let listed = line.replace(r#"{"late":2}"#, r#"["late","late"]"#);
        assert_eq!(serde_json::from_str::<Row>(&listed).unwrap().flags, flagged.flags);
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "{}\n").unwrap();
        let error = read_rows(file.path()).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
