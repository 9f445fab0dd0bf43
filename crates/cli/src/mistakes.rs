//! Usage errors, with what the user may have meant.

use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};
use levada_core::closest;

use crate::args::Arguments;
use crate::{failure, output};

/// Prints help to standard output, or a usage error with code 2, escaped: a wrong argument may
/// contain pasted text. A hint of this program replaces the hints of the parser, which know the
/// spelling only.
pub fn usage(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let hint = hint(&error);
    if hint.is_some() {
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::Suggested);
    }
    output::note(error.render().to_string().trim_end());
    if let Some(hint) = hint {
        output::note(format_args!("\n{hint}"));
    }
    failure::USAGE.into()
}

/// A line for the user about a wrong verb or argument.
fn hint(error: &clap::Error) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        return meant(word);
    }
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) => meant_argument(word),
        _ => None,
    }
}

/// The verb that a wrong one may have meant, as a line for the user.
fn meant(word: &str) -> Option<String> {
    if let Some((_, instead)) = FOREIGN_VERBS.iter().find(|(foreign, _)| *foreign == word) {
        return Some(format!("For `{word}`, use {instead}"));
    }
    let command = Arguments::command();
    let verb = closest(word, command.get_subcommands().map(clap::Command::get_name))?;
    Some(format!("Did you mean `{verb}`?"))
}

/// The form of an argument of ssh, or of a target in the place of an option.
fn meant_argument(word: &str) -> Option<String> {
    if let Some((_, instead)) = FOREIGN_OPTIONS.iter().find(|(option, _)| *option == word) {
        return Some(format!("For `{word}` of ssh, use {instead}"));
    }
    let (host, port) = word.rsplit_once(':')?;
    let is_target = !host.is_empty() && port.parse::<u16>().is_ok() && !word.starts_with('-');
    is_target.then(|| format!("The target follows `--`: -- {}", target(word)))
}

/// The HOST:PORT of `PORT:HOST:PORT` as well, which is the form of ssh.
fn target(word: &str) -> &str {
    match word.split_once(':') {
        Some((port, rest)) if port.parse::<u16>().is_ok() && rest.contains(':') => rest,
        _ => word,
    }
}

/// Verbs of other programs, and what to use in their place.
const FOREIGN_VERBS: [(&str, &str); 9] = [
    ("ssh", "levada run NODE/shell, or levada run NODE/exec -- PROGRAM"),
    ("scp", "levada share FILE, and levada get TICKET on the other machine"),
    ("send", "levada share FILE, and levada get TICKET on the other machine"),
    ("receive", "levada get TICKET"),
    ("start", "levada up"),
    ("serve", "levada up"),
    ("list", "levada ls"),
    ("version", "levada --version"),
    ("exec", "levada run NODE/exec -- PROGRAM"),
];

/// Options of ssh, and what to use in their place.
const FOREIGN_OPTIONS: [(&str, &str); 5] = [
    ("-L", "levada forward NODE/SERVICE --listen PORT -- HOST:PORT"),
    ("-R", "levada forward NODE/SERVICE --reverse --listen PORT -- HOST:PORT"),
    ("-D", "levada forward NODE/SERVICE --socks --listen PORT"),
    ("-N", "levada forward NODE/SERVICE -- HOST:PORT"),
    ("-p", "NODE as IDENTITY@HOST:PORT, or the name under which the node is pinned"),
];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn hint_for(line: &str) -> Option<String> {
        let words = ["levada"].into_iter().chain(line.split(' '));
        hint(&Arguments::try_parse_from(words).unwrap_err())
    }

    #[test]
    fn mistakes_are_answered_with_what_was_meant() {
        for (line, expected) in [
            ("rnu", "Did you mean `run`?"),
            ("ssh well", "For `ssh`, use levada run NODE/shell"),
            ("forward -L 80:a:80 well", "For `-L` of ssh, use levada forward NODE/SERVICE"),
            ("forward well/f 5000:127.0.0.1:80", "The target follows `--`: -- 127.0.0.1:80"),
            ("forward well/f db.example:5432", "The target follows `--`: -- db.example:5432"),
        ] {
            let found = hint_for(line).unwrap_or_default();
            assert!(found.starts_with(expected), "{line}: {found:?}");
        }
        assert_eq!(hint_for("id --nonsense"), None);
    }
}
