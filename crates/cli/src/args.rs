//! The command line: every verb, and which file carries it out.

use crate::failure::{Failure, Outcome};
use crate::{
    approve, ask, backup, catalogue, completions, connect, doctor, forward, grant, id, input,
    inspect, invite, invoke, join, log, ls, man, output, peers, query, request, restore, revoke,
    run, sessions, show, status, stop, terminate, up,
};
use clap::builder::Styles;
use clap::{ArgAction, Parser, Subcommand};
use levada_node::config::LogFormat;
use std::future::Future;

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
  levada invite                     let somebody in: prints what they type
  levada ls                         see who is on this network
  levada run alpha/clock            use a service of the node known here as `alpha`

Exit codes: 0 done, 1 the answer is no, 2 usage, 120 local error, 121 denied, 122 unreachable,
123 the peer broke the protocol; a program that ran elsewhere passes its own code on.
LEVADA_HOME names a folder that holds everything of one identity, in place of the XDG folders."
)]
pub struct Arguments {
    /// Log on standard error what is done; twice: more. RUST_LOG says it in detail
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Id(id::Arguments),
    Up(up::Arguments),
    Ls(ls::Arguments),
    Peers(peers::Arguments),
    Query(query::Arguments),
    Request(request::Arguments),
    Grant(grant::Arguments),
    Inspect(inspect::Arguments),
    Connect(connect::Arguments),
    Terminate(terminate::Arguments),
    Invoke(invoke::Arguments),
    Revoke(revoke::Arguments),
    Run(run::Arguments),
    Ask(ask::Arguments),
    Approve(approve::Arguments),
    Catalogue(catalogue::Arguments),
    Forward(forward::Arguments),
    Show(show::Arguments),
    Input(input::Arguments),
    Invite(invite::Arguments),
    Join(join::Arguments),
    Status(status::Arguments),
    Sessions(sessions::Arguments),
    Stop(stop::Arguments),
    Doctor(doctor::Arguments),
    Backup(backup::Arguments),
    Restore(restore::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

impl Arguments {
    /// Carries the verb out.
    pub fn run(self) -> Outcome {
        let verbose = self.verbose;
        if !self.verb.runs_node()
            && let Err(failure) = log::start(verbose, "off", LogFormat::Text)
        {
            // RUST_LOG may be meant for another program.
            output::note(format_args!("note: nothing is logged: {}", failure.text()));
        }
        match self.verb {
            Verb::Id(arguments) => wait(id::run(arguments)),
            Verb::Up(arguments) => wait(up::run(arguments, verbose)),
            Verb::Ls(arguments) => wait(ls::run(arguments)),
            Verb::Peers(arguments) => peers::run(arguments),
            Verb::Query(arguments) => wait(query::run(arguments)),
            Verb::Request(arguments) => wait(request::run(arguments)),
            Verb::Grant(arguments) => grant::run(arguments),
            Verb::Inspect(arguments) => inspect::run(arguments),
            Verb::Connect(arguments) => wait(connect::run(arguments)),
            Verb::Terminate(arguments) => wait(terminate::run(arguments)),
            Verb::Invoke(arguments) => wait(invoke::run(arguments)),
            Verb::Revoke(arguments) => wait(revoke::run(arguments)),
            Verb::Run(arguments) => wait(run::run(arguments)),
            Verb::Ask(arguments) => wait(ask::run(arguments)),
            Verb::Approve(arguments) => wait(approve::run(arguments)),
            Verb::Catalogue(arguments) => wait(catalogue::run(arguments, verbose)),
            Verb::Forward(arguments) => wait(forward::run(arguments)),
            Verb::Show(arguments) => wait(show::run(arguments)),
            Verb::Input(arguments) => wait(input::run(arguments)),
            Verb::Invite(arguments) => wait(invite::run(arguments)),
            Verb::Join(arguments) => wait(join::run(arguments)),
            Verb::Status(arguments) => wait(status::run(arguments)),
            Verb::Sessions(arguments) => wait(sessions::run(arguments)),
            Verb::Stop(arguments) => wait(stop::run(arguments)),
            Verb::Doctor(arguments) => wait(doctor::run(arguments)),
            Verb::Backup(arguments) => wait(backup::run(arguments)),
            Verb::Restore(arguments) => wait(restore::run(arguments)),
            Verb::Completions(arguments) => completions::run(arguments),
            Verb::Man(arguments) => man::run(arguments),
        }
    }
}

impl Verb {
    /// Whether it runs a node, whose configuration says what is logged.
    fn runs_node(&self) -> bool {
        match self {
            Self::Up(_) => true,
            Self::Catalogue(arguments) => arguments.serves(),
            _ => false,
        }
    }
}

/// Runs a verb that waits for the network or for the node.
fn wait(verb: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::local(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(verb);
    // What was dropped may still be ending programs; a thread that waits for a disk or a name server
    // must not hold up the exit for longer.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
