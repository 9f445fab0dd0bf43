//! The bytes of handshakes and of records on each link, and what the access of a middlebox to
//! records costs beside memory.
//!
//! All in memory, as in `connections`: the bytes are those that the parties send to each other.

use std::hint::black_box;

use levada_contexts::{Kem, Right};
use levada_harness::{Case, Group, Measured, Options, Params, own_cpu_time, params};

use super::end::Exchange;
use super::levada::{Parties, Rewrite, purposes};
use super::line::{self, Party};
use super::mode::Mode;
use super::script::Script;
use super::tls::{End, Forward, Keys};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "contexts/overhead";
/// TLS end to end, through a middlebox that passes bytes on.
pub const E2E: &str = "e2e";
/// Bytes copied once from memory to memory.
pub const COPY: &str = "memcpy";
/// A middlebox that writes each record anew.
pub const REWRITER: &str = "levada/rewriter";
/// The subjects of records with the right of the middlebox; the key encapsulation is of no effect
/// on them.
pub const RECORDS: [(&str, Right); 4] = [
    ("levada/no rights", Right::None),
    ("levada/reader", Right::Read),
    ("levada", Right::Write),
    (REWRITER, Right::Write),
];
/// Bytes of data in a record, up to the most of TLS and the most of a context.
pub const LENGTHS: [usize; 5] = [64, 256, 1_024, 4_096, 16_383];
/// Numbers of contexts. A session joins writes to one context in full records, so short ones need
/// two contexts for a response.
pub const CONTEXTS: [usize; 2] = [4, 16];
/// Middleboxes and contexts of handshakes.
pub const HANDSHAKES: [(usize, usize); 6] = [(1, 1), (1, 4), (1, 16), (2, 4), (4, 4), (16, 4)];
/// The length of a response, in bytes.
const RESPONSE: usize = 1 << 20;
/// The length of a request, in bytes.
const REQUEST: usize = 1;

/// The conditions of rows of records.
pub fn records(length: usize, contexts: usize) -> Params {
    params([
        ("record_bytes", length.into()),
        ("contexts", contexts.into()),
        ("middleboxes", 1.into()),
        ("measured", "channel, in memory".into()),
    ])
}

/// The conditions of rows of handshakes.
pub fn handshakes((middleboxes, contexts): (usize, usize), resumed: bool) -> Params {
    super::connections::conditions(middleboxes, contexts, resumed)
}

/// The sessions whose handshakes are measured.
pub fn sessions() -> Vec<Mode> {
    let rights = [Right::None, Right::Read, Right::Write];
    [Kem::X25519, Kem::Hybrid]
        .into_iter()
        .flat_map(|kem| rights.map(|right| Mode::Levada(kem, right)))
        .collect()
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut lengths = LENGTHS.to_vec();
    let mut contexts = CONTEXTS.to_vec();
    if options.quick {
        lengths.retain(|length| [256, 16_383].contains(length));
        contexts.retain(|contexts| *contexts == 4);
    }
    let groups = 2 * HANDSHAKES.len() + lengths.len() * contexts.len();
    let mut measuring = Measuring::new(NAME, options, groups)?;
    for resumed in [false, true] {
        for cell in HANDSHAKES {
            let mut names = vec![E2E.to_owned()];
            names.extend(sessions().iter().map(ToString::to_string));
            if measuring.needs(&handshakes(cell, resumed), &names) {
                measuring.group(handshake_group(cell, resumed))?;
            }
        }
    }
    // As much data for each length, so that short runs do not make the CPU time of long records
    // coarse.
    let count = if options.quick { 4 } else { 16 };
    for contexts in contexts {
        for length in &lengths {
            let names = [E2E, COPY].into_iter().chain(RECORDS.map(|(name, _)| name));
            let names: Vec<String> = names.map(str::to_owned).collect();
            if measuring.needs(&records(*length, contexts), &names) {
                measuring.group(record_group(*length, contexts, count))?;
            }
        }
    }
    Ok(measuring.finish())
}

fn handshake_group(cell: (usize, usize), resumed: bool) -> Group<'static> {
    let (middleboxes, contexts) = cell;
    let mut cases = vec![Case::new(E2E, move || {
        let mut keys = Keys::new()?;
        Ok(handshake(|scripts| {
            if !resumed {
                keys.forget();
            }
            tls_line(&keys, middleboxes, scripts)
        })?)
    })];
    for mode in sessions() {
        let Mode::Levada(kem, right) = mode else { continue };
        cases.push(Case::new(mode.to_string(), move || {
            let parties = Parties::new(kem, (middleboxes, right), &purposes(contexts), resumed)?;
            Ok(handshake(|scripts| parties.line_of(scripts))?)
        }));
    }
    Group { experiment: NAME, params: handshakes(cell, resumed), cases, monitor: None }
}

/// The bytes of a connection whose ends send nothing, and what its end adds, both ways.
fn handshake<'a>(
    mut line: impl FnMut(Option<[Script; 2]>) -> anyhow::Result<Vec<Box<dyn Party + 'a>>>,
) -> anyhow::Result<Vec<Measured>> {
    // The first has no ticket.
    line::run(&mut line(None)?, &mut line::Measured::default())?;
    let mut open = line::Measured::default();
    line::run(&mut line(None)?, &mut open)?;
    let mut ended = line::Measured::default();
    line::run(&mut line(Some([Script::client(&[]), Script::server(&[])]))?, &mut ended)?;
    let last = open.bytes.len() - 1;
    let end = |link: usize| (ended.bytes[link] - open.bytes[link]) as f64;
    Ok(vec![
        Measured::new("handshake, client's link", "bytes", open.bytes[0] as f64),
        Measured::new("handshake, server's link", "bytes", open.bytes[last] as f64),
        Measured::new("end, client's link", "bytes", end(0)),
        Measured::new("end, server's link", "bytes", end(last)),
    ])
}

