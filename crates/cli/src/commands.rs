//! The verbs, a module for each, and what only that verb uses.

mod access;
mod approve;
mod ask;
mod backup;
mod catalogue;
mod complete;
mod completions;
mod connect;
mod doctor;
pub mod fast;
mod forward;
mod get;
mod grant;
mod group;
pub mod help;
mod http;
mod id;
#[cfg(feature = "desktop")]
mod input;
mod inspect;
mod invite;
mod invoke;
mod join;
mod ls;
mod man;
mod middlebox;
mod monitor;
mod peers;
mod query;
mod request;
mod restore;
mod revoke;
mod run;
mod service;
mod sessions;
mod share;
#[cfg(feature = "desktop")]
mod show;
mod status;
mod stop;
mod swarm;
mod terminate;
mod up;

use std::future::Future;

use clap::{Command, Subcommand};

use crate::failure::{Failure, Outcome};

// No doc comment here: clap would take it for the description of `levada`.
#[derive(Debug, Subcommand)]
pub enum Verb {
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
    Http(http::Arguments),
    Middlebox(middlebox::Arguments),
    #[cfg(feature = "desktop")]
    Show(show::Arguments),
    #[cfg(feature = "desktop")]
    Input(input::Arguments),
    Share(share::Arguments),
    Get(get::Arguments),
    Swarm(swarm::Arguments),
    Fast(fast::Arguments),
    Monitor(monitor::Arguments),
    Access(access::Arguments),
    Group(group::Arguments),
    Invite(invite::Arguments),
    Join(join::Arguments),
    Status(status::Arguments),
    Sessions(sessions::Arguments),
    Stop(stop::Arguments),
    Doctor(doctor::Arguments),
    Service(service::Arguments),
    Backup(backup::Arguments),
    Restore(restore::Arguments),
    Complete(complete::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
    Help(help::Arguments),
}

impl Verb {
    /// Runs the verb. `verbose` is how often `--verbose` was given, `command` describes the whole
    /// command line.
    pub fn run(self, verbose: u8, command: fn() -> Command) -> Outcome {
        match self {
            Self::Id(arguments) => wait(id::run(arguments)),
            Self::Up(arguments) => wait(up::run(arguments, verbose)),
            Self::Ls(arguments) => wait(ls::run(arguments)),
            Self::Peers(arguments) => wait(peers::run(arguments)),
            Self::Query(arguments) => wait(query::run(arguments)),
            Self::Request(arguments) => wait(request::run(arguments)),
            Self::Grant(arguments) => wait(grant::run(arguments)),
            Self::Inspect(arguments) => inspect::run(arguments),
            Self::Connect(arguments) => wait(connect::run(arguments)),
            Self::Terminate(arguments) => wait(terminate::run(arguments)),
            Self::Invoke(arguments) => wait(invoke::run(arguments)),
            Self::Revoke(arguments) => wait(revoke::run(arguments)),
            Self::Run(arguments) => wait(run::run(arguments)),
            Self::Ask(arguments) => wait(ask::run(arguments)),
            Self::Approve(arguments) => wait(approve::run(arguments)),
            Self::Catalogue(arguments) => wait(catalogue::run(arguments, verbose)),
            Self::Forward(arguments) => wait(forward::run(arguments)),
            Self::Http(arguments) => wait(http::run(arguments)),
            Self::Middlebox(arguments) => wait(middlebox::run(arguments)),
            #[cfg(feature = "desktop")]
            Self::Show(arguments) => wait(show::run(arguments)),
            #[cfg(feature = "desktop")]
            Self::Input(arguments) => wait(input::run(arguments)),
            Self::Share(arguments) => wait(share::run(arguments, verbose)),
            Self::Get(arguments) => wait(on_worker(get::run(arguments))),
            Self::Swarm(arguments) => wait(swarm::run(arguments)),
            Self::Fast(arguments) => wait(fast::run(arguments)),
            Self::Monitor(arguments) => wait(monitor::run(arguments)),
            Self::Access(arguments) => wait(access::run(arguments)),
            Self::Group(arguments) => wait(group::run(arguments)),
            Self::Invite(arguments) => wait(invite::run(arguments)),
            Self::Join(arguments) => wait(join::run(arguments)),
            Self::Status(arguments) => wait(status::run(arguments)),
            Self::Sessions(arguments) => wait(sessions::run(arguments)),
            Self::Stop(arguments) => wait(stop::run(arguments)),
            Self::Doctor(arguments) => wait(doctor::run(arguments)),
            Self::Service(arguments) => wait(service::run(arguments)),
            Self::Backup(arguments) => wait(backup::run(arguments)),
            Self::Restore(arguments) => wait(restore::run(arguments)),
            Self::Complete(arguments) => complete::run(arguments, command()),
            Self::Completions(arguments) => completions::run(arguments, command()),
            Self::Man(arguments) => man::run(arguments, command()),
            Self::Help(arguments) => help::run(&arguments, command()),
        }
    }

    /// Whether it runs a node, which starts the log by its configuration.
    pub fn runs_node(&self) -> bool {
        match self {
            // Only `share` itself finds out whether a node runs already.
            Self::Up(_) | Self::Share(_) => true,
            Self::Catalogue(arguments) => arguments.serves(),
            _ => false,
        }
    }
}

/// Runs a verb as a task: on the thread that wakes it, while on the main thread each event of the
/// network would wake a sleeping thread. It must not block, because it may have the thread that
/// waits for events.
async fn on_worker(verb: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
    let ended = tokio::spawn(verb).await;
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Err(Failure::local(error)),
    })
}

/// Runs a verb that waits for the network, the node or known.db.
fn wait(verb: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::local(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(verb);
    // Dropped tasks may still be ending programs. A thread that is blocked on a disk or a name
    // server must not delay the exit for longer.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    outcome
}
