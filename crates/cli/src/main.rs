//! The `levada` binary: reads the command line, calls one verb, and passes its exit code on.
//!
//! Exit codes: 0 done, 1 the answer is no, 2 usage, 120 local error, 121 denied, 122 unreachable,
//! 123 the peer broke the protocol; a program that ran elsewhere passes its own code on.

#![forbid(unsafe_code)]

mod abbreviation;
mod archive;
mod args;
mod attach;
mod commands;
mod destination;
mod directory;
mod failure;
mod identity;
mod init;
mod log;
mod mediated;
mod names;
mod output;
mod parameters;
mod passphrase;
mod progress;
mod secret_text;
mod seen;
mod service_target;
mod waiting;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use commands::fast::child;
use levada_core::{Identity, closest};
use levada_home::set_new_key_hook;
use levada_services::exec::program;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let first = words.next();
    if first.as_ref().is_some_and(|word| word == program::ARGUMENT) {
        return program::supervise(words.next().is_some_and(|word| word == program::WITH_CGROUP));
    }
    if first.is_some_and(|word| word == child::ARGUMENT) {
        return child::become_program(words);
    }
    if init::is_first() {
        return init::run().unwrap_or_else(|error| output::report(&failure::Failure::local(error)));
    }
    let arguments = match args::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    levada_transport::limit_arenas();
    set_new_key_hook(note_new_identity);
    match arguments.run() {
        Ok(code) => code.into(),
        Err(failure) => output::report(&failure),
    }
}

/// Prints the identity that this command has made, and the folder of its key.
fn note_new_identity(identity: &Identity, key: &Path) {
    let folder = output::plain(&key.parent().unwrap_or(key).display().to_string());
    output::note(format_args!("note: made the new identity {identity} in {folder}"));
}

/// Prints help to standard output, or a usage error with code 2, escaped: a wrong argument may
/// contain pasted text.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    output::note(error.render().to_string().trim_end());
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(hint) = meant(word)
    {
        output::note(format_args!("\n{hint}"));
    }
    failure::USAGE.into()
}

/// The verb that a wrong one may have meant, as a line for the user.
fn meant(word: &str) -> Option<String> {
    if let Some((_, instead)) = FOREIGN_VERBS.iter().find(|(foreign, _)| *foreign == word) {
        return Some(format!("For `{word}`, use {instead}"));
    }
    let command = args::Arguments::command();
    let verb = closest(word, command.get_subcommands().map(clap::Command::get_name))?;
    Some(format!("Did you mean `{verb}`?"))
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
