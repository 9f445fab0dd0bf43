//! `levada complete`: prints what can stand at the end of a command line, for the scripts of
//! `levada completions`.

mod candidate;
mod line;
mod values;

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use clap::{Args, Command};

use crate::failure::Outcome;
use crate::output;
use candidate::Candidate;
use line::{Position, position};

/// The maximum time that a shell waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Print what can stand at the end of a command line, one in a line, with a description after a tab
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_help = "Example:
  levada complete -- run al"
)]
pub struct Arguments {
    /// The words after `levada`; the last one is completed
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

pub fn run(arguments: Arguments, mut command: Command) -> Outcome {
    command.build();
    let (found, candidates) = channel();
    // A disk or a node that does not answer must not block the shell. The process ends without this
    // thread.
    thread::spawn(move || found.send(complete(&command, &arguments.words)));
    for Candidate { text, help } in candidates.recv_timeout(TIMEOUT).unwrap_or_default() {
        match help.is_empty() {
            true => output::data(text)?,
            false => output::data(format_args!("{text}\t{help}"))?,
        }
    }
    Ok(0)
}

/// The candidates that begin with the last word. Words that a shell would interpret are left out:
/// names may be chosen on other machines.
fn complete(command: &Command, words: &[String]) -> Vec<Candidate> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let Position { found, start, current } = position(command, before, current);
    let candidates = found.into_iter().filter(|one| one.text.starts_with(current));
    let whole = candidates.map(|one| Candidate { text: format!("{start}{}", one.text), ..one });
    whole.filter(|one| is_plain_word(&one.text)).collect()
}

fn is_plain_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@:=+,".contains(c))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let mut command = crate::args::Arguments::command();
        command.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        complete(&command, &words).into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn verbs_and_options_are_completed() {
        assert_eq!(texts("quer"), ["query"]);
        assert_eq!(texts("catalogue se"), ["search", "serve"]);
        assert!(!texts("").contains(&"complete".to_owned()));
        assert_eq!(texts("sessions --lo"), ["--log"]);
        assert_eq!(texts("-v sessions --lim"), ["--limit"]);
        assert_eq!(texts("run --escape x --esc"), ["--escape"]);
        assert!(texts("frobnicate ").is_empty());
    }

    #[test]
    fn values_of_options_and_kinds_are_completed() {
        assert_eq!(texts("catalogue ls proto"), ["protocolstub", "protocolstub/"]);
        assert_eq!(texts("catalogue search word --type run"), ["runtime"]);
        assert_eq!(texts("catalogue search word --type=run"), ["--type=runtime"]);
        assert_eq!(texts("ls --type ex"), ["exec"]);
        assert_eq!(texts("completions z"), ["zsh"]);
        assert_eq!(texts("help quer"), ["query"]);
        assert!(texts("share --chunk ").is_empty());
    }

    #[test]
    fn what_follows_the_arguments_of_a_program_is_left_to_the_shell() {
        for line in ["run alpha/exec -- ", "run alpha/exec ls --", "forward a/b -- x"] {
            assert!(texts(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_word_that_a_shell_interprets_is_left_out() {
        assert!(is_plain_word("alpha/echo") && is_plain_word("hyperty/A@1.0.0"));
        for text in ["$(id)", "a b", "a;b", "`id`", "a\u{1b}", "映画"] {
            assert!(!is_plain_word(text), "{text}");
        }
    }
}
