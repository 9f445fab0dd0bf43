//! How late what is typed arrives between real screens, and how late its echo is seen: the services `input` and `display` as people
//! use them, beside barrier, and beside xpra over TCP, which encrypts nothing. On an idle link, and beside bulk that fills it.

mod program;
mod server;
mod stage;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use levada_harness::{Case, Group, Measured, Params, params};
use socket2::SockRef;

use super::Shared;
use super::input;
use crate::measuring::{Measuring, Outcome};
use crate::place::Place;
use stage::{Stage, Tools};

/// Its name in rows.
pub const NAME: &str = "channels/screens";
/// What is measured: Levada's way, and its rival's.
pub const SUBJECTS: [(&str, [&str; 2]); 2] =
    [("keys", ["levada/input", "barrier"]), ("echo", ["levada/display", "xpra/tcp"])];
/// What else the link carries.
pub const LOADS: [&str; 2] = ["idle", "bulk"];

/// Until bulk has filled the link.
const FILLING: Duration = Duration::from_secs(2);
/// Bytes of a write of bulk.
const PART: usize = 256 * 1024;
/// The congestion control of bulk; all else has the system's.
const CONGESTION: &[u8] = b"cubic";

/// Measures it. Where something is not installed, that is said, and nothing is measured.
pub fn run(rtts: &[u64], shared: &Shared) -> anyhow::Result<Outcome> {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(reason) => {
            eprintln!("what is typed between real screens was left out: {reason}");
            return Ok(Outcome::default());
        }
    };
    let count = rtts.len() * LOADS.len() * SUBJECTS.len();
    let mut measuring = Measuring::new(NAME, shared, count)?;
    for &rtt_ms in rtts {
        for load in LOADS {
            for (what, subjects) in SUBJECTS {
                let params = params([("rtt_ms", rtt_ms.into()), ("load", load.into())]);
                let params = with_what(params, what);
                let names = subjects.map(str::to_owned);
                let bulk = load == "bulk";
                let place = || input::place(rtt_ms, bulk);
                if let Some(place) = measuring.place(&params, &names, place)? {
                    // Started once for all runs of a group: what waits has next to nothing to do.
                    let start = |subject: &'static str| {
                        anyhow::Ok((subject, Stage::start(&tools, &place, subject)?))
                    };
                    let stages = subjects.into_iter().map(start);
                    let stages = stages.collect::<anyhow::Result<Vec<_>>>()?;
                    let keys = keys(what, shared.quick);
                    measuring.group(group(&place, params, (bulk, keys), &stages))?;
                }
            }
        }
    }
    Ok(measuring.finish())
}

fn with_what(mut params: Params, what: &str) -> Params {
    params.insert("what".to_owned(), what.into());
    params
}

/// How many keys are pressed in one run. Of those on another screen both going down and going up count.
fn keys(what: &str, quick: bool) -> u32 {
    match (what, quick) {
        ("keys", true) => 25,
        ("keys", false) => 250,
        (_, true) => 15,
        (_, false) => 60,
    }
}

fn group<'a>(
    place: &'a Place,
    params: Params,
    (bulk, keys): (bool, u32),
    stages: &'a [(&'static str, Stage)],
) -> Group<'a> {
    let case = |(subject, stage): &'a (&'static str, Stage)| {
        Case::new(*subject, move || {
            let latency = beside(bulk, place, || stage.type_keys(keys))?;
            let p99 = latency.value_at_quantile(0.99) as f64 * 1e-6;
            Ok(vec![
                Measured::milliseconds("latency", latency),
                Measured::new("latency p99", "ms", p99),
            ])
        })
    };
    let cases = stages.iter().map(case).collect();
    Group { experiment: NAME, params, cases, witness: place.witness() }
}

/// Does `work`, while a TCP connection from the near end to the far one fills the link if `bulk`.
fn beside<T>(
    bulk: bool,
    place: &Place,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if !bulk {
        return work();
    }
    let (near, far) = place.connected()?;
    for socket in [&near, &far] {
        socket.set_nonblocking(false)?;
        SockRef::from(socket).set_tcp_congestion(CONGESTION).context("choose cubic for bulk")?;
    }
    thread::scope(|scope| {
        scope.spawn(|| fill(&near));
        scope.spawn(|| drain(&far));
        thread::sleep(FILLING);
        let done = work();
        // Both threads see it.
        let _ = near.shutdown(Shutdown::Both);
        let _ = far.shutdown(Shutdown::Both);
        done
    })
}

fn fill(mut socket: &TcpStream) {
    let part = vec![7; PART];
    while socket.write_all(&part).is_ok() {}
}

fn drain(mut socket: &TcpStream) {
    let mut part = vec![0; PART];
    while let Ok(1..) = socket.read(&mut part) {}
}
