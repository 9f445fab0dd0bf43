//! The pages that are compared, and the reports that their tables come from.

use std::path::Path;

use crate::table::Table;
use crate::{accuracy, attacks, catalogue, channels, contexts, records, sockets, swarm};

/// The pages with figures of rows.
pub const PAGES: [&str; 11] = [
    "README.md",
    "docs/scale.md",
    "experiments/README.md",
    "experiments/attacks/README.md",
    "experiments/catalogue/README.md",
    "experiments/channels/README.md",
    "experiments/contexts/README.md",
    "experiments/lab/README.md",
    "experiments/records/README.md",
    "experiments/sockets/README.md",
    "experiments/swarm/README.md",
];

/// Headings of sections without figures of rows: settings of an experiment, and figures that the
/// page says to have no rows.
pub const WITHOUT_ROWS: [&str; 2] = ["Method", "Not from rows"];

/// Makes all tables of the rows in a folder.
pub type Tables = fn(&Path) -> anyhow::Result<Vec<Table>>;
/// Draws all pictures of the rows in a folder, into that folder.
pub type Draw = fn(&Path) -> anyhow::Result<()>;

/// The report of a folder within `experiments`, and of the folders within it.
pub struct Report {
    /// The folder.
    pub folder: &'static str,
    /// Its tables.
    pub tables: Tables,
    /// Its pictures.
    pub draw: Draw,
}

/// All reports.
pub const REPORTS: [Report; 8] = [
    Report { folder: "attacks", tables: attacks::tables, draw: |_| Ok(()) },
    Report { folder: "catalogue", tables: catalogue::tables, draw: catalogue::draw },
    Report { folder: "channels", tables: channels::tables, draw: channels::draw },
    Report { folder: "contexts", tables: contexts::tables, draw: contexts::draw },
    Report { folder: "lab", tables: accuracy::tables, draw: |_| Ok(()) },
    Report { folder: "records", tables: records::tables, draw: |_| Ok(()) },
    Report { folder: "sockets", tables: sockets::tables, draw: sockets::draw },
    Report { folder: "swarm", tables: swarm::tables, draw: swarm::draw },
];
