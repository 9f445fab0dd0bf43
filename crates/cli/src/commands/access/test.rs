//! `levada access test`: checks what a configuration permits, without a node.

use std::path::{Path, PathBuf};

use clap::Args;
use levada_config::read_file;
use levada_core::{Clock, SystemClock};
use levada_home::Home;
use levada_node::explain::{Answer, Wanted};

use super::lines::{Line, Rights, configured, parse};
use crate::failure::{Failure, NO, Outcome, USAGE};
use crate::output::{self, plain};

/// Check what the configuration permits, without a node
///
/// Each line of FILE is `may IDENTITY SERVICE`, `may not IDENTITY SERVICE`, or `asks IDENTITY
/// SERVICE` if a rule shall ask an entity. Parameters follow as NAME=VALUE, and arguments after
/// `--`; words with blanks stand in quotes. `#` begins a comment. Prints each line that fails, and
/// what decides. The exit code is 1 if a line fails.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada access test rights.txt
  levada access test rights.txt --config config.toml")]
pub struct Arguments {
    /// The file with the lines
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The configuration; by default `config.toml` of this home
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub fn run(home: &Home, arguments: Arguments) -> Outcome {
    let config = arguments.config.unwrap_or_else(|| home.config_file());
    if !config.exists() {
        // A node without a file has the default configuration; a mistyped path must not pass.
        return Err(Failure::local(format!("{}: there is no such file", config.display())));
    }
    let rights = configured(home, &config)?;
    let text = read_file(&arguments.file)?;
    let mut checked = 0;
    let mut failed = 0;
    for (number, text) in (1..).zip(text.lines()) {
        let place = format!("{}:{number}", arguments.file.display());
        let wrong = |error: String| Failure::new(USAGE, format!("{place}: {error}"));
        let Some(line) = parse(text).map_err(wrong)? else { continue };
        checked += 1;
        failed += usize::from(!holds(&rights, &line, Path::new(&place))?);
    }
    output::note(format_args!("{checked} lines, {failed} of them failed"));
    Ok(if failed > 0 { NO } else { 0 })
}

/// Returns true if the line is right; prints it otherwise.
fn holds(rights: &Rights, line: &Line, place: &Path) -> Result<bool, Failure> {
    let place = place.display();
    let identity = rights.identity(&line.identity);
    let identity =
        identity.map_err(|error| Failure::new(USAGE, format!("{place}: {}", error.text())))?;
    if !rights.configured.has_service(&line.service) {
        let service = plain(&line.service);
        output::note(format_args!("{place}: note: the configuration has no service `{service}`"));
    }
    let wanted = Wanted { service: &line.service, params: &line.params, expires: None, uses: 1 };
    let explained = rights.configured.explain(&identity, &wanted, SystemClock.now());
    if explained.answer == line.expected {
        return Ok(true);
    }
    let expected = match line.expected {
        Answer::Yes => "may",
        Answer::No => "may not",
        Answer::Ask => "asks",
    };
    output::data(format!(
        "{place}: `{expected}` fails, the answer is {}: {}",
        explained.answer,
        plain(&explained.text)
    ))?;
    Ok(false)
}
