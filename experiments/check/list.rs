//! The list of the references' figures in `experiments/README.md`.

use std::path::Path;

/// The page, and the most words of it.
const PAGE: &str = "experiments/README.md";
const MAX_WORDS: usize = 1500;
/// The number of figures of the references, and of lines of the fourth one's table.
const FIGURES: usize = 34;
const LINES: usize = 22;
/// The head of the list.
const HEAD: &str = "| figure | verdict | page |";
/// The verdicts.
const VERDICTS: [&str; 4] = ["confirmed", "not confirmed", "another regime", "not measured"];

/// Lines of the list without one of the verdicts or without a page, and a page that is too long.
pub fn errors(root: &Path) -> anyhow::Result<Vec<String>> {
    let text = super::read(root, PAGE)?;
    let words = text.split_whitespace().filter(|word| *word != "|").count();
    let mut errors = Vec::new();
    if words > MAX_WORDS {
        errors.push(format!("{PAGE}: {words} words, more than {MAX_WORDS}"));
    }
    let mut lines = 0;
    for table in text.split(HEAD).skip(1) {
        for line in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
            lines += 1;
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let verdict = cells.get(1).copied().unwrap_or_default();
            if !VERDICTS.contains(&verdict) {
                errors.push(format!("{PAGE}: `{line}`: not one of {}", VERDICTS.join(", ")));
            }
            let page =
                cells.get(2).and_then(|cell| cell.split_once("](")?.1.split([')', '#']).next());
            if !page.is_some_and(|page| root.join("experiments").join(page).is_file()) {
                errors.push(format!("{PAGE}: `{line}`: no such page"));
            }
        }
    }
    if lines != FIGURES + LINES {
        errors.push(format!("{PAGE}: {lines} figures, not {}", FIGURES + LINES));
    }
    Ok(errors)
}
