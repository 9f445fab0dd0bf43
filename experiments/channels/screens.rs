//! The latency of keys between real screens, and of their echo: the services `input` and `display`
//! compared with barrier, and with xpra over unencrypted TCP; on an idle link and beside bulk that
//! fills it.

mod server;
mod setup;

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
use crate::testbed::Testbed;
use setup::{Setup, Tools};

/// The experiment's name in rows.
pub const NAME: &str = "channels/screens";
/// Each measurement with Levada's subject and its rival's.
pub const SUBJECTS: [(&str, [&str; 2]); 2] =
    [("keys", ["levada/input", "barrier"]), ("echo", ["levada/display", "xpra/tcp"])];
/// The other load of the link.
pub const LOADS: [&str; 2] = ["idle", "bulk"];

/// The time for bulk to fill the link.
const FILLING: Duration = Duration::from_secs(2);
/// The length of a bulk write, in bytes.
const PART: usize = 256 * 1024;
/// The congestion control of bulk; other connections have the system's.
const CONGESTION: &[u8] = b"cubic";

/// Runs the experiment. If a program is not installed, prints its package and measures nothing.
pub fn run(rtts: &[u64], shared: &Shared) -> anyhow::Result<Outcome> {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(reason) => {
            eprintln!("the experiment `screens` was left out: {reason}");
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
                let testbed = || input::testbed(rtt_ms, bulk);
                if let Some(testbed) = measuring.testbed(&params, &names, testbed)? {
                    // Started once for all runs of a group: a subject that is not measured is idle.
                    let start = |subject: &'static str| {
                        anyhow::Ok((subject, Setup::start(&tools, &testbed, subject)?))
                    };
                    let setups = subjects.into_iter().map(start);
                    let setups = setups.collect::<anyhow::Result<Vec<_>>>()?;
                    let keys = keys(what, shared.quick);
                    measuring.group(group(&testbed, params, (bulk, keys), &setups))?;
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

/// The number of keys pressed in one run. With `keys`, press and release are counted separately.
fn keys(what: &str, quick: bool) -> u32 {
    match (what, quick) {
        ("keys", true) => 25,
        ("keys", false) => 250,
        (_, true) => 15,
        (_, false) => 60,
    }
}

fn group<'a>(
    testbed: &'a Testbed,
    params: Params,
    (bulk, keys): (bool, u32),
    setups: &'a [(&'static str, Setup)],
) -> Group<'a> {
    let case = |(subject, setup): &'a (&'static str, Setup)| {
        Case::new(*subject, move || {
            let latency = beside(bulk, testbed, || setup.type_keys(keys))?;
            let p99 = latency.value_at_quantile(0.99) as f64 * 1e-6;
            Ok(vec![
                Measured::milliseconds("latency", latency),
                Measured::new("latency p99", "ms", p99),
            ])
        })
    };
    let cases = setups.iter().map(case).collect();
    Group { experiment: NAME, params, cases, monitor: testbed.monitor() }
}

/// Runs `work`, while a TCP connection from the near to the far end fills the link if `bulk`.
fn beside<T>(
    bulk: bool,
    testbed: &Testbed,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if !bulk {
        return work();
    }
    let (near, far) = testbed.connected()?;
    for socket in [&near, &far] {
        socket.set_nonblocking(false)?;
        SockRef::from(socket).set_tcp_congestion(CONGESTION).context("choose cubic for bulk")?;
    }
    thread::scope(|scope| {
        scope.spawn(|| fill(&near));
        scope.spawn(|| drain(&far));
        thread::sleep(FILLING);
        let done = work();
        // Ends both threads.
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
