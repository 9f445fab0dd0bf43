//! Tables. On a terminal they fit its width: keys are abbreviated, then names stand for their keys,
//! then text is cut, and at last each row is shown as a list of its cells.

use std::collections::BTreeSet;

use clap::Args;
use unicode_width::UnicodeWidthStr;

use super::cell::{Cell, Form};
use super::screen::{Screen, cut, wrap};
use crate::directory;

/// The spaces between two columns.
const GAP: usize = 2;
/// The same for a table that does not fit otherwise.
const MIN_GAP: usize = 1;
/// The columns that a cut cell keeps, at least.
const MIN_TEXT: usize = 8;

/// The option of verbs that print tables.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Wide {
    /// Show keys, ids and texts in full, also where they do not fit the terminal
    #[arg(long)]
    wide: bool,
}

/// The lines of rows of a name and a value, the values in one column.
pub fn pairs(rows: &[(&str, Cell)], wide: Wide, screen: Screen) -> Vec<String> {
    let rows: Vec<(&str, &Cell)> = rows.iter().map(|(name, cell)| (*name, cell)).collect();
    let keys = keys(rows.iter().map(|(_, cell)| *cell), screen, wide);
    list(&rows, form(screen, wide), &keys, screen)
}

/// The lines of rows under a heading.
pub fn lines(heading: &[&str], rows: &[Vec<Cell>], wide: Wide, screen: Screen) -> Vec<String> {
    let keys = keys(rows.iter().flatten(), screen, wide);
    let grid = |form| Grid::new(heading, rows, form, &keys);
    let form = form(screen, wide);
    let whole = grid(form);
    let Some(space) = screen.columns.filter(|_| !wide.wide) else {
        return whole.lines(&whole.widths(), screen);
    };
    if total(&whole.widths(), GAP) <= space {
        return whole.lines(&whole.widths(), screen);
    }
    let narrow = grid(Form::Narrow);
    for gap in [GAP, MIN_GAP] {
        if let Some(widths) = narrow.widths_within(space, gap) {
            return Grid { gap, ..narrow }.lines(&widths, screen);
        }
    }
    records(heading, rows, &keys, screen)
}

fn form(screen: Screen, wide: Wide) -> Form {
    match screen.columns {
        _ if wide.wide => Form::Wide,
        None => Form::Piped,
        Some(_) => Form::Short,
    }
}

/// The keys that an abbreviation must differ from: all that are shown, and all of this home.
fn keys<'a>(cells: impl Iterator<Item = &'a Cell>, screen: Screen, wide: Wide) -> BTreeSet<String> {
    if screen.columns.is_none() || wide.wide {
        return BTreeSet::new();
    }
    let shown: BTreeSet<String> = cells.filter_map(Cell::key_text).map(str::to_owned).collect();
    if shown.is_empty() { shown } else { shown.union(directory::keys()).cloned().collect() }
}

/// The width of a line whose columns have these widths and are `gap` spaces apart.
fn total(widths: &[usize], gap: usize) -> usize {
    widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1)
}

/// A table whose cells have one form.
struct Grid<'a> {
    heading: &'a [&'a str],
    rows: &'a [Vec<Cell>],
    texts: Vec<Vec<String>>,
    gap: usize,
}

