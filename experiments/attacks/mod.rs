//! Attacks on a node: the time of an honest run during an attack, compared with an idle node.

mod honest;
mod http;
mod middlebox;
mod peer;
mod queries;
mod runs;
mod successions;
mod targets;
mod unread;
mod victim;

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use levada_harness::{Case, Group, Options, params, read_rows};

use crate::catalogue::levada::binary;
use crate::measuring::{Measuring, Outcome, file};
use crate::table::{Table, filled};
use victim::{Attack, Way};

/// The experiment's name in rows.
const NAME: &str = "attacks/honest";
/// The subjects.
const IDLE: &str = "idle";
const ATTACKED: &str = "attacked";
/// The attacks, by their names in rows, and what an honest run goes through.
const ATTACKS: [(&str, Way, Attack); 7] = [
    ("unread", Way::Direct, |target| Box::pin(unread::attack(target))),
    ("runs", Way::Direct, |target| Box::pin(runs::attack(target))),
    ("queries", Way::Direct, |target| Box::pin(queries::attack(target))),
    ("successions", Way::Direct, |target| Box::pin(successions::attack(target))),
    ("http", Way::Direct, |target| Box::pin(http::attack(target))),
    ("middlebox-silent", Way::Middlebox, |target| Box::pin(middlebox::be_silent(target))),
    ("middlebox-bytes", Way::Middlebox, |target| Box::pin(middlebox::send_bytes(target))),
];

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// The time of an honest run and of /healthz, and the node's memory and log, idle and under
    /// each attack
    Honest(Honest),
    /// All attacks of `honest`
    All(Options),
    /// Print the rows in a folder as a table in Markdown
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
}

/// The attacks to measure.
#[derive(Args)]
struct Honest {
    /// Shared by all experiments.
    #[command(flatten)]
    shared: Options,

    /// Only these attacks: unread, runs, queries, successions, http, middlebox-silent,
    /// middlebox-bytes
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    attack: Vec<String>,

    /// The measured `levada` binary; default: that of this workspace
    #[arg(long, value_name = "FILE")]
    levada: Option<PathBuf>,
}

/// The table of the rows in a folder.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    Ok(filled([targets::table(&read_rows(&file(folder, NAME))?)]))
}

/// Runs the experiment.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let honest = match arguments.experiment {
        Experiment::Honest(honest) => honest,
        Experiment::All(shared) => Honest { shared, attack: Vec::new(), levada: None },
        Experiment::Report { dir } => {
            return crate::table::print(&tables(&dir)?);
        }
    };
    let outcome = measure(&honest)?;
    outcome.conclude(&honest.shared, |_| Ok(()), targets::table)
}

fn measure(arguments: &Honest) -> anyhow::Result<Outcome> {
    let chosen = chosen(&arguments.attack)?;
    let binary = binary(arguments.levada.as_deref(), true)?;
    let mut measuring = Measuring::new(NAME, &arguments.shared, chosen.len())?;
    let runs = if arguments.shared.quick { 10 } else { 30 };
    for (name, way, attack) in chosen {
        let params = params([("attack", name.into())]);
        if !measuring.needs(&params, &[IDLE.to_owned(), ATTACKED.to_owned()]) {
            continue;
        }
        let case = |subject: &str, attack: Option<Attack>| {
            let binary = &binary;
            Case::new(subject, move || Ok(victim::measure(binary, way, attack, runs)?))
        };
        let cases = vec![case(IDLE, None), case(ATTACKED, Some(attack))];
        measuring.group(Group { experiment: NAME, params, cases, monitor: None })?;
    }
    Ok(measuring.finish())
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<(&'static str, Way, Attack)>> {
    if names.is_empty() {
        return Ok(ATTACKS.to_vec());
    }
    let named = |name: &String| {
        let found = ATTACKS.iter().find(|(known, ..)| known == name);
        found.copied().ok_or_else(|| anyhow!("there is no attack `{name}`"))
    };
    names.iter().map(named).collect()
}
