//! The time to the first byte over contexts, delay and middleboxes (mcTLS, "Controlled" and
//! "Realistic Environment").

use clap::{Args, ValueEnum};
use levada_harness::Options;

use super::latency::{Cell, MODES};
use super::link::{Links, Profile};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "contexts/first-byte";
/// Numbers of contexts.
pub const CONTEXTS: [usize; 5] = [1, 2, 4, 8, 16];
/// One-way delays of a link, in ms.
pub const DELAYS: [u64; 5] = [5, 10, 20, 40, 80];
/// Numbers of middleboxes.
pub const MIDDLEBOXES: [usize; 6] = [0, 1, 2, 4, 8, 16];
/// Rates of a link, in Mbit/s.
pub const RATES: [u64; 2] = [8, 100];
/// Shares of lost packets.
pub const LOSSES: [f64; 4] = [0.001, 0.005, 0.01, 0.02];
/// The response of the sweeps, in bytes.
pub const RESPONSE: usize = 200;

/// A cell of the sweeps: one middlebox, four contexts, 20 ms for each link.
pub fn cell(rate_mbit: u64) -> Cell {
    Cell {
        middleboxes: 1,
        contexts: 4,
        links: Links::Alike { delay_ms: 20, rate_mbit, loss: 0.0 },
        nagle: false,
        response: RESPONSE,
    }
}

/// The same with another delay and loss.
pub fn with_links(rate_mbit: u64, delay_ms: u64, loss: f64) -> Cell {
    Cell { links: Links::Alike { delay_ms, rate_mbit, loss }, ..cell(rate_mbit) }
}

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sweep {
    /// Contexts, also with Nagle's algorithm
    Contexts,
    /// The delay of links
    Delay,
    /// Middleboxes
    Middleboxes,
    /// The loss of links
    Loss,
    /// Networks: fibre, 3G and LAN
    Networks,
}

impl Sweep {
    /// All conditions. A cell that two sweeps have in common is measured once: the second time it
    /// has rows.
    pub fn cells(self) -> Vec<Cell> {
        let mut all = Vec::new();
        if self == Self::Networks {
            for profile in Profile::ALL {
                let links = Links::Profile(profile);
                all.extend(CONTEXTS.map(|contexts| Cell { contexts, links, ..cell(8) }));
            }
            return all;
        }
        for rate in RATES {
            match self {
                Self::Contexts => {
                    all.extend(CONTEXTS.map(|contexts| Cell { contexts, ..cell(rate) }));
                }
                Self::Delay => all.extend(DELAYS.map(|delay| with_links(rate, delay, 0.0))),
                Self::Middleboxes => {
                    all.extend(MIDDLEBOXES.map(|middleboxes| Cell { middleboxes, ..cell(rate) }));
                }
                Self::Loss | Self::Networks => {}
            }
        }
        match self {
            Self::Contexts => {
                all.extend([4, 16].map(|contexts| Cell { contexts, nagle: true, ..cell(8) }));
            }
            Self::Loss => all.extend(LOSSES.map(|loss| with_links(8, 20, loss))),
            _ => {}
        }
        all
    }
}

/// The conditions to measure.
#[derive(Args)]
pub struct Arguments {
    /// How to measure.
    #[command(flatten)]
    pub options: Options,

    /// Only what this varies
    #[arg(long, value_delimiter = ',')]
    sweep: Vec<Sweep>,
}

impl Arguments {
    /// All conditions.
    pub fn all(options: Options) -> Self {
        Self { options, sweep: Vec::new() }
    }
}

/// A few cells of all sweeps.
fn quick() -> Vec<Cell> {
    vec![
        cell(8),
        Cell { contexts: 16, ..cell(8) },
        Cell { middleboxes: 0, ..cell(8) },
        Cell { middleboxes: 4, ..cell(8) },
        with_links(100, 5, 0.0),
    ]
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let options = &arguments.options;
    let cells = match &arguments.sweep[..] {
        [] if options.quick => quick(),
        [] => Sweep::value_variants().iter().flat_map(|sweep| sweep.cells()).collect(),
        sweeps => sweeps.iter().flat_map(|sweep| sweep.cells()).collect(),
    };
    let names = MODES.map(|mode| mode.to_string());
    let mut measuring = Measuring::new(NAME, options, cells.len())?;
    // Five runs make fifty connections, as in the paper; the committed rows have three.
    let count = if options.quick { 2 } else { 10 };
    for cell in cells {
        let testbed = || cell.links.testbed(cell.middleboxes);
        if let Some(testbed) = measuring.testbed(&cell.params(), &names, testbed)? {
            measuring.group(cell.group(NAME, &testbed, count))?;
        }
    }
    Ok(measuring.finish())
}
