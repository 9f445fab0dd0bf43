//! Finds the place of the last word in a command line: an option, the value of one, a verb or an
//! argument.

use clap::{Arg, Command};

use super::candidate::Candidate;
use super::values;
use crate::commands::help;

/// The place of the last word.
pub(super) struct Position<'a> {
    /// Everything that can stand there.
    pub(super) found: Vec<Candidate>,
    /// The part of the word that is no part of the candidates, such as `--type=`.
    pub(super) start: &'a str,
    /// The part that candidates begin with.
    pub(super) current: &'a str,
}

/// The words that were read so far.
struct Reader<'a> {
    command: &'a Command,
    /// The names of the verb and its sub-verb.
    verb: Vec<&'a str>,
    /// The number of arguments that are no options.
    arguments: usize,
    /// The option whose value is the next word.
    pending: Option<&'a Arg>,
    /// Only arguments follow `--`.
    only_arguments: bool,
}

pub(super) fn position<'a>(command: &Command, before: &[String], current: &'a str) -> Position<'a> {
    let reader =
        Reader { command, verb: Vec::new(), arguments: 0, pending: None, only_arguments: false };
    let reader = before.iter().fold(reader, Reader::read);
    let all = |found| Position { found, start: "", current };
    if let Some(option) = reader.pending {
        return all(values::of(option, &reader.verb));
    }
    if reader.passes_on() {
        return all(Vec::new());
    }
    if !reader.only_arguments && current.starts_with('-') {
        let Some((name, value)) = current.split_once('=') else { return all(reader.options()) };
        let option = name.strip_prefix("--").and_then(|name| reader.option(name));
        let found = option.map(|option| values::of(option, &reader.verb));
        let start = &current[..=name.len()];
        return Position { found: found.unwrap_or_default(), start, current: value };
    }
    if let ["help" | "man"] = reader.verb[..] {
        let words = before.iter().skip(1).filter(|word| !word.starts_with('-'));
        let verb = help::find(command, &words.cloned().collect::<Vec<_>>());
        return all(verb.map(verbs).unwrap_or_default());
    }
    let mut found = if reader.arguments == 0 { verbs(reader.command) } else { Vec::new() };
    if let Some(argument) = reader.argument() {
        found.extend(values::of(argument, &reader.verb));
    }
    all(found)
}

impl<'a> Reader<'a> {
    fn read(mut self, word: &'a String) -> Self {
        if self.pending.take().is_some() {
            return self;
        }
        if self.passes_on() {
            return self;
        }
        if !self.only_arguments && word == "--" {
            self.only_arguments = true;
            return self;
        }
        if !self.only_arguments && word.starts_with('-') && word.len() > 1 {
            self.pending = self.option_of(word).filter(|option| takes_value(option));
            return self;
        }
        match self.command.find_subcommand(word).filter(|_| self.arguments == 0) {
            Some(verb) => {
                self.command = verb;
                self.verb.push(verb.get_name());
            }
            None => self.arguments += 1,
        }
        self
    }

    /// The option of a word whose value would be the next word.
    fn option_of(&self, word: &str) -> Option<&'a Arg> {
        match word.strip_prefix("--") {
            Some(name) if name.contains('=') => None,
            Some(name) => self.option(name),
            None => {
                let letter = word.chars().last()?;
                self.command.get_arguments().find(|option| option.get_short() == Some(letter))
            }
        }
    }

    fn option(&self, name: &str) -> Option<&'a Arg> {
        self.command.get_arguments().find(|option| option.get_long() == Some(name))
    }

    /// Returns true for the arguments of another program, which begin after the first one that is
    /// not an option of this program.
    fn passes_on(&self) -> bool {
        let argument = self.argument();
        let is_last = self.only_arguments && argument.is_some_and(|one| one.is_last_set());
        let more = argument.is_some_and(Arg::is_trailing_var_arg_set);
        let first = self.command.get_positionals().count().saturating_sub(1);
        is_last || more && (self.only_arguments || self.arguments > first)
    }

    /// The argument at the place of the next word; the last one may have several values.
    fn argument(&self) -> Option<&'a Arg> {
        let last = self.command.get_positionals().find(|one| one.is_last_set());
        if self.only_arguments && last.is_some() {
            return last;
        }
        let arguments = self.command.get_positionals().filter(|one| !one.is_last_set());
        let arguments: Vec<&Arg> = arguments.collect();
        let is_many = |one: &&Arg| one.get_num_args().is_some_and(|range| range.max_values() > 1);
        let nth = arguments.get(self.arguments).copied();
        nth.or_else(|| arguments.last().copied().filter(is_many))
    }

    fn options(&self) -> Vec<Candidate> {
        let options = self.command.get_arguments().filter(|option| !option.is_hide_set());
        let described = |option: &Arg| {
            let text = format!("--{}", option.get_long()?);
            Some(Candidate { text, help: first_line(option.get_help()) })
        };
        options.filter_map(described).collect()
    }
}

fn verbs(command: &Command) -> Vec<Candidate> {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let described = |verb: &Command| Candidate {
        text: verb.get_name().to_owned(),
        help: first_line(verb.get_about()),
    };
    let mut verbs: Vec<Candidate> = verbs.map(described).collect();
    verbs.sort_by(|one, other| one.text.cmp(&other.text));
    verbs
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

fn first_line(help: Option<&clap::builder::StyledStr>) -> String {
    let help = help.map(ToString::to_string).unwrap_or_default();
    help.lines().next().unwrap_or_default().to_owned()
}
