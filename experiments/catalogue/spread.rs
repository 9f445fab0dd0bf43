//! A catalogue on several nodes that share an engine, NATS JetStream: rates of reading and
//! publishing, how soon a publication is visible on every node, and what readers and publishers
//! notice when servers of the engine end.

mod conditions;
mod engine;
mod faults;
mod fleet;
mod noticed;
mod own;
mod publishing;
mod quota;
mod reads;
mod relay;
mod report;
mod start;
mod verdaccio;
mod visible;

use std::path::{Path, PathBuf};

use clap::Args;
use levada_harness::{Options, read_rows};

use super::levada::Levada;
use crate::limits::allow_sockets;
use crate::measuring::{Measuring, Outcome, file};
use crate::table::{Table, filled};
use conditions::{GROUPS, NAME, Part};
pub use report::table;

/// What to measure.
#[derive(Args)]
pub struct Arguments {
    /// Shared by all experiments.
    #[command(flatten)]
    pub shared: Options,

    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    part: Vec<Part>,

    /// The measured `levada` binary; default: that of this workspace
    #[arg(long, value_name = "FILE")]
    levada: Option<PathBuf>,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    allow_sockets()?;
    engine::program()?;
    // Reads are compared by what one core answers; all else uses what there is.
    let one_core = Levada::find(arguments.levada.as_deref(), true)?;
    let all_cores = one_core.on_all_cores();
    let mut measuring = Measuring::new(NAME, &arguments.shared, GROUPS)?;
    let quick = arguments.shared.quick;
    for (part, levada, measure) in [
        (Part::Reads, &one_core, reads::against_sqlite as reads::Measure),
        (Part::Nodes, &one_core, reads::of_several_nodes),
        (Part::Publishing, &all_cores, publishing::measure),
        // At half of the rate of publishing.
        (Part::Visible, &all_cores, visible::measure),
        (Part::Start, &all_cores, start::measure),
        (Part::Faults, &all_cores, faults::measure),
    ] {
        if arguments.part.is_empty() || arguments.part.contains(&part) {
            measure(&mut measuring, levada, quick)?;
        }
    }
    Ok(measuring.finish())
}

/// The table of the rows in `folder`, if there are any.
pub fn tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    Ok(filled([table(&read_rows(&file(folder, NAME))?)]))
}