fn tls_line(
    keys: &Keys,
    middleboxes: usize,
    scripts: Option<[Script; 2]>,
) -> anyhow::Result<Vec<Box<dyn Party>>> {
    let [client, server] = scripts.map_or([None, None], |both| both.map(Some));
    let end = |connection, script| match script {
        None => End::new(connection),
        Some(script) => End::with(connection, script),
    };
    let mut line: Vec<Box<dyn Party>> = vec![Box::new(end(keys.client()?, client))];
    for _ in 0..middleboxes {
        line.push(Box::<Forward>::default());
    }
    line.push(Box::new(end(keys.server()?, server)));
    Ok(line)
}

fn record_group(length: usize, contexts: usize, count: usize) -> Group<'static> {
    let mut cases = vec![Case::new(E2E, move || {
        let keys = Keys::new()?;
        Ok(exchanged(length, contexts, count, |scripts| tls_line(&keys, 1, Some(scripts)))?)
    })];
    for (name, right) in RECORDS {
        cases.push(Case::new(name, move || {
            let mut parties = Parties::new(Kem::X25519, (1, right), &purposes(contexts), true)?;
            if name == REWRITER {
                parties.inspector = || Box::new(Rewrite);
            }
            Ok(exchanged(length, contexts, count, |scripts| parties.line_of(Some(scripts)))?)
        }));
    }
    cases.push(Case::new(COPY, move || Ok(copied(length, count))));
    Group { experiment: NAME, params: records(length, contexts), cases, monitor: None }
}

/// What `count` exchanges have more than none over a resumed connection: the bytes of records on
/// each link, and the CPU time of the middlebox.
fn exchanged<'a>(
    length: usize,
    contexts: usize,
    count: usize,
    line: impl Fn([Script; 2]) -> anyhow::Result<Vec<Box<dyn Party + 'a>>>,
) -> anyhow::Result<Vec<Measured>> {
    let exchange = Exchange::divided(contexts, REQUEST, RESPONSE);
    let once = |exchanges: &[Exchange]| {
        let scripts = [Script::client(exchanges), Script::server(exchanges)];
        let mut measured = line::Measured::default();
        let mut line = line(scripts.map(|script| script.in_writes_of(length)))?;
        line::run(&mut line, &mut measured)?;
        anyhow::ensure!(line.iter().all(|party| party.is_done()), "a connection has stalled");
        anyhow::Ok(measured)
    };
    // The first has no ticket.
    once(&[])?;
    let empty = once(&[])?;
    let full = once(&vec![exchange; count])?;
    let payload = (count * (REQUEST + RESPONSE)) as f64;
    let records = (count * RESPONSE) as f64 / length as f64;
    let bytes = |link: usize| (full.bytes[link] - empty.bytes[link]) as f64;
    let seconds = full.cpu[1].saturating_sub(empty.cpu[1]).as_secs_f64();
    Ok(vec![
        Measured::new("client's link ÷ payload", "1", bytes(0) / payload),
        Measured::new("server's link ÷ payload", "1", bytes(1) / payload),
        Measured::new("client's link, beyond a record", "bytes", (bytes(0) - payload) / records),
        Measured::new("server's link, beyond a record", "bytes", (bytes(1) - payload) / records),
        Measured::new("middlebox", "MB/cpu-s", payload / 1e6 / seconds),
    ])
}

/// Copies as much, in pieces of `length` bytes.
fn copied(length: usize, count: usize) -> Vec<Measured> {
    let from = vec![7; RESPONSE];
    // A copy, so that the pages of both are there.
    let mut to = from.clone();
    let begin = own_cpu_time();
    for _ in 0..count {
        for (from, to) in from.chunks(length).zip(to.chunks_mut(length)) {
            black_box(to).copy_from_slice(black_box(from));
        }
    }
    let seconds = (own_cpu_time() - begin).as_secs_f64();
    vec![Measured::new("middlebox", "MB/cpu-s", (count * RESPONSE) as f64 / 1e6 / seconds)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_becomes_a_record() {
        let of = |measured: &[Measured], metric: &str| {
            measured.iter().find(|one| one.metric == metric).map(|one| one.value).unwrap()
        };
        let beyond = "client's link, beyond a record";
        let keys = Keys::new().unwrap();
        let tls = exchanged(256, 4, 1, |scripts| tls_line(&keys, 1, Some(scripts))).unwrap();
        // A header, a type and a tag (RFC 8446, section 5.2).
        assert!((of(&tls, beyond) - 22.0).abs() < 0.1, "{}", of(&tls, beyond));
        let parties = Parties::new(Kem::X25519, (1, Right::Write), &purposes(4), true).unwrap();
        let own = exchanged(256, 4, 1, |scripts| parties.line_of(Some(scripts))).unwrap();
        assert!(of(&own, beyond) > of(&tls, beyond), "{}", of(&own, beyond));
    }

    #[test]
    fn a_copy_of_each_record_costs_bytes_of_tags_only() {
        let mut parties = Parties::new(Kem::X25519, (1, Right::Write), &purposes(1), true).unwrap();
        parties.inspector = || Box::new(Rewrite);
        let measured = exchanged(4_096, 1, 1, |scripts| parties.line_of(Some(scripts))).unwrap();
        assert!(measured[0].value > 1.0 && measured[0].value < 1.1, "{}", measured[0].value);
    }
}