impl<'a> Grid<'a> {
    fn new(
        heading: &'a [&'a str],
        rows: &'a [Vec<Cell>],
        form: Form,
        keys: &BTreeSet<String>,
    ) -> Self {
        let texts = rows.iter().map(|row| row.iter().map(|cell| cell.shown(form, keys)).collect());
        Self { heading, rows, texts: texts.collect(), gap: GAP }
    }

    /// The width of the widest cell of each column.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heading.iter().map(|cell| cell.width()).collect();
        for row in &self.texts {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        widths
    }

    /// Widths with which a line has at most `space` columns: the widest text is cut first. `None`
    /// if only less than [`MIN_TEXT`] columns would be left of a text.
    fn widths_within(&self, space: usize, gap: usize) -> Option<Vec<usize>> {
        let mut widths = self.widths();
        let columns = self.heading.iter().zip(&widths).enumerate();
        let mins: Vec<usize> =
            columns.map(|(at, (name, width))| self.min(at, name, *width)).collect();
        while total(&widths, gap) > space {
            let cuttable = widths.iter_mut().zip(&mins).filter(|(width, min)| **width > **min);
            let (widest, _) = cuttable.max_by_key(|(width, _)| **width)?;
            *widest -= 1;
        }
        Some(widths)
    }

    /// The width that a column keeps, at least.
    fn min(&self, column: usize, name: &str, width: usize) -> usize {
        let is_cuttable = self.rows.iter().all(|row| row.get(column).is_none_or(Cell::is_cuttable));
        if is_cuttable { width.min(MIN_TEXT.max(name.width())) } else { width }
    }

    fn lines(&self, widths: &[usize], screen: Screen) -> Vec<String> {
        let heading: Vec<String> = self.heading.iter().map(|&cell| cell.to_owned()).collect();
        let mut lines = vec![bold(&self.line(&heading, widths, |_| None), screen)];
        for (row, texts) in self.rows.iter().zip(&self.texts) {
            let color =
                |column: usize| row.get(column).and_then(Cell::color).filter(|_| screen.is_colored);
            lines.push(self.line(texts, widths, color));
        }
        lines
    }

    /// A line of cells, each as wide as its column.
    fn line(
        &self,
        texts: &[String],
        widths: &[usize],
        color: impl Fn(usize) -> Option<u8>,
    ) -> String {
        let mut line = String::new();
        let mut pending = 0;
        for (column, (text, width)) in texts.iter().zip(widths).enumerate() {
            let text = cut(text, *width);
            // Written before the next text, so that no line ends with spaces.
            if !text.is_empty() {
                line.push_str(&" ".repeat(pending));
                pending = 0;
            }
            pending += width - text.width() + self.gap;
            line.push_str(&painted(&text, color(column)));
        }
        line
    }
}

/// Each row as a list of its cells.
fn records(
    heading: &[&str],
    rows: &[Vec<Cell>],
    keys: &BTreeSet<String>,
    screen: Screen,
) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let cells: Vec<(&str, &Cell)> = heading.iter().copied().zip(row).collect();
        lines.extend(list(&cells, Form::Short, keys, screen));
    }
    lines
}

/// Names and values; on a terminal the values are wrapped.
fn list(
    rows: &[(&str, &Cell)],
    form: Form,
    keys: &BTreeSet<String>,
    screen: Screen,
) -> Vec<String> {
    let width = rows.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let space = screen.columns.map_or(usize::MAX, |columns| columns.saturating_sub(width + GAP));
    let mut lines = Vec::new();
    for (name, cell) in rows {
        let color = cell.color().filter(|_| screen.is_colored);
        let mut start = format!("{}{}", bold(name, screen), " ".repeat(width - name.width() + GAP));
        for part in wrap(&cell.shown(form, keys), space) {
            lines.push(format!("{start}{}", painted(&part, color)));
            start = " ".repeat(width + GAP);
        }
    }
    lines
}

fn bold(text: &str, screen: Screen) -> String {
    painted(text, screen.is_colored.then_some(1))
}

/// `text` between the sequence for a colour or for bold text, and the one that ends it (ECMA-48:
/// SGR).
fn painted(text: &str, code: Option<u8>) -> String {
    code.map_or_else(|| text.to_owned(), |code| format!("\x1b[{code}m{text}\x1b[0m"))
}

#[cfg(test)]
mod tests {
    use levada_core::Identity;

    use super::*;

    const HEADING: &[&str] = &["name", "state", "identity", "address", "services"];

    fn at(columns: Option<usize>) -> Screen {
        Screen { columns, is_colored: false }
    }

    fn key(byte: u8) -> String {
        Identity::from_bytes([byte; 32]).to_string()
    }

