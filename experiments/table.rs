//! Tables in Markdown, aligned for terminals.

use std::fmt;

use levada_harness::Row;

/// A table with its title.
pub struct Table {
    /// The title above the table.
    pub title: String,
    /// The header cells.
    pub head: Vec<String>,
    /// The other lines, each with as many cells as the header.
    pub lines: Vec<Vec<String>>,
}

impl Table {
    /// A table without lines.
    pub fn new<T: Into<String>>(title: &str, head: impl IntoIterator<Item = T>) -> Self {
        let head = head.into_iter().map(Into::into).collect();
        Self { title: title.to_owned(), head, lines: Vec::new() }
    }

    /// The table without columns that are empty in all lines.
    pub fn compact(mut self) -> Self {
        let used = |column: usize| self.lines.iter().any(|line| !line[column].is_empty());
        let used: Vec<bool> = (0..self.head.len()).map(used).collect();
        for line in [&mut self.head].into_iter().chain(&mut self.lines) {
            let mut column = used.iter();
            line.retain(|_| column.next() == Some(&true));
        }
        self
    }

    fn width(&self, column: usize) -> usize {
        let lines = [&self.head].into_iter().chain(&self.lines);
        let cells = lines.filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.head.len()).map(|column| self.width(column)).collect();
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            for (cell, width) in cells.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")
        };
        writeln!(f, "\n**{}**\n", self.title)?;
        line(f, &self.head)?;
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        line(f, &rule)?;
        self.lines.iter().try_for_each(|cells| line(f, cells))
    }
}

/// The median of a row, marked with `!` if its runs were flagged.
pub fn median(row: &Row) -> String {
    short(row.median) + mark(row)
}

/// The median of a row as [`median`], and the range of its runs if they differ.
pub fn ranged(row: &Row) -> String {
    let least = short(row.min);
    let greatest = short(row.max);
    let median = median(row);
    if least == greatest { median } else { format!("{median} ({least} … {greatest})") }
}

/// The mark of a row whose runs were flagged.
pub fn mark(row: &Row) -> &'static str {
    if row.flags.is_empty() { "" } else { " !" }
}

/// Prints the tables that have lines.
pub fn print(tables: &[Table]) -> anyhow::Result<()> {
    for table in tables {
        levada_harness::print(&table.to_string())?;
    }
    Ok(())
}

/// The tables that have lines, without their empty columns.
pub fn filled(tables: impl IntoIterator<Item = Table>) -> Vec<Table> {
    let has_lines = |table: &Table| !table.lines.is_empty();
    tables.into_iter().filter(has_lines).map(Table::compact).collect()
}

/// Three significant digits, or all integer digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("T", ["what", "ours"]);
        table.lines.push(vec!["a long one".into(), short(1.5)]);
        let expected =
            "\n**T**\n\n| what       | ours |\n| ---------- | ---- |\n| a long one | 1.50 |\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn compact_removes_empty_columns() {
        let mut table = Table::new("T", ["a", "b", "c"]);
        table.lines.push(vec!["1".into(), String::new(), "3".into()]);
        let table = table.compact();
        assert_eq!(
            (table.head, table.lines),
            (vec!["a".into(), "c".into()], vec![vec!["1".into(), "3".into()]])
        );
    }
}
