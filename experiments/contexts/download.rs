//! The time of a download over its length and the rate of the links (mcTLS, "Controlled").

use levada_harness::Options;

use super::first_byte::cell;
use super::latency::{Cell, MODES};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "contexts/download";
/// Lengths of files, in bytes.
pub const LENGTHS: [usize; 7] = [470, 4_700, 20_480, 81_920, 327_680, 1_310_720, 10_485_760];
/// Rates of a link, in Mbit/s.
pub const RATES: [u64; 4] = [8, 100, 10, 1];
/// The length that the paper states a time of.
pub const STATED: usize = 1_310_720;
/// Downloads that take longer than this many seconds are made once in a run, others ten times.
const LONG: u64 = 2;

/// Runs the experiment: one middlebox, four contexts, 20 ms for each link.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut cells = Vec::new();
    for rate in RATES {
        cells.extend(LENGTHS.map(|response| (rate, Cell { response, ..cell(rate) })));
    }
    if options.quick {
        cells.retain(|(rate, cell)| *rate == 8 && [470, STATED].contains(&cell.response));
    }
    // The longest last, for a call that has a limit.
    let seconds = |(rate, cell): &(u64, Cell)| 8 * cell.response as u64 / (rate * 1_000_000);
    cells.sort_by_key(seconds);
    let names = MODES.map(|mode| mode.to_string());
    let mut measuring = Measuring::new(NAME, options, cells.len())?;
    for each in cells {
        let cell = each.1;
        let testbed = || cell.links.testbed(cell.middleboxes);
        let count = if options.quick || seconds(&each) >= LONG { 1 } else { 10 };
        if let Some(testbed) = measuring.testbed(&cell.params(), &names, testbed)? {
            measuring.group(cell.group(NAME, &testbed, count))?;
        }
    }
    Ok(measuring.finish())
}
