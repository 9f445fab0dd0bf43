//! Expressions of markers: `ID`, `ID.p99`, `ID/ID` (the median of the ratios of pairs of runs),
//! `ID/ID.min`, `ID.p99/ID.p99` (the quotient of two values), and `ID-ID` (their difference).

use levada_harness::{Row, ratio_row};

use super::index::Index;
use super::unit::Unit;

/// The value of an expression.
pub struct Value {
    /// The number, in its unit.
    pub number: f64,
    /// The unit; none if it does not convert.
    pub unit: Option<Unit>,
    /// True if a row has flags.
    pub is_flagged: bool,
}

/// The value of an expression, or what is wrong with it.
pub fn evaluate(index: &Index, text: &str) -> Result<Value, String> {
    if let Some((a, b)) = text.split_once('-') {
        let a = evaluate(index, a)?;
        let b = evaluate(index, b)?;
        if a.unit != b.unit {
            return Err(format!("`{text}` has two units"));
        }
        let is_flagged = a.is_flagged || b.is_flagged;
        return Ok(Value { number: a.number - b.number, unit: a.unit, is_flagged });
    }
    let Some((first, second)) = text.split_once('/') else {
        let (id, field) = split(text);
        let row = index.row(id)?;
        return value(row, field.unwrap_or("median"), Unit::of_row(&row.unit));
    };
    let (a, field) = split(first);
    let (b, last) = split(second);
    let a = index.row(a)?;
    let b = index.row(b)?;
    if field.is_none() {
        let ratio = ratio_row(a, b).ok_or_else(|| format!("`{text}` has no pairs of runs"))?;
        return value(&ratio, last.unwrap_or("median"), Some(Unit::ONE));
    }
    let a = value(a, field.unwrap_or("median"), None)?;
    let b = value(b, last.unwrap_or("median"), None)?;
    Ok(Value {
        number: a.number / b.number,
        unit: Some(Unit::ONE),
        is_flagged: a.is_flagged || b.is_flagged,
    })
}

fn split(term: &str) -> (&str, Option<&str>) {
    term.split_once('.').map_or((term, None), |(id, field)| (id, Some(field)))
}

fn value(row: &Row, field: &str, unit: Option<Unit>) -> Result<Value, String> {
    let number = match field {
        "median" => Some(row.median),
        "min" => Some(row.min),
        "max" => Some(row.max),
        "p50" => Some(row.p50),
        "p99" => Some(row.p99),
        "p999" => row.p999,
        "runs" => Some(row.runs as f64),
        _ => None,
    };
    let number = number.ok_or_else(|| format!("a row has no `{field}`"))?;
    Ok(Value { number, unit, is_flagged: !row.flags.is_empty() })
}
