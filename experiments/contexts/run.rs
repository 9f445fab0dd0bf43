//! Runs all parties of a connection, each on a thread of its own with its own runtime.

use std::ffi::CStr;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use levada_harness::{ThreadClock, pin};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::end::{End, Exchange};
use super::mode::{Setup, accept_all};
use crate::testbed::Testbed;

/// The time limit for the client.
const LIMIT: Duration = Duration::from_secs(300);
/// The time limit until all parties listen.
const START: Duration = Duration::from_secs(20);

/// All parties of a run.
pub struct Run<'a> {
    /// Where they are.
    pub testbed: &'a Testbed,
    /// Their keys.
    pub setup: Arc<Setup>,
    /// The middleboxes between client and server.
    pub middleboxes: usize,
    /// What the client may ask for.
    pub exchanges: Arc<[Exchange]>,
    /// Where the server takes connections on, as bytes; it answers `exchanges` itself if there is
    /// none.
    pub origin: Option<SocketAddr>,
    /// Pins the ends to core 0 and the middleboxes to core 1; otherwise the system places them.
    pub pinned: bool,
}

/// What a client needs.
pub struct Dialer {
    setup: Arc<Setup>,
    first: SocketAddr,
    /// The clocks of the parties' threads: the client's, then by middlebox, and last the server's.
    pub clocks: Vec<ThreadClock>,
    /// What the client may ask for.
    pub exchanges: Arc<[Exchange]>,
}

impl Dialer {
    /// Opens a connection through all middleboxes.
    pub async fn dial(&self) -> anyhow::Result<End> {
        self.setup.connect(TcpStream::connect(self.first).await?).await
    }
}

impl Run<'_> {
    /// Runs the client, while the other parties accept connections.
    pub fn client<T: Send, F: Future<Output = anyhow::Result<T>>>(
        &self,
        client: impl FnOnce(Dialer) -> F + Send,
    ) -> anyhow::Result<T> {
        let mut listeners = Vec::new();
        for number in 0..self.middleboxes {
            listeners.push(self.testbed.listen_between(number)?);
        }
        let (last, server) = self.testbed.listen()?;
        let mut addresses: Vec<SocketAddr> =
            listeners.iter().map(|(_, address)| *address).collect();
        addresses.push(server);
        let stop = &Semaphore::new(0);
        let failed: &Mutex<Option<anyhow::Error>> = &Mutex::new(None);
        let (started, clocks) = mpsc::channel();
        thread::scope(|scope| {
            for (number, (listener, _)) in listeners.into_iter().enumerate() {
                let next = addresses[number + 1];
                let setup = self.setup.clone();
                let serve = move |near| {
                    let setup = setup.clone();
                    async move { setup.carry(number, near, TcpStream::connect(next).await?).await }
                };
                let started = started.clone();
                scope.spawn(move || {
                    let work = || {
                        self.party(1, (number + 1, started), stop, || accept_all(listener, serve))
                    };
                    note(failed, self.testbed.between(number, work));
                });
            }
            let setup = self.setup.clone();
            let exchanges = self.exchanges.clone();
            let origin = self.origin;
            let serve = move |socket| {
                let setup = setup.clone();
                let exchanges = exchanges.clone();
                async move {
                    let mut end = setup.accept(socket).await?;
                    match origin {
                        None => end.serve(&exchanges).await,
                        Some(origin) => end.carry(TcpStream::connect(origin).await?).await,
                    }
                }
            };
            let place = (self.middleboxes + 1, started);
            scope.spawn(move || {
                let work = || self.party(0, place, stop, || accept_all(last, serve));
                note(failed, self.testbed.far(work));
            });
            let first = addresses[0];
            let near = scope.spawn(move || {
                let work = move || {
                    self.prepare(0, c"client")?;
                    let clocks = self.clocks(&clocks)?;
                    let setup = self.setup.clone();
                    let exchanges = self.exchanges.clone();
                    let dialer = Dialer { setup, first, clocks, exchanges };
                    block_on(async { tokio::time::timeout(LIMIT, client(dialer)).await })?
                        .context("the client took too long")?
                };
                let result = self.testbed.near(work);
                stop.close();
                result
            });
            let result = near.join().map_err(|_| anyhow!("the client panicked"))?;
            match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(error) => Err(error),
                None => result?,
            }
        })
    }

    /// Prepares the calling thread; profilers show its name.
    fn prepare(&self, core: usize, name: &CStr) -> anyhow::Result<()> {
        rustix::thread::set_name(name)?;
        if self.pinned { Ok(pin(core)?) } else { Ok(()) }
    }

    /// The client's own clock, and those of the others.
    fn clocks(
        &self,
        others: &mpsc::Receiver<(usize, ThreadClock)>,
    ) -> anyhow::Result<Vec<ThreadClock>> {
        let mut clocks = vec![(0, ThreadClock::current())];
        for _ in 0..=self.middleboxes {
            clocks.push(others.recv_timeout(START).context("a party was not ready in time")?);
        }
        clocks.sort_by_key(|(place, _)| *place);
        Ok(clocks.into_iter().map(|(_, clock)| clock).collect())
    }

    /// A middlebox or the server, until the client is done.
    fn party<F: Future<Output = anyhow::Result<()>>>(
        &self,
        core: usize,
        (place, started): (usize, mpsc::Sender<(usize, ThreadClock)>),
        stop: &Semaphore,
        accept: impl FnOnce() -> F,
    ) -> anyhow::Result<()> {
        self.prepare(core, if core == 0 { c"server" } else { c"middlebox" })?;
        // The client is gone if it has failed.
        let _ = started.send((place, ThreadClock::current()));
        block_on(async {
            tokio::select! {
                failed = accept() => failed,
                // Closed when the client is done.
                _ = stop.acquire() => Ok(()),
            }
        })?
    }
}

/// Keeps the first failure of a party.
fn note(failed: &Mutex<Option<anyhow::Error>>, result: anyhow::Result<anyhow::Result<()>>) {
    if let Err(error) = result.and_then(|result| result) {
        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

fn block_on<T>(task: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(task);
    runtime.shutdown_background();
    Ok(done)
}
