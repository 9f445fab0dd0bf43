//! The time of a connection from its first packet to the first, and to the last, byte of a
//! response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use levada_contexts::{Kem, Right};
use levada_harness::{Case, Group, Measured, Params, params};
use tokio::time::sleep;

use super::end::{End, Exchange};
use super::levada::purposes;
use super::link::Links;
use super::mode::{Mode, Setup};
use super::run::{Dialer, Run};
use crate::testbed::Testbed;

/// The bytes of a request: a short head of HTTP.
pub const REQUEST: usize = 200;
/// The pause after a connection, in which its last packets arrive.
const PAUSE: Duration = Duration::from_millis(20);

/// Every middlebox has write in every context, the worst case of the paper.
pub const HYBRID: Mode = Mode::Levada(Kem::Hybrid, Right::Write);
/// The same with the shorter key encapsulation.
pub const X25519: Mode = Mode::Levada(Kem::X25519, Right::Write);
/// The ways that are compared.
pub const MODES: [Mode; 5] = [Mode::Plain, Mode::E2e, Mode::Split, X25519, HYBRID];

/// The conditions of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Between client and server.
    pub middleboxes: usize,
    /// Of a session with middleboxes.
    pub contexts: usize,
    /// Between neighbours.
    pub links: Links,
    /// Nagle's algorithm is on.
    pub nagle: bool,
    /// The length of the response, in bytes.
    pub response: usize,
}

impl Cell {
    /// The conditions of rows.
    pub fn params(self) -> Params {
        let mut params = params([
            ("middleboxes", self.middleboxes.into()),
            ("contexts", self.contexts.into()),
            ("response_bytes", self.response.into()),
            ("measured", "channel".into()),
        ]);
        if self.nagle {
            params.insert("nagle".to_owned(), true.into());
        }
        self.links.describe(&mut params);
        params
    }

    /// A run of each mode makes `count` connections, after one that is not counted.
    pub fn group<'a>(
        self,
        experiment: &'static str,
        testbed: &'a Testbed,
        count: usize,
    ) -> Group<'a> {
        let case = |mode: Mode| {
            Case::new(mode.to_string(), move || Ok(self.measure(mode, testbed, count)?))
        };
        let cases = MODES.into_iter().map(case).collect();
        Group { experiment, params: self.params(), cases, monitor: testbed.monitor() }
    }

    fn measure(self, mode: Mode, testbed: &Testbed, count: usize) -> anyhow::Result<Vec<Measured>> {
        let mut setup = Setup::new(mode, self.middleboxes, &purposes(self.contexts))?;
        setup.nodelay = !self.nagle;
        let run = Run {
            testbed,
            setup: Arc::new(setup),
            middleboxes: self.middleboxes,
            exchanges: Arc::new([Exchange::divided(self.contexts, REQUEST, self.response)]),
            origin: None,
            pinned: false,
        };
        run.client(|dialer| connections(dialer, count))
    }
}

/// Makes connections one after the other.
async fn connections(dialer: Dialer, count: usize) -> anyhow::Result<Vec<Measured>> {
    let mut firsts: Histogram<u64> = Histogram::new(3)?;
    let mut lasts: Histogram<u64> = Histogram::new(3)?;
    for number in 0..=count {
        let (first, last) = connection(&dialer).await?;
        if number > 0 {
            firsts.record(u64::try_from(first.as_nanos())?)?;
            lasts.record(u64::try_from(last.as_nanos())?)?;
        }
        sleep(PAUSE).await;
    }
    Ok(vec![
        Measured::milliseconds("first byte", firsts),
        Measured::milliseconds("last byte", lasts),
    ])
}

/// The times of one connection until the first and the last byte of its response.
async fn connection(dialer: &Dialer) -> anyhow::Result<(Duration, Duration)> {
    let start = Instant::now();
    let mut end = dialer.dial().await?;
    let mut first = None;
    end.request(0, &dialer.exchanges[0], |_| {
        first.get_or_insert_with(|| start.elapsed());
        Ok(())
    })
    .await?;
    let last = start.elapsed();
    if let End::Path(session) = &end {
        session.close()?;
    }
    Ok((first.unwrap_or(last), last))
}
