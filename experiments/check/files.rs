//! Files of rows: their compact form, and their size.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use levada_harness::{Row, compact_line, read_rows};

/// The most bytes of all rows together.
const MAX_BYTES: usize = 5_000_000;
/// The experiment name of rows on the lab, which flags make superfluous once a call has ended.
const ATTESTATION: &str = "lab/attestation";
/// The end of the names of simulated subjects.
const SIMULATED: &str = "(simulated)";
/// Files that have other lines than rows.
const OTHERS: [&str; 1] = ["machine.jsonl"];

/// Rows that are not in their compact form, measured twice, or too many.
pub fn errors(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut errors = Vec::new();
    let mut bytes = 0;
    for path in all(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).context(shown.clone())?;
        bytes += text.len();
        if text != compact(&path)? {
            errors.push(format!("{shown}: not compact, or two rows of the same"));
        }
    }
    if bytes > MAX_BYTES {
        errors.push(format!("rows have {bytes} bytes, more than {MAX_BYTES}"));
    }
    Ok(errors)
}

/// Writes all rows in their compact form.
pub fn write(root: &Path) -> anyhow::Result<()> {
    for path in all(root)? {
        fs::write(&path, compact(&path)?)?;
    }
    Ok(())
}

/// The rows of a file, of two of the same the later.
fn compact(path: &Path) -> anyhow::Result<String> {
    let rows = read_rows(path)?;
    let mut known = HashSet::new();
    let mut kept: Vec<&Row> = Vec::new();
    for row in rows.iter().rev().filter(|row| row.experiment != ATTESTATION) {
        let params = serde_json::to_string(&row.params)?;
        if known.insert((&row.experiment, &row.subject, params, &row.metric)) {
            kept.push(row);
        }
    }
    Ok(kept.into_iter().rev().map(|row| compact_line(&once(row))).collect())
}

/// A simulation that gave the same in all runs, as one run: it measured nothing more than once.
fn once(row: &Row) -> Row {
    let mut row = row.clone();
    let is_same = row.values.windows(2).all(|pair| pair[0] == pair[1]);
    if row.subject.ends_with(SIMULATED) && is_same && !row.values.is_empty() {
        row.values.truncate(1);
        row.runs = row.values.len();
    }
    row
}

/// All files of rows.
pub fn all(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = vec![root.join("experiments")];
    let mut all = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            }
        }
        all.extend(within(&folder, "jsonl")?);
    }
    let is_other = |path: &PathBuf| OTHERS.iter().any(|name| path.ends_with(name));
    all.retain(|path| !is_other(path));
    all.sort();
    Ok(all)
}

/// The files of a folder with an extension, sorted.
pub fn within(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        all.push(entry?.path());
    }
    all.retain(|path| path.extension().is_some_and(|one| one == extension));
    all.sort();
    Ok(all)
}
