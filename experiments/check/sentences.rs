//! Figures in sentences: each names its row by a marker, or stands in a section without rows.

use super::index::Index;
use super::numbers::{Number, Part, parts};
use super::pages::WITHOUT_ROWS;
use super::unit::Unit;
use super::{blocks, expression};

/// The expressions of a number that is a setting of the experiment, or a value of a paper.
const SETTING: &str = "set";
const PAPER: &str = "paper";
/// Ticks, which only reports give.
const TICKS: [char; 2] = ['✓', '✗'];
/// Words in the heads of columns whose numbers are those of a paper, or limits.
const COLUMNS: [&str; 2] = ["paper", "wanted"];

/// A paragraph, a heading or a cell, with the number of its first line.
struct Text {
    line: usize,
    text: String,
    is_cell: bool,
}

/// The figures of a page that differ from their rows, and those that name none.
pub fn errors(index: &Index, page: &str, text: &str) -> Vec<String> {
    let check = |text: &Text| {
        let found = wrong(index, text);
        let line = text.line;
        found.into_iter().map(move |error| format!("{page}:{line}: {error}")).collect::<Vec<_>>()
    };
    texts(text).iter().flat_map(check).collect()
}

/// The texts of a page without code, generated blocks and sections without rows.
fn texts(text: &str) -> Vec<Text> {
    let mut all: Vec<Text> = Vec::new();
    let mut state = State::default();
    for (number, line) in text.lines().enumerate() {
        if state.skips(line) {
            state.is_open = false;
            continue;
        }
        let first = line.trim_start();
        if first.starts_with('|') {
            state.is_open = false;
            all.extend(state.cells(number + 1, first));
            continue;
        }
        state.head.clear();
        let starts = first.is_empty() || first.starts_with("- ") || first.starts_with('#');
        match all.last_mut().filter(|_| state.is_open && !starts) {
            Some(last) => last.text += &format!(" {first}"),
            None => all.push(Text { line: number + 1, text: first.to_owned(), is_cell: false }),
        }
        state.is_open = !first.is_empty() && !first.starts_with('#');
    }
    all
}

/// The place in a page.
#[derive(Default)]
struct State {
    is_code: bool,
    is_generated: bool,
    /// The level of the heading whose section is left out.
    without: Option<usize>,
    /// The last text may continue.
    is_open: bool,
    /// The heads of the current table.
    head: Vec<String>,
}

impl State {
    /// Returns true if a line has no figures to compare.
    fn skips(&mut self, line: &str) -> bool {
        let was_inside = self.is_code || self.is_generated;
        if line.trim_start().starts_with("```") {
            self.is_code = !self.is_code;
        } else if !self.is_code {
            self.is_generated = (self.is_generated || blocks::begins(line)) && !blocks::ends(line);
        }
        if was_inside || self.is_code || self.is_generated {
            return true;
        }
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if level > 0 {
            let is_left_out = WITHOUT_ROWS.contains(&title.trim());
            if self.without.is_none_or(|least| level <= least) {
                self.without = is_left_out.then_some(level);
            }
        }
        self.without.is_some()
    }

    /// The cells of a line of a table, without those of columns that have no figures of rows.
    fn cells(&mut self, line: usize, text: &str) -> Vec<Text> {
        let cells = text.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        let cells: Vec<String> = cells.collect();
        if self.head.is_empty() {
            self.head = cells;
            return Vec::new();
        }
        let is_shown = |(column, _): &(usize, String)| {
            let head = self.head.get(*column).map_or("", String::as_str);
            !COLUMNS.iter().any(|word| head.contains(word))
        };
        let shown = cells.into_iter().enumerate().filter(is_shown);
        shown.map(|(_, text)| Text { line, text, is_cell: true }).collect()
    }
}

/// A number without a marker so far, and whether it is claimed by one.
struct Figure {
    number: Number,
    is_claimed: bool,
}

fn wrong(index: &Index, text: &Text) -> Vec<String> {
    let mut errors = Vec::new();
    if text.text.contains(TICKS) {
        errors.push(format!("a tick that no report gives: `{}`", text.text));
    }
    let mut figures: Vec<Figure> = Vec::new();
    for part in parts(&text.text) {
        match part {
            Part::Number(number) => figures.push(Figure { number, is_claimed: false }),
            Part::Marker(marker) => errors.extend(claim(index, &mut figures, &marker).err()),
        }
    }
    let is_number = text.is_cell && is_only_number(&text.text);
    for figure in figures.iter().filter(|figure| !figure.is_claimed) {
        let Number { value, unit, .. } = figure.number;
        let is_condition = unit.is_some_and(|unit| index.is_condition(value, unit));
        if (unit.is_some() || is_number) && !is_condition {
            errors.push(format!("`{}` names no row", figure.number.text));
        }
    }
    errors
}

fn is_only_number(text: &str) -> bool {
    text.chars().all(|one| !one.is_alphabetic()) && text.contains(|one: char| one.is_ascii_digit())
}

/// Compares the last numbers before a marker with its expressions.
fn claim(index: &Index, figures: &mut [Figure], marker: &str) -> Result<(), String> {
    let expressions: Vec<&str> = marker.split(',').collect();
    let free = figures.iter().rev().take_while(|figure| !figure.is_claimed).count();
    let Some(first) = free.checked_sub(expressions.len()) else {
        return Err(format!("`{marker}` has more rows than numbers before it"));
    };
    let first = figures.len() - free + first;
    let mut unit = figures.last().and_then(|figure| figure.number.unit);
    for (figure, text) in figures[first..].iter_mut().zip(&expressions).rev() {
        figure.is_claimed = true;
        // `1 to 2 ms` has the unit of the last number.
        unit = figure.number.unit.or(unit);
        if ![SETTING, PAPER].contains(text) {
            compare(index, &figure.number, unit, text)?;
        }
    }
    Ok(())
}

fn compare(index: &Index, number: &Number, unit: Option<Unit>, text: &str) -> Result<(), String> {
    let value = expression::evaluate(index, text)?;
    let factor = match (unit, value.unit) {
        (Some(written), Some(of_row)) if written.kind == of_row.kind => of_row.base / written.base,
        (None, _) | (Some(_), None) => 1.0,
        (Some(_), Some(_)) => {
            return Err(format!("`{}`: `{text}` has another unit", number.text));
        }
    };
    let expected = value.number * factor;
    if (expected - number.value).abs() > number.tolerance {
        return Err(format!("`{}`: `{text}` is {expected}", number.text));
    }
    if value.is_flagged && !number.is_flagged {
        return Err(format!("`{}`: the runs of `{text}` are flagged: write `!`", number.text));
    }
    Ok(())
}
