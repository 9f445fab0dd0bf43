//! The command line: the options of every verb, and the verb.

use crate::commands::{Verb, help};
use crate::failure::Outcome;
use crate::{log, output};
use clap::builder::Styles;
use clap::{ArgAction, CommandFactory, Parser};
use levada_config::LogFormat;

/// Connects services to the people and programs that may use them.
#[derive(Debug, Parser)]
#[command(
    name = "levada",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    styles = Styles::plain(),
    max_term_width = 100,
    after_help = "Examples:
  levada up                         run a node that offers services
  levada invite                     invite another identity: prints the command for it
  levada ls                         list the nodes of this network
  levada run alpha/clock            use a service of the node known here as `alpha`

Exit codes: 0 done, 1 the answer is no, 2 usage, 120 local error, 121 denied, 122 unreachable,
123 the peer broke the protocol; a program that ran elsewhere passes its own code on.
LEVADA_HOME is a folder for all files of one identity, in place of the XDG folders."
)]
pub struct Arguments {
    /// Log to standard error; twice for more. RUST_LOG sets the filter in detail
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    verb: Option<Verb>,
}

impl Arguments {
    /// Carries the verb out.
    pub fn run(self) -> Outcome {
        let verbose = self.verbose;
        let Some(verb) = self.verb else { return help::overview() };
        if !verb.runs_node()
            && let Err(failure) = log::start(verbose, "off", LogFormat::Text)
        {
            // RUST_LOG may be meant for another program.
            output::note(format_args!("note: nothing is logged: {}", failure.text()));
        }
        verb.run(verbose, Self::command)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_verb_shows_an_example() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        for verb in command.get_subcommands() {
            let name = verb.get_name();
            let help = verb.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{name}: {help}");
            assert!(help.contains(&format!("levada {name}")), "{name}: {help}");
        }
    }

    #[test]
    fn every_verb_is_in_a_page() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages = fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
        let pages = pages.filter(|page| page.extension().is_some_and(|end| end == "md"));
        let pages = pages.chain([root.join("README.md")]);
        let text: String = pages.map(|page| fs::read_to_string(page).unwrap()).collect();
        let is_named = |verb: &str| {
            let command = format!("levada {verb}");
            let in_word = |c: char| c.is_alphanumeric() || c == '-';
            text.split(&command).skip(1).any(|rest| !rest.starts_with(in_word))
        };
        let command = Arguments::command();
        // These are about the other verbs.
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs = verbs.map(clap::Command::get_name);
        for verb in verbs.filter(|verb| !["help", "man"].contains(verb)) {
            assert!(is_named(verb), "name `levada {verb}` in README.md or in a page of docs/");
        }
    }

    #[test]
    fn every_verb_that_names_a_node_can_accept_a_new_one() {
        let command = Arguments::command();
        let mut count = 0;
        for verb in command.get_subcommands() {
            let mut names = verb.get_arguments().flat_map(|one| one.get_value_names()).flatten();
            if names.any(|name| name.starts_with("NODE")) {
                let accepts = verb.get_arguments().any(|one| one.get_id() == "accept_new");
                assert!(accepts, "{}", verb.get_name());
                count += 1;
            }
        }
        // query, request, run, forward, ask, approve, invoke, show, input
        assert!(count >= 9, "{count}");
    }
}