    fn rows() -> Vec<Vec<Cell>> {
        let row = |name: &str, byte, services: &str| {
            vec![
                name.into(),
                Cell::state("pinned"),
                Cell::key(&key(byte), None),
                "192.0.2.1:5382".into(),
                services.into(),
            ]
        };
        vec![row("cellar", 1, "echo, clock"), row("映画", 2, "a-service, another-service")]
    }

    fn shown(columns: Option<usize>, wide: bool) -> Vec<String> {
        lines(HEADING, &rows(), Wide { wide }, at(columns))
    }

    #[test]
    fn a_file_and_wide_tables_have_whole_keys_in_aligned_columns() {
        for lines in [shown(None, false), shown(Some(40), true)] {
            assert_eq!(
                lines[1],
                format!("cellar  pinned  {}  192.0.2.1:5382  echo, clock", key(1))
            );
            assert!(lines[2].starts_with(&format!("映画    pinned  {}", key(2))), "{}", lines[2]);
        }
    }

    #[test]
    fn no_line_of_a_table_is_wider_than_the_terminal() {
        for columns in 30..120 {
            for line in shown(Some(columns), false) {
                assert!(line.width() <= columns, "{columns}: {line}");
                assert!(!line.ends_with(' '), "{line}");
            }
        }
        let wide_enough = shown(Some(80), false);
        assert!(!wide_enough.iter().any(|line| line.contains('…')), "{wide_enough:?}");
        assert!(wide_enough[1].contains(&format!("  {}  ", &key(1)[..10])), "{wide_enough:?}");
        assert!(shown(Some(60), false)[2].ends_with('…'));
    }

    #[test]
    fn a_narrow_terminal_gets_a_list_for_each_row() {
        let lines = shown(Some(40), false);
        assert_eq!(lines[..2], ["name      cellar", "state     pinned"]);
        assert_eq!(lines[5..7], ["", "name      映画"]);
    }

    #[test]
    fn a_name_stands_alone_where_its_key_does_not_fit() {
        let cell = |name| vec![Cell::named(name, &key(3), Some(10)), Cell::whole("12345")];
        let rows = [cell(Some("alice")), cell(None)];
        let lines = |columns| lines(&["holder", "n"], &rows, Wide::default(), at(columns));
        let short = &key(3)[..10];
        assert_eq!(lines(None)[1], format!("alice ({short})  12345"));
        assert_eq!(lines(Some(80))[1], format!("alice ({short})  12345"));
        assert_eq!(lines(Some(20))[1], "alice       12345");
        assert_eq!(lines(Some(20))[2], format!("{short}  12345"));
    }

    #[test]
    fn abbreviations_in_a_table_differ() {
        let mut other = [4; 32];
        other[31] = 5;
        let other = Identity::from_bytes(other).to_string();
        let rows = [vec![Cell::key(&key(4), None)], vec![Cell::key(&other, None)]];
        let lines = lines(&["identity"], &rows, Wide::default(), at(Some(80)));
        assert!(lines[1] != lines[2] && lines[1].len() > 40, "{lines:?}");
        assert!(key(4).starts_with(&lines[1]) && other.starts_with(&lines[2]));
    }

    #[test]
    fn headings_are_bold_and_states_that_matter_have_a_colour() {
        let screen = Screen { columns: Some(80), is_colored: true };
        let rows = [vec![Cell::state("denied"), "a\u{1b}[2J".into()], vec![Cell::state("other")]];
        let lines = lines(&["state", "text"], &rows, Wide::default(), screen);
        assert_eq!(lines[0], "\u{1b}[1mstate   text\u{1b}[0m");
        assert_eq!(lines[1], "\u{1b}[31mdenied\u{1b}[0m  a\\u{1b}[2J");
        assert_eq!(lines[2], "other");
    }

    #[test]
    fn values_are_wrapped_at_spaces_below_each_other() {
        let rows = [("service", &"one two three".into()), ("n", &Cell::whole(7))];
        let lines = list(&rows, Form::Short, &BTreeSet::new(), at(Some(16)));
        assert_eq!(lines, ["service  one two", "         three", "n        7"]);
    }
}
