//! `levada man`: shows the manual pages, or writes them to a folder.

mod pager;

use crate::commands::help;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::builder::Resettable;
use clap::{Args, Command};
use clap_mangen::Man;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// Show a manual page, or write all of them to a folder
///
/// Without a terminal at standard output, the page is printed in the language of man (roff).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada man run
  levada man run | man -t -l - > run.ps
  levada man --dir /usr/local/share/man/man1")]
pub struct Arguments {
    /// The verb, and its sub-verb if there is one; `levada` itself if not given
    verb: Vec<String>,

    /// Write the pages of all verbs and sub-verbs to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "verb")]
    dir: Option<PathBuf>,
}

pub fn run(arguments: Arguments, mut command: Command) -> Outcome {
    command.build();
    if let Some(folder) = arguments.dir {
        fs::create_dir_all(&folder).map_err(Failure::file("make the folder", &folder))?;
        write_all(&command, &folder)?;
        return Ok(0);
    }
    let found = help::find(&command, &arguments.verb)?;
    let page = page(found)?;
    match io::stdout().is_terminal() {
        true => pager::show(&page, &found.clone().render_long_help().to_string()),
        false => output::bytes(&page),
    }
}

/// Writes the pages of `command` and of its subcommands.
fn write_all(command: &Command, folder: &Path) -> Result<(), Failure> {
    let file = folder.join(format!("{}.1", page_name(command)));
    fs::write(&file, page(command)?).map_err(Failure::file("write", &file))?;
    let mut below = command.get_subcommands().filter(|one| !one.is_hide_set());
    below.try_for_each(|below| write_all(below, folder))
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let examples = command.get_after_help().map(ToString::to_string);
    let mut page = Vec::new();
    // Rendered separately: the renderer would join the lines of the examples.
    let rest = command.clone().after_help(Resettable::Reset);
    Man::new(rest).render(&mut page).map_err(Failure::output)?;
    page.extend(examples.map(|text| verbatim(&text)).unwrap_or_default().into_bytes());
    Ok(page)
}

/// A section that preserves line ends (groff_man(7), `.EX`).
fn verbatim(text: &str) -> String {
    let mut section = String::from(".SH EXAMPLES\n.EX\n");
    let lines = text.lines().filter(|line| !matches!(*line, "Example:" | "Examples:"));
    for line in lines {
        // `\&` keeps a line that begins with a dot or a quote from being a request.
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        section.push_str(&format!("\\&{line}\n"));
    }
    section.push_str(".EE\n");
    section
}

/// The name of a page, such as `levada-run`, as git names its pages.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}
