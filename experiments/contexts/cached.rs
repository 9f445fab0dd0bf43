//! Answers of a middlebox with a cache, compared with those of the origin: whole programs, and
//! `curl` as the client.

use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use levada_harness::{Case, Group, Measured, Options, Params, params};
use levada_lab::Link;

use super::programs::Programs;
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "contexts/cache";
/// The subjects: an answer of the cache, and one of the origin.
pub const SUBJECTS: [&str; 2] = ["hit", "miss"];
/// Lengths of files, in bytes; the rate of the server's link in Mbit/s for each.
pub const FILES: [(usize, u64); 2] = [(1024, 100), (1 << 20, 8)];
/// The rate of the client's link, in Mbit/s.
const CLIENT_RATE: u64 = 100;
/// The one-way delay of each link.
const DELAY: Duration = Duration::from_millis(20);

/// The conditions of rows.
pub fn conditions((bytes, rate): (usize, u64)) -> Params {
    params([
        ("response_bytes", bytes.into()),
        ("server_rate_mbit", rate.into()),
        ("client_rate_mbit", CLIENT_RATE.into()),
        ("delay_ms", 20.into()),
        ("measured", "levada http, levada middlebox --cache, a node and nginx".into()),
    ])
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut measuring = Measuring::new(NAME, options, FILES.len())?;
    let count = if options.quick { 3 } else { 10 };
    for file in FILES {
        let link = |mbit: u64| Link::new().delay(DELAY).rate(mbit * 1_000_000);
        let links = [link(CLIENT_RATE), link(file.1)];
        let testbed = || Testbed::line(levada_lab::Options::default(), &links, false);
        let names = SUBJECTS.map(str::to_owned);
        if let Some(testbed) = measuring.testbed(&conditions(file), &names, testbed)? {
            let files = FILES.map(|(bytes, _)| bytes);
            let mut programs = Programs::start(&testbed, (1, &["--cache", "64M"]), &files)?;
            programs.open()?;
            let parties = (&testbed, &programs);
            let case = |subject| {
                let mut misses = 0;
                Case::new(subject, move || {
                    Ok(measure(parties, file.0, subject, count, &mut misses)?)
                })
            };
            let params = conditions(file);
            let cases = SUBJECTS.map(case).into();
            measuring.group(Group {
                experiment: NAME,
                params,
                cases,
                monitor: testbed.monitor(),
            })?;
        }
    }
    Ok(measuring.finish())
}

/// Makes requests one after the other, each with a new query for a miss.
fn measure(
    (testbed, programs): (&Testbed, &Programs<'_>),
    bytes: usize,
    subject: &str,
    count: u64,
    misses: &mut u64,
) -> anyhow::Result<Vec<Measured>> {
    let mut firsts: Histogram<u64> = Histogram::new(3)?;
    let mut wholes: Histogram<u64> = Histogram::new(3)?;
    let mut carried = 0;
    for _ in 0..count {
        *misses += 1;
        let query = if subject == "hit" { "hit".to_owned() } else { misses.to_string() };
        let before = testbed.carried(1)?;
        let all = programs.curl(bytes, &[&query])?;
        // The last acknowledgements.
        thread::sleep(Duration::from_millis(100));
        carried += testbed.carried(1)? - before;
        for transfer in all {
            firsts.record(u64::try_from(transfer.first.as_nanos())?)?;
            wholes.record(u64::try_from(transfer.whole.as_nanos())?)?;
        }
    }
    Ok(vec![
        Measured::milliseconds("first byte", firsts),
        Measured::milliseconds("whole body", wholes),
        Measured::new("server's link", "bytes", carried as f64 / count as f64),
    ])
}
