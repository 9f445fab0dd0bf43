//! Bytes on the client's link for recorded page loads, over the strategies of contexts.
//!
//! Every connection of a page is replayed in memory, so the bytes are exact: records, handshakes
//! and ends of connections, without TCP. The recordings have no names of hosts: connection 0 has a
//! full handshake, later ones are resumed.

mod fields;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use levada_contexts::{Kem, Purpose, Right};
use levada_harness::{Case, Group, Measured, Options, Params, params};
use levada_services::http::{Strategy, context_names};

use super::end::Exchange;
use super::levada::{Parties, purposes};
use super::line::{self, Party};
use super::script::Script;
use super::tls::{End, Forward, Keys};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "contexts/web";
/// The strategies: those of the service `http`, and each line of a head in a context of its own, as
/// in the paper.
pub const STRATEGIES: [&str; 4] = ["one", "four", PER_HEADER, PER_LINE];
const PER_HEADER: &str = "per-header";
const PER_LINE: &str = "per-line";
/// Numbers of middleboxes.
pub const MIDDLEBOXES: [usize; 2] = [1, 3];
/// The subjects: the bytes of HTTP alone, TLS, and sessions whose middleboxes pass everything on
/// and have no right, or write everywhere.
pub const SUBJECTS: [&str; 4] = ["plain", "e2e", "levada/no rights", "levada"];

/// The recorded page loads of a strategy: for each site, the exchanges of each connection.
type Pages = Vec<Vec<Vec<Exchange>>>;

/// The conditions of rows.
pub fn conditions(strategy: &str, middleboxes: usize) -> Params {
    params([
        ("strategy", strategy.into()),
        ("middleboxes", middleboxes.into()),
        ("measured", "channel, in memory".into()),
    ])
}

/// Runs the experiment. The bytes do not vary, so the runs differ only in lengths of signatures and
/// the like.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut measuring = Measuring::new(NAME, options, STRATEGIES.len() * MIDDLEBOXES.len())?;
    for strategy in STRATEGIES {
        for middleboxes in MIDDLEBOXES {
            let params = conditions(strategy, middleboxes);
            if measuring.needs(&params, &SUBJECTS.map(str::to_owned)) {
                let mut pages = pages(strategy)?;
                if options.quick {
                    pages.truncate(4);
                }
                let case = |subject: &'static str| {
                    let pages = pages.clone();
                    Case::new(subject, move || Ok(measure(subject, middleboxes, &pages)?))
                };
                let cases = SUBJECTS.map(case).into();
                measuring.group(Group { experiment: NAME, params, cases, monitor: None })?;
            }
        }
    }
    Ok(measuring.finish())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contexts/web-traces")
}

/// The recorded page loads, divided into the contexts of a strategy.
fn pages(strategy: &str) -> anyhow::Result<Pages> {
    match strategy {
        "one" => read(&folder(), "one-slice"),
        "four" => read(&folder(), "four-slices"),
        PER_LINE => read(&folder(), "slice-per-header"),
        _ => {
            let mut pages = read(&folder(), "slice-per-header")?;
            let exchanges = pages.iter_mut().flatten().flatten();
            exchanges.for_each(|exchange| *exchange = fields::divided(exchange));
            Ok(pages)
        }
    }
}

/// The purposes of the contexts of an exchange.
fn purposes_of(contexts: usize) -> Vec<Purpose> {
    let names = context_names(Strategy::PerHeader);
    match contexts {
        // Heads and bodies.
        4 => purposes(4),
        _ if contexts == names.len() => names.into_iter().map(|(_, purpose)| purpose).collect(),
        _ => vec![Purpose::Other; contexts],
    }
}

/// The recordings whose names have this ending, in alphabetical order.
fn read(folder: &Path, ending: &str) -> anyhow::Result<Pages> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == ending) {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "{} has no recordings", folder.display());
    let page = |path: &PathBuf| {
        let text = std::fs::read_to_string(path)?;
        parse(&text).with_context(|| format!("{} has a wrong line", path.display()))
    };
    files.iter().map(page).collect()
}

