//! `levada doctor`: checks this machine and the home, and prints remedies.

mod checks;
mod node;
mod report;

use crate::failure::{Failure, NO, Outcome};
use crate::output;
use clap::Args;
use levada_client::control::{self, Request};
use levada_config::Config;
use levada_core::{Clock, SystemClock};
use levada_home::Home;
use levada_node::store::Store;

use node::Node;
use report::{Check, Report};

/// Check this machine and this home, and print a remedy for each problem
///
/// The exit code is 1 if something is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada doctor
  levada doctor --accept-clock      after the clock was wrong and has been set")]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Accept the clock's time although it jumped
    #[arg(long)]
    accept_clock: bool,
}

pub async fn run(arguments: Arguments) -> Outcome {
    let home = match Home::find() {
        Ok(home) => home,
        Err(error) => return finish(arguments.json, vec![Check::wrong("home", error, "")]),
    };
    let (mut node, mut check) = Node::find(&home).await;
    let mut accepted = None;
    if arguments.accept_clock {
        accepted = accept_clock(&home, node).await.err();
        // The status from before has the old state of the clock.
        (node, check) = Node::find(&home).await;
    }
    let config = Config::load(&home.config_file());
    let (configuration, problems) = checks::config(&home, &config);
    let mut checks =
        vec![checks::home(&home), checks::disk(&home), checks::key(&home), configuration, check];
    checks.extend(checks::interrupted(&home));
    checks.extend(checks::services(problems));
    match &config {
        Ok(config) => checks.extend(configured(&home, config, &node).await),
        Err(_) => checks.extend(checks::not_checked(&["log", "ports", "multicast", "open files"])),
    }
    checks.push(checks::clock(&home, &node));
    checks.extend(accepted.map(|error| checks::not_accepted(&error)));
    checks.push(checks::node_database(&home, &node).await);
    checks.push(checks::known_database(&home));
    checks.extend(checks::forwards(&node));
    checks.extend(checks::groups(&node));
    checks.extend(checks::engine(&node));
    checks.push(checks::aes());
    finish(arguments.json, checks)
}

/// The checks of what a valid configuration names.
async fn configured(home: &Home, config: &Config, node: &Node) -> Vec<Check> {
    let mut checks = checks::log(config);
    checks.extend(checks::ports(config, node));
    checks.push(checks::multicast(config, node).await);
    checks.push(checks::open_files(config));
    checks.extend(checks::catalogue(home, config, node));
    checks
}

fn finish(json: bool, checks: Vec<Check>) -> Outcome {
    let report = Report(checks);
    report.print(json)?;
    Ok(if report.is_healthy() { 0 } else { NO })
}

/// Accepts the clock, in the running node or in the home's database, which is then locked.
async fn accept_clock(home: &Home, node: Node) -> Result<(), Failure> {
    match node {
        Node::Runs(_) => drop(control::call(home, &Request::AcceptClock).await?),
        Node::Absent { held } => {
            drop(held);
            let home = Home::open()?;
            let _lock = home.lock()?;
            Store::open(&home.node_db())?.accept_clock(SystemClock.now())?;
        }
        Node::Broken => return Err(Failure::local("the node does not answer")),
    }
    output::note(format_args!("the clock is accepted: {}", output::time(SystemClock.now())));
    Ok(())
}
