//! `levada man`: the manual pages.

use crate::args;
use crate::failure::{Failure, NO, Outcome};
use crate::output;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::path::{Path, PathBuf};

/// Print a manual page, or write all of them to a folder
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada man run | man -l -
  levada man --dir /usr/local/share/man/man1")]
pub struct Arguments {
    /// The verb; `levada` itself if not given
    verb: Option<String>,

    /// Write the page of every verb to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "verb")]
    dir: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Outcome {
    let mut command = args::Arguments::command();
    command.build();
    match (arguments.dir, arguments.verb) {
        (Some(folder), _) => write_all(&command, &folder),
        (None, None) => output::bytes(&page(&command)?),
        (None, Some(verb)) => match command.find_subcommand(&verb) {
            Some(verb) => output::bytes(&page(verb)?),
            None => {
                Err(Failure::new(NO, format!("there is no verb `{verb}`; see `levada --help`")))
            }
        },
    }
}

fn write_all(command: &Command, folder: &Path) -> Outcome {
    fs::create_dir_all(folder).map_err(Failure::file("make the folder", folder))?;
    for command in std::iter::once(command).chain(command.get_subcommands()) {
        let file = folder.join(format!("{}.1", page_name(command)));
        fs::write(&file, page(command)?).map_err(Failure::file("write", &file))?;
    }
    Ok(0)
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).map_err(Failure::output)?;
    Ok(page)
}

/// `levada-run`, as git names its pages.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}
