//! The time to the first byte with whole programs, a node among them.
//!
//! `levada http` is compared with tunnels that carry connections to the same origin over the ways
//! of `first-byte`: their two ends stand where `levada http` and the node stand, and `curl` is the
//! client of all.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;
use levada_harness::{Case, Group, Measured, Options, Params};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::first_byte::{RESPONSE, cell};
use super::latency::Cell;
use super::mode::{Mode, Setup};
use super::programs::{ORIGIN, Programs, Transfer, curl};
use super::run::{Dialer, Run};
use crate::measuring::{Measuring, Outcome};
use crate::testbed::Testbed;

/// The experiment's name in rows.
pub const NAME: &str = "contexts/node";
/// The tunnels that are compared, by mode.
const TUNNELS: [Mode; 2] = [Mode::Plain, Mode::E2e];
/// The programs of Levada.
pub const LEVADA: &str = "levada";
/// The subjects.
pub const SUBJECTS: [&str; 3] = ["plain", "e2e", LEVADA];
/// The time of a request over an open session.
pub const OPEN: &str = "first byte, session open";
/// The time with the opening of a session; of Levada, from the start of `levada http`.
pub const NEW: &str = "first byte, from nothing";
/// Numbers of middleboxes.
pub const MIDDLEBOXES: [usize; 3] = [0, 1, 2];
/// Rates of a link, in Mbit/s.
pub const RATES: [u64; 2] = [100, 8];
/// How long a tunnel may take to listen.
const READY: Duration = Duration::from_secs(20);

/// The conditions: four contexts, 20 ms for each link.
pub fn conditions(rate_mbit: u64, middleboxes: usize) -> Params {
    let mut params = Cell { middleboxes, ..cell(rate_mbit) }.params();
    params.insert("measured".to_owned(), "node".into());
    params
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let mut cells: Vec<(u64, usize)> =
        RATES.iter().flat_map(|rate| MIDDLEBOXES.map(|number| (*rate, number))).collect();
    if options.quick {
        cells.retain(|cell| [(100, 1), (8, 2)].contains(cell));
    }
    let count = if options.quick { 2 } else { 10 };
    let names = SUBJECTS.map(str::to_owned);
    let mut measuring = Measuring::new(NAME, options, cells.len())?;
    for (rate, middleboxes) in cells {
        let params = conditions(rate, middleboxes);
        let testbed = || cell(rate).links.testbed(middleboxes);
        let Some(testbed) = measuring.testbed(&params, &names, testbed)? else { continue };
        let mut programs = Programs::start(&testbed, (middleboxes, &[]), &[RESPONSE])?;
        let mut cases = Vec::new();
        for mode in TUNNELS {
            let testbed = &testbed;
            cases.push(Case::new(mode.to_string(), move || {
                let transfers = tunnel(testbed, mode, middleboxes, |origin| {
                    let once = |_| curl(testbed, origin, RESPONSE, &["1", "2"]);
                    (0..count).map(once).collect::<anyhow::Result<Vec<_>>>()
                });
                Ok(measured(transfers?.iter().map(|all| (Duration::ZERO, &all[..])))?)
            }));
        }
        cases.push(Case::new(LEVADA, || {
            let mut once = |_| {
                let opening = programs.open()?;
                Ok((opening, programs.curl(RESPONSE, &["1", "2"])?))
            };
            let transfers = (0..count).map(&mut once).collect::<anyhow::Result<Vec<_>>>()?;
            Ok(measured(transfers.iter().map(|(opening, all)| (*opening, &all[..])))?)
        }));
        let monitor = testbed.monitor();
        measuring.group(Group { experiment: NAME, params, cases, monitor })?;
    }
    Ok(measuring.finish())
}

/// Of each call of `curl`, the time of the first transfer and of what preceded it, and the time of
/// the last one, whose session was open.
fn measured<'a>(
    all: impl Iterator<Item = (Duration, &'a [Transfer])>,
) -> anyhow::Result<Vec<Measured>> {
    let mut opened: Histogram<u64> = Histogram::new(3)?;
    let mut new: Histogram<u64> = Histogram::new(3)?;
    for (opening, transfers) in all {
        let (first, last) = transfers.first().zip(transfers.last()).context("no transfer")?;
        new.record(u64::try_from((opening + first.first).as_nanos())?)?;
        opened.record(u64::try_from(last.first.as_nanos())?)?;
    }
    Ok(vec![Measured::milliseconds(OPEN, opened), Measured::milliseconds(NEW, new)])
}

/// Calls `visit` with the address at the near end of a tunnel to the origin.
fn tunnel<T>(
    testbed: &Testbed,
    mode: Mode,
    middleboxes: usize,
    visit: impl FnOnce(SocketAddr) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let run = Run {
        testbed,
        setup: Arc::new(Setup::new(mode, middleboxes, &[])?),
        middleboxes,
        exchanges: Arc::new([]),
        origin: Some(ORIGIN),
        pinned: false,
    };
    let (report, reported) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    thread::scope(|scope| {
        let serving = scope.spawn(|| run.client(|dialer| serve(dialer, report, stopped)));
        let address = reported.recv_timeout(READY).context("the tunnel does not listen");
        let visited = address.and_then(visit);
        drop(stop);
        serving.join().map_err(|_| anyhow!("the tunnel panicked"))??;
        visited
    })
}

/// The near end: carries each connection over one of its own, until `stopped`.
async fn serve(
    dialer: Dialer,
    report: mpsc::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    report.send(listener.local_addr()?)?;
    let dialer = Arc::new(dialer);
    let mut tasks = JoinSet::new();
    let accept = async {
        loop {
            let (socket, _) = listener.accept().await?;
            let dialer = dialer.clone();
            // A failure here is one of `curl`, too, which reports it.
            tasks.spawn(async move { dialer.dial().await?.carry(socket).await });
        }
    };
    tokio::select! {
        failed = accept => failed,
        _ = stopped => Ok(()),
    }
}
