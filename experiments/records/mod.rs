//! The records of a node that has run for a year: the time of the lists that its owner reads.

mod fill;
mod node;
mod targets;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use hdrhistogram::Histogram;
use levada_client::control::{Filter, Request};
use levada_harness::{Case, Group, Measured, Options, params, read_rows};

use crate::catalogue::levada::binary;
use crate::measuring::{Measuring, Outcome, file};
use crate::table::{Table, filled};
use node::Node;

/// The experiment's name in rows.
const NAME: &str = "records/lists";
const SUBJECT: &str = "levada";
/// The parameter with the number of entries in the audit log.
const ENTRIES: &str = "entries";
/// The numbers of entries.
const SIZES: [u32; 3] = [1000, 100_000, 1_000_000];
const QUICK_SIZES: [u32; 2] = [1000, 1_000_000];
/// The rows of a list, as on the command line.
const LIMIT: u32 = 100;
/// The calls of each list in a run.
const CALLS: u32 = 20;

/// A list: its name in rows, and the request to the node that makes it.
type List = (&'static str, fn(&Node) -> Request);

/// The measured lists. A further list needs one more line here.
const LISTS: [List; 13] = [
    ("access", |_| Request::Access { identity: None }),
    ("access NAME", |node| Request::Access { identity: Some(node.person.clone()) }),
    ("access explain", explain),
    ("sessions", |_| sessions(false, Filter::default())),
    ("sessions --running", |_| sessions(true, Filter::default())),
    ("sessions --by", |node| sessions(false, by(node))),
    ("sessions --by --service", |node| {
        sessions(false, Filter { service: Some("echo".to_owned()), ..by(node) })
    }),
    ("sessions --service", |_| sessions(false, service())),
    ("sessions --since", |node| sessions(false, since(node))),
    ("sessions --log", |_| log(Filter::default())),
    ("sessions --log --by", |node| log(by(node))),
    ("sessions --log --since", |node| log(since(node))),
    ("status", |_| Request::Status),
];

fn explain(node: &Node) -> Request {
    Request::Explain {
        identity: node.person.clone(),
        service: "clock".to_owned(),
        params: Vec::new(),
        expires_secs: None,
        uses: 1,
    }
}

fn sessions(running: bool, filter: Filter) -> Request {
    Request::Sessions { limit: LIMIT, running, filter }
}

fn log(filter: Filter) -> Request {
    Request::Log { limit: LIMIT, filter, follow: false }
}

fn by(node: &Node) -> Filter {
    Filter { by: Some(node.person.clone()), ..Filter::default() }
}

fn service() -> Filter {
    Filter { service: Some("clock".to_owned()), ..Filter::default() }
}

/// The last week.
fn since(node: &Node) -> Filter {
    Filter { since: Some(node.filled.saturating_sub(7 * 86_400)), ..Filter::default() }
}

/// Selects the experiment.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// The time of `access`, `sessions` and the audit log, over the number of entries
    Lists(Lists),
    /// As `lists`
    All(Options),
    /// Print the rows in a folder as a table in Markdown
    Report {
        /// The folder of the rows
        dir: PathBuf,
    },
}

/// The options of `lists`.
#[derive(Args)]
struct Lists {
    /// Shared by all experiments.
    #[command(flatten)]
    shared: Options,

    /// The measured `levada` binary; default: that of this workspace
    #[arg(long, value_name = "FILE")]
    levada: Option<PathBuf>,
}

/// Runs the experiment.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let lists = match arguments.experiment {
        Experiment::Lists(lists) => lists,
        Experiment::All(shared) => Lists { shared, levada: None },
        Experiment::Report { dir } => {
            return crate::table::print(&tables(&dir)?);
        }
    };
    measure(&lists)?.conclude(&lists.shared, |_| Ok(()), targets::table)
}

/// The tables of the rows in a folder.
pub fn tables(dir: &Path) -> anyhow::Result<Vec<Table>> {
    Ok(filled([targets::table(&read_rows(&file(dir, NAME))?)]))
}

fn measure(arguments: &Lists) -> anyhow::Result<Outcome> {
    let binary = binary(arguments.levada.as_deref(), true)?;
    let sizes = if arguments.shared.quick { QUICK_SIZES.to_vec() } else { SIZES.to_vec() };
    let mut measuring = Measuring::new(NAME, &arguments.shared, sizes.len())?;
    for entries in sizes {
        let params = params([(ENTRIES, entries.into())]);
        if !measuring.needs(&params, &[SUBJECT.to_owned()]) {
            continue;
        }
        let node = Node::start(&binary, entries)?;
        let case = Case::new(SUBJECT, || Ok(times(&node)?));
        measuring.group(Group { experiment: NAME, params, cases: vec![case], monitor: None })?;
    }
    Ok(measuring.finish())
}

/// The times of each list, from the request on the control socket to the decoded answer.
fn times(node: &Node) -> anyhow::Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for (name, request) in LISTS {
        let request = request(node);
        let mut times = Histogram::new(3)?;
        for _ in 0..CALLS {
            let begun = Instant::now();
            node.call(&request)?;
            times.record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))?;
        }
        measured.push(Measured::milliseconds(name, times));
    }
    Ok(measured)
}
