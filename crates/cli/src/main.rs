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
mod mistakes;
mod names;
mod output;
mod parameters;
mod passphrase;
mod progress;
mod secret_text;
mod seen;
mod service_target;
mod since;
mod waiting;

use clap::Parser;
use commands::fast::child;
use levada_core::Identity;
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
        Err(error) => return mistakes::usage(error),
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
