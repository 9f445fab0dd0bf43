//! The CPU time of a connection at each party, and the bytes of its handshake (mcTLS,
//! "Scalability").
//!
//! As `s_time` does, it makes connections one after the other and divides CPU time by their number.
//! All parties are in one process and one thread, in memory: no system calls, only the handshake.

use std::time::Duration;

use levada_contexts::{Kem, Right};
use levada_harness::{Case, Group, Measured, Options, Params, params};

use super::levada::{Parties, purposes};
use super::line::{self, Party};
use super::tls::{End, Forward, Keys, Split};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "contexts/connections";
/// Sessions with middleboxes, by key encapsulation.
pub const LEVADA: [&str; 2] = ["levada/x25519", "levada/hybrid"];
/// TLS end to end, through forwarders.
pub const E2E: &str = "e2e";
/// A TLS session for each link.
pub const SPLIT: &str = "split";
/// Numbers of contexts.
const CONTEXTS: [usize; 5] = [1, 2, 4, 8, 16];
/// Numbers of middleboxes.
const MIDDLEBOXES: [usize; 5] = [1, 2, 4, 8, 16];

/// The conditions of a group.
#[derive(Clone, Copy)]
struct Conditions {
    middleboxes: usize,
    contexts: usize,
    resumed: bool,
    /// Connections of a run.
    count: usize,
}

impl Conditions {
    fn params(self) -> Params {
        conditions(self.middleboxes, self.contexts, self.resumed)
    }
}

/// The conditions of rows.
pub fn conditions(middleboxes: usize, contexts: usize, resumed: bool) -> Params {
    let handshake = if resumed { "resumed" } else { "full" };
    params([
        ("middleboxes", middleboxes.into()),
        ("contexts", contexts.into()),
        ("handshake", handshake.into()),
        ("measured", "channel, in memory".into()),
    ])
}

/// Runs the experiment: over contexts with one middlebox, and over middleboxes with four contexts.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let of = |middleboxes, contexts| (middleboxes, contexts);
    let mut cells: Vec<(usize, usize)> = CONTEXTS.map(|contexts| of(1, contexts)).to_vec();
    cells.extend(MIDDLEBOXES[1..].iter().map(|middleboxes| of(*middleboxes, 4)));
    if options.quick {
        cells.retain(|cell| [of(1, 1), of(1, 4), of(1, 16), of(4, 4)].contains(cell));
    }
    let mut measuring = Measuring::new(NAME, options, 2 * cells.len())?;
    let names = [LEVADA[0], LEVADA[1], E2E, SPLIT].map(str::to_owned);
    for (middleboxes, contexts) in cells {
        for resumed in [false, true] {
            let count = if options.quick { 40 } else { 200 };
            let conditions = Conditions { middleboxes, contexts, resumed, count };
            if measuring.needs(&conditions.params(), &names) {
                measuring.group(group(conditions))?;
            }
        }
    }
    Ok(measuring.finish())
}

fn group(conditions: Conditions) -> Group<'static> {
    let mut cases = Vec::new();
    for (name, kem) in LEVADA.into_iter().zip([Kem::X25519, Kem::Hybrid]) {
        cases.push(Case::new(name, move || Ok(levada(conditions, kem)?)));
    }
    cases.push(Case::new(E2E, move || Ok(e2e(conditions)?)));
    cases.push(Case::new(SPLIT, move || Ok(split(conditions)?)));
    Group { experiment: NAME, params: conditions.params(), cases, monitor: None }
}

/// Makes the connections. The first, which has no ticket, is not counted.
fn measure<'a>(
    conditions: Conditions,
    mut line: impl FnMut() -> anyhow::Result<Vec<Box<dyn Party + 'a>>>,
) -> anyhow::Result<Vec<Measured>> {
    line::run(&mut line()?, &mut line::Measured::default())?;
    let mut all = line::Measured::default();
    for _ in 0..conditions.count {
        line::run(&mut line()?, &mut all)?;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / conditions.count as f64;
    let bytes = |link: usize| all.bytes[link] as f64 / conditions.count as f64;
    let last = all.cpu.len() - 1;
    // With several middleboxes, the time of one of them, on average.
    let middle = all.cpu[1..last].iter().sum::<Duration>() / u32::try_from(last - 1)?;
    Ok(vec![
        Measured::new("client CPU", "µs", each(all.cpu[0])),
        Measured::new("middlebox CPU", "µs", each(middle)),
        Measured::new("server CPU", "µs", each(all.cpu[last])),
        Measured::new("client's link", "bytes", bytes(0)),
        Measured::new("server's link", "bytes", bytes(last - 1)),
    ])
}

fn levada(conditions: Conditions, kem: Kem) -> anyhow::Result<Vec<Measured>> {
    let Conditions { middleboxes, contexts, resumed, .. } = conditions;
    let rights = (middleboxes, Right::Write);
    let parties = Parties::new(kem, rights, &purposes(contexts), resumed)?;
    measure(conditions, || parties.line())
}

fn e2e(conditions: Conditions) -> anyhow::Result<Vec<Measured>> {
    let mut keys = Keys::new()?;
    measure(conditions, || {
        // A full handshake has no ticket to offer.
        if !conditions.resumed {
            keys.forget();
        }
        let mut line: Vec<Box<dyn Party>> = vec![Box::new(End::new(keys.client()?))];
        for _ in 0..conditions.middleboxes {
            line.push(Box::<Forward>::default());
        }
        line.push(Box::new(End::new(keys.server()?)));
        Ok(line)
    })
}

fn split(conditions: Conditions) -> anyhow::Result<Vec<Measured>> {
    let mut links = Vec::new();
    for _ in 0..=conditions.middleboxes {
        links.push(Keys::new()?);
    }
    measure(conditions, || {
        if !conditions.resumed {
            links.iter_mut().for_each(Keys::forget);
        }
        let mut line: Vec<Box<dyn Party>> = vec![Box::new(End::new(links[0].client()?))];
        for pair in links.windows(2) {
            line.push(Box::new(Split { near: pair[0].server()?, far: pair[1].client()? }));
        }
        line.push(Box::new(End::new(links[conditions.middleboxes].server()?)));
        Ok(line)
    })
}