/// Lines of `start request;response connection`, the lengths of each context joined by `_`. None if
/// a line has another form.
fn parse(text: &str) -> Option<Vec<Vec<Exchange>>> {
    let mut connections: BTreeMap<u32, Vec<Exchange>> = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(' ').skip(1);
        let (request, response) = fields.next()?.split_once(';')?;
        let sizes = |text: &str| text.split('_').map(|one| one.parse().ok()).collect::<Option<_>>();
        let exchange = Exchange { request: sizes(request)?, response: sizes(response)? };
        connections.entry(fields.next()?.parse().ok()?).or_default().push(exchange);
    }
    Some(connections.into_values().collect())
}

/// The bytes of all pages on the client's link.
fn measure(subject: &str, middleboxes: usize, pages: &Pages) -> anyhow::Result<Vec<Measured>> {
    let mut bytes = 0;
    let mut most = 0;
    for page in pages {
        let page_bytes = match subject {
            "plain" => plain(page),
            "e2e" => e2e(page, middleboxes)?,
            "levada" => levada(page, (middleboxes, Right::Write))?,
            _ => levada(page, (middleboxes, Right::None))?,
        };
        bytes += page_bytes;
        most = most.max(1000 * page_bytes / plain(page));
    }
    Ok(vec![
        Measured::new("client's link", "bytes", bytes as f64),
        Measured::new("÷ plain, worst page", "1", most as f64 / 1000.0),
    ])
}

fn plain(page: &[Vec<Exchange>]) -> u64 {
    let bytes = |exchange: &Exchange| {
        exchange.request.iter().chain(&exchange.response).sum::<usize>() as u64
    };
    page.iter().flatten().map(bytes).sum()
}

fn e2e(page: &[Vec<Exchange>], middleboxes: usize) -> anyhow::Result<u64> {
    let keys = Keys::new()?;
    let mut bytes = 0;
    for connection in page {
        let client = End::with(keys.client()?, Script::client(connection));
        let server = End::with(keys.server()?, Script::server(connection));
        let mut line: Vec<Box<dyn Party>> = vec![Box::new(client)];
        for _ in 0..middleboxes {
            line.push(Box::<Forward>::default());
        }
        line.push(Box::new(server));
        bytes += replay(&mut line)?;
    }
    Ok(bytes)
}

fn levada(page: &[Vec<Exchange>], rights: (usize, Right)) -> anyhow::Result<u64> {
    let contexts = page.iter().flatten().map(|exchange| exchange.request.len()).max();
    let contexts = contexts.context("a page without an exchange")?;
    let parties = Parties::new(Kem::Hybrid, rights, &purposes_of(contexts), true)?;
    let mut bytes = 0;
    for connection in page {
        bytes += replay(&mut parties.line_with(connection)?)?;
    }
    Ok(bytes)
}

/// The bytes on the client's link of one connection, after which both ends are done.
fn replay(line: &mut [Box<dyn Party + '_>]) -> anyhow::Result<u64> {
    let mut measured = line::Measured::default();
    line::run(line, &mut measured)?;
    ensure!(line.iter().all(|party| party.is_done()), "a connection has stalled");
    Ok(measured.bytes[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_divided_into_connections() {
        let text = "0.2 152_0_0_0;0_0_395_33 0\n0.5 26_1_0_0;0_0_3_4 1\n0.6 5_0_0_0;0_0_6_7 0\n";
        let connections = parse(text).unwrap();
        assert_eq!(connections.len(), 2);
        assert_eq!(connections[0].len(), 2);
        assert_eq!(connections[1][0].request, [26, 1, 0, 0]);
        assert_eq!(connections[1][0].response, [0, 0, 3, 4]);
        assert!(parse("0.2 152").is_none());
    }

    #[test]
    fn the_recordings_are_complete_and_a_page_is_replayed() {
        for strategy in STRATEGIES {
            assert_eq!(pages(strategy).unwrap().len(), 24);
        }
        let pages = pages("four").unwrap();
        let page = &pages[0];
        let plain = plain(page);
        let e2e = e2e(page, 1).unwrap();
        let levada = levada(page, (1, Right::None)).unwrap();
        assert!(plain < e2e && e2e < levada, "{plain} {e2e} {levada}");
    }
}
