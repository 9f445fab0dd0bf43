//! Generated blocks of pages: `<!-- xp FOLDER: TITLE -->`, a table or caption, `<!-- /xp -->`.

use std::collections::BTreeMap;
use std::path::Path;

use super::pages::REPORTS;
use super::{calls, pictures};
use crate::table::Table;

/// The beginning and the end of the line before a block, and the line after it.
const BEGIN: &str = "<!-- xp ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- /xp -->";

/// Returns true if a line begins a block.
pub fn begins(line: &str) -> bool {
    line.starts_with(BEGIN)
}

/// Returns true if a line ends a block.
pub fn ends(line: &str) -> bool {
    line == END
}

/// The tables of folders that have been asked for.
struct Made<'a> {
    root: &'a Path,
    tables: BTreeMap<String, Vec<Table>>,
}

/// The page with all blocks as the rows give them.
pub fn written(root: &Path, page: &str, text: &str) -> anyhow::Result<String> {
    let mut made = Made { root, tables: BTreeMap::new() };
    let mut written = String::new();
    let mut is_inside = false;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        if ends(bare) {
            is_inside = false;
        }
        if !is_inside {
            written += line;
        }
        if begins(bare) {
            anyhow::ensure!(!is_inside, "{page}: `{bare}` within another block");
            is_inside = true;
            let name = bare.trim_start_matches(BEGIN).trim_end_matches(BEGIN_END);
            written += &made.block(name).map_err(|error| error.context(page.to_owned()))?;
        }
    }
    anyhow::ensure!(!is_inside, "{page}: a block has no `{END}`");
    Ok(written)
}

/// The blocks that differ from the rows.
pub fn errors(root: &Path, page: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let written = written(root, page, text)?;
    let differs = |(number, (is, should)): (usize, (&str, &str))| {
        (is != should).then(|| format!("{page}:{}: is `{is}`, should be `{should}`", number + 1))
    };
    if written == *text {
        return Ok(Vec::new());
    }
    let first = text.lines().zip(written.lines()).enumerate().find_map(differs);
    Ok(vec![first.unwrap_or_else(|| format!("{page}: a block has too few or too many lines"))])
}

impl Made<'_> {
    fn block(&mut self, name: &str) -> anyhow::Result<String> {
        let found = name.split_once(": ");
        let Some((folder, title)) = found else { anyhow::bail!("`{name}` is not FOLDER: TITLE") };
        let path = self.root.join("experiments").join(folder);
        if title == calls::TITLE {
            return calls::table(&path);
        }
        if title.ends_with(".svg") {
            return pictures::block(&path, folder, title);
        }
        if !self.tables.contains_key(folder) {
            let first = folder.split('/').next().unwrap_or_default();
            let report = REPORTS.iter().find(|report| report.folder == first);
            let Some(report) = report else { anyhow::bail!("`{folder}` has no report") };
            self.tables.insert(folder.to_owned(), (report.tables)(&path)?);
        }
        let tables = self.tables.get(folder).map(Vec::as_slice).unwrap_or_default();
        // A title may go on with the numbers of its runs.
        let longer = format!("{title} (");
        let is_named = |table: &&Table| table.title == title || table.title.starts_with(&longer);
        let mut found = tables.iter().filter(is_named);
        let table = found.next();
        anyhow::ensure!(found.next().is_none(), "`{folder}` has several tables `{title}`");
        let titles = || tables.iter().map(|table| table.title.as_str()).collect::<Vec<_>>();
        let Some(table) = table else {
            anyhow::bail!("`{folder}` has no table `{title}`, but: {}", titles().join("; "))
        };
        Ok(table.to_string() + "\n")
    }
}
