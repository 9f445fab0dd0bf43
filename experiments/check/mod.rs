//! `cargo xp check`: compares the pages and pictures with the committed rows.

mod blocks;
mod calls;
mod expression;
mod files;
mod index;
mod list;
mod numbers;
mod pages;
mod pictures;
mod sentences;
mod unit;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use index::Index;

/// The pages to compare, and the treatment of differences.
#[derive(Args)]
pub struct Arguments {
    /// Rewrite tables and pictures from the rows, and rows in their compact form
    #[arg(long)]
    write: bool,
    /// The root of the checkout
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
}

/// The words that select rows.
#[derive(Args)]
pub struct RowsArguments {
    /// Words that a row's folder, experiment, subject, conditions or metric contain
    words: Vec<String>,
    /// The root of the checkout
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
}

/// Compares, or rewrites; fails with all differences.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.write {
        write(&arguments.root)?;
    }
    let errors = errors(&arguments.root)?;
    if errors.is_empty() {
        return Ok(());
    }
    for error in &errors {
        eprintln!("{error}");
    }
    bail!("{} differences; `cargo xp check --write` rewrites tables and pictures", errors.len())
}

/// Prints the id, the conditions and the values of rows.
pub fn print_rows(arguments: &RowsArguments) -> anyhow::Result<()> {
    let index = Index::read(&arguments.root)?;
    Ok(levada_harness::print(&index.lines(&arguments.words))?)
}

/// All differences between the rows and what is shown of them.
fn errors(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut errors = files::errors(root)?;
    let index = Index::read(root)?;
    for page in pages::PAGES {
        let text = read(root, page)?;
        errors.extend(blocks::errors(root, page, &text)?);
        errors.extend(sentences::errors(&index, page, &text));
    }
    errors.extend(pictures::errors(root)?);
    errors.extend(list::errors(root)?);
    Ok(errors)
}

fn write(root: &Path) -> anyhow::Result<()> {
    files::write(root)?;
    pictures::write(root)?;
    for page in pages::PAGES {
        let text = read(root, page)?;
        let written = blocks::written(root, page, &text)?;
        if written != text {
            std::fs::write(root.join(page), written)?;
        }
    }
    Ok(())
}

fn read(root: &Path, page: &str) -> anyhow::Result<String> {
    let path = root.join(page);
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}
