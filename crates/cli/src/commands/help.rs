//! `levada help`, and `levada` alone: an overview of the verbs, or the help of one.

use clap::{Args, Command};
use levada_core::closest;

use crate::failure::{Failure, NO, Outcome};
use crate::output;

/// The verbs that a newcomer needs, in groups.
const OVERVIEW: &str = "\
Give someone one command, one port, one folder or one window of your machine.

start    up        run a node that offers services
         invite    let someone in: prints the command that they type
         join      accept an invitation
use      run       use a service of a node; forward: its ports, http: its web servers
         ls        list the nodes of this network; query: the services of one
         share     give files to many; get: fetch them
rights   request   a right as a text; grant: pass on less of it; connect: use it
         access    see who may do what, and change it; revoke: take a right back
operate  status    show the node; sessions: who used it and when; stop: end it
         doctor    find what is wrong; backup, restore: keep the identity

`levada help VERB` shows the options and examples of one, `levada help --all` all verbs.";

/// Print an overview of the verbs, or the help of one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada help
  levada help run
  levada help --all")]
pub struct Arguments {
    /// The verb, and its sub-verb if there is one; an overview if not given
    verb: Vec<String>,

    /// List all verbs and the options that all of them have
    #[arg(long, conflicts_with = "verb")]
    all: bool,
}

pub fn run(arguments: &Arguments, mut command: Command) -> Outcome {
    if arguments.verb.is_empty() && !arguments.all {
        return overview();
    }
    command.build();
    let help = find(&command, &arguments.verb)?.clone().render_long_help().to_string();
    output::bytes(help.as_bytes())
}

/// Prints the overview.
///
/// # Errors
/// [`Failure`] 120 if standard output fails.
pub fn overview() -> Outcome {
    output::bytes(format!("{OVERVIEW}\n").as_bytes())
}

/// The command of a verb, and of its sub-verb.
///
/// # Errors
/// [`Failure`] 1 for a verb that does not exist, with a similar one.
pub fn find<'a>(mut command: &'a Command, words: &[String]) -> Result<&'a Command, Failure> {
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            let verb = words.join(" ");
            let end = match closest(word, command.get_subcommands().map(Command::get_name)) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => "`levada help --all` lists all".to_owned(),
            };
            Failure::new(NO, format!("there is no verb `{verb}`; {end}"))
        })?;
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    #[test]
    fn the_overview_fits_a_terminal_and_names_verbs_that_exist() {
        let command = Arguments::command();
        let mut verbs = 0;
        for line in OVERVIEW.lines() {
            assert!(line.len() <= 90, "{line}");
            let Some(word) = line.get(9..).and_then(|rest| rest.split_whitespace().next()) else {
                continue;
            };
            if line.starts_with(' ')
                || ["start", "use", "rights", "operate"].iter().any(|group| line.starts_with(group))
            {
                assert!(command.find_subcommand(word).is_some(), "{word}");
                verbs += 1;
            }
        }
        assert_eq!(verbs, 10);
    }
}
