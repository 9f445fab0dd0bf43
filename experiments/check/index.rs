//! Rows by their ids.

use std::collections::BTreeMap;
use std::path::Path;

use levada_harness::{Row, read_rows};

use super::files;
use super::unit::{Kind, Unit};
use crate::table::short;

/// The number of letters of an id.
const LETTERS: usize = 6;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// All rows.
pub struct Index {
    rows: BTreeMap<String, Vec<(String, Row)>>,
    /// The conditions with a unit, in the base of its kind.
    conditions: Vec<(Kind, f64)>,
}

impl Index {
    /// Reads the rows of a checkout.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let experiments = root.join("experiments");
        let mut rows: BTreeMap<String, Vec<(String, Row)>> = BTreeMap::new();
        for path in files::all(root)? {
            let folder = path.parent().unwrap_or(&path);
            let folder = folder.strip_prefix(&experiments).unwrap_or(folder);
            let folder = folder.display().to_string();
            for row in read_rows(&path)? {
                rows.entry(id(&folder, &row)).or_default().push((folder.clone(), row));
            }
        }
        let mut conditions = Vec::new();
        for (_, row) in rows.values().flatten() {
            for (name, value) in &row.params {
                let found = Unit::of_condition(name).zip(value.as_f64());
                let condition = found.map(|(unit, value)| (unit.kind, value * unit.base));
                conditions.extend(condition.filter(|one| !conditions.contains(one)));
            }
        }
        Ok(Self { rows, conditions })
    }

    /// The row with an id.
    pub fn row(&self, id: &str) -> Result<&Row, String> {
        match self.rows.get(id).map(Vec::as_slice) {
            Some([(_, row)]) => Ok(row),
            Some(_) => Err(format!("`{id}` names several rows")),
            None => Err(format!("`{id}` names no row")),
        }
    }

    /// Returns true if a row has such a condition: `rtt_ms` of 4 is `4 ms`.
    pub fn is_condition(&self, value: f64, unit: Unit) -> bool {
        let value = value * unit.base;
        let is_same = |(kind, condition): &(Kind, f64)| {
            *kind == unit.kind && (condition - value).abs() <= 1e-9 * value.abs()
        };
        self.conditions.iter().any(is_same)
    }

    /// A line for each row that contains all words.
    pub fn lines(&self, words: &[String]) -> String {
        let mut lines = Vec::new();
        for (id, (folder, row)) in
            self.rows.iter().flat_map(|(id, rows)| rows.iter().map(move |row| (id, row)))
        {
            let params = serde_json::to_string(&row.params).unwrap_or_default();
            let key = [folder, &row.experiment, &row.subject, &params, &row.metric];
            let key = key.map(String::as_str).join("  ");
            let [median, min, max, p50, p99] =
                [row.median, row.min, row.max, row.p50, row.p99].map(short);
            let flags = if row.flags.is_empty() { "" } else { "  flagged" };
            let unit = &row.unit;
            let line = format!(
                "{key}  [{id}]  {median} {unit} ({min} … {max}; p50 {p50}, p99 {p99}){flags}\n"
            );
            if words.iter().all(|word| line.contains(word)) {
                lines.push(line);
            }
        }
        lines.sort();
        lines.concat()
    }
}

/// The id of a row: letters of the FNV-1a hash of what identifies it.
fn id(folder: &str, row: &Row) -> String {
    // Maps with text keys always become JSON.
    let params = serde_json::to_string(&row.params).unwrap_or_default();
    let key = [folder, &row.experiment, &row.subject, &params, &row.metric].join("\n");
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    // The last bytes alone change few of the upper bits.
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = hash ^ (hash >> 33);
    let letter = |place: usize| ALPHABET[(hash >> (64 - 5 * (place + 1))) as usize % 32] as char;
    (0..LETTERS).map(letter).collect()
}
