//! The output of rows: to a file, and to standard output as JSON lines or as a table.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use crate::machine::{MACHINE, append};
use crate::row::{compact_line, read_rows};
use crate::runner::ATTESTATION;
use crate::{HarnessError, Machine, Options, Params, Row};

/// The rows of one experiment.
pub(crate) struct Output {
    name: String,
    json: bool,
    /// The lab settings recorded so far.
    noted: Vec<BTreeMap<String, String>>,
    file: Option<(PathBuf, File)>,
    /// The date of this call, by which rows name its line of [`MACHINE`].
    call: Option<String>,
    rows: Vec<Row>,
}

impl Output {
    pub(crate) fn new(name: &str, options: &Options) -> Result<Self, HarnessError> {
        let mut output = Self {
            name: name.to_owned(),
            json: options.json,
            noted: Vec::new(),
            file: None,
            call: None,
            rows: Vec::new(),
        };
        let Some(folder) = options.folder() else { return Ok(output) };
        let machine = Machine::current(options)?;
        output.call = Some(machine.date.clone());
        fs::create_dir_all(folder).map_err(HarnessError::file(folder))?;
        let short = name.rsplit('/').next().unwrap_or(name);
        let path = folder.join(format!("{short}.jsonl"));
        let rows = read_rows(&path)?;
        if options.resume.is_none() && !rows.is_empty() {
            return Err(HarnessError::RowsThere(path));
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        output.file = Some((path.clone(), file.map_err(HarnessError::file(&path))?));
        machine.append(&folder.join(MACHINE), name)?;
        output.show(&rows)?;
        output.rows = rows;
        Ok(output)
    }

    /// Whether there are rows of `subject` under these conditions.
    pub(crate) fn has(&self, subject: &str, params: &Params) -> bool {
        self.rows.iter().any(|row| row.subject == subject && row.params == *params)
    }

    pub(crate) fn add(&mut self, rows: &[Row]) -> Result<(), HarnessError> {
        if let Some((path, file)) = &mut self.file {
            let of_call = |row: &Row| compact_line(&Row { call: self.call.clone(), ..row.clone() });
            let lines: String = rows.iter().map(of_call).collect();
            file.write_all(lines.as_bytes()).map_err(HarnessError::file(path))?;
        }
        self.show(rows)?;
        self.rows.extend_from_slice(rows);
        Ok(())
    }

    /// Records the lab's settings once, in [`MACHINE`], or on standard error if no rows are kept.
    pub(crate) fn note(&mut self, settings: &[(String, String)]) -> Result<(), HarnessError> {
        let lab: BTreeMap<String, String> = settings.iter().cloned().collect();
        if lab.is_empty() || self.noted.contains(&lab) {
            return Ok(());
        }
        if let Some((path, _)) = &self.file {
            append(
                &path.with_file_name(MACHINE),
                &LabSettings { experiment: &self.name, lab: &lab },
            )?;
        } else {
            let pairs = lab.iter().map(|(name, value)| format!("{name} = {value}"));
            eprintln!("lab: {}", pairs.collect::<Vec<_>>().join(", "));
        }
        self.noted.push(lab);
        Ok(())
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    fn show(&self, rows: &[Row]) -> Result<(), HarnessError> {
        let text: String =
            if self.json { rows.iter().map(compact_line).collect() } else { table(rows) };
        print(&text)
    }
}

/// Prints `text` to standard output. If its reader has closed the pipe, as `head` does, the rest is
/// discarded.
///
/// # Errors
/// [`HarnessError::Output`] for any other error.
pub fn print(text: &str) -> Result<(), HarnessError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(HarnessError::Output),
    }
}

#[derive(Serialize)]
struct LabSettings<'a> {
    experiment: &'a str,
    lab: &'a BTreeMap<String, String>,
}

/// One line per row, under a heading with the conditions. Rows of monitors are left out.
fn table(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.experiment != ATTESTATION).collect();
    let mut text = String::new();
    let mut last_heading = None;
    let width = rows.iter().map(|row| row.subject.chars().count()).max().unwrap_or(0);
    for row in rows {
        let heading = (&row.experiment, &row.params);
        if last_heading != Some(heading) {
            last_heading = Some(heading);
            let pairs = row.params.iter().map(|(name, value)| format!("  {name} {value}"));
            text += &format!("\n{}{}\n", row.experiment, pairs.collect::<String>());
        }
        let pad = width - row.subject.chars().count();
        text += &format!(
            "  {}{:pad$}  {:<18} {:>10} {:<9} {} … {}{}\n",
            row.subject,
            "",
            row.metric,
            short(row.median),
            row.unit,
            short(row.min),
            short(row.max),
            if row.flags.is_empty() { "" } else { "  flagged" },
        );
    }
    text
}

/// Three significant digits, or all integer digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
