//! Sequential connections: the time of each to its first reply, and the CPU time of all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use hdrhistogram::Histogram;
use levada_harness::own_cpu_time;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use crate::channels::ends::{both, run_task};
use crate::testbed::Testbed;

/// The request and the reply, as long as a short control message.
pub const MESSAGE: [u8; 32] = [7; 32];
/// The time limit for closing.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Both ends of a way to connect.
pub trait Dial: Send + Sync + 'static {
    /// The client's open connection.
    type Open: Send;

    /// Connects, sends [`MESSAGE`] as early as the protocol allows, and waits for the first byte of
    /// the reply. `number` counts the connections from 0.
    fn dial(
        &self,
        number: usize,
        address: SocketAddr,
    ) -> impl Future<Output = anyhow::Result<Self::Open>> + Send;

    /// Closes what [`Self::dial`] opened.
    fn close(&self, open: Self::Open) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Serves an accepted socket until the connection is closed.
    fn serve(&self, socket: TcpStream) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// The number of connections, and the pause between them.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Connections that are not counted, at least one: the first obtains a ticket, and caches are
    /// cold.
    pub warm_up: usize,
    /// Counted connections.
    pub count: usize,
    /// The pause after each connection, in which its last packets arrive.
    pub pause: Duration,
}

impl Plan {
    /// The number of connections, with those that are not counted.
    pub fn all(self) -> usize {
        self.warm_up + self.count
    }
}

/// The times of the connections.
pub struct Timings {
    /// To the first byte of the reply, in nanoseconds.
    pub times: Histogram<u64>,
    /// CPU time of the client, per connection.
    pub client: Duration,
    /// CPU time of the server, per connection.
    pub server: Duration,
}

/// Makes the connections of `plan` one after the other.
pub fn run(testbed: &Testbed, plan: Plan, subject: impl Dial) -> anyhow::Result<Timings> {
    let (listener, address) = testbed.listen()?;
    let (end, ended) = oneshot::channel();
    let subject = Arc::new(subject);
    let finished = Arc::new(Semaphore::new(0));
    let near = || {
        // Dropped when the near end ends, also by an error.
        let _end: oneshot::Sender<()> = end;
        run_task(run_client(plan, subject.clone(), address, finished.clone()))
    };
    let far = || {
        let served =
            run_task(run_server(plan, subject.clone(), (listener, ended), finished.clone()));
        if served.is_err() {
            // Wakes the near end, which would wait for a failed server.
            finished.close();
        }
        served
    };
    let ((times, client), server) = both(testbed, near, far)?;
    let each = |all: Duration| all.div_f64(plan.count as f64);
    Ok(Timings { times, client: each(client), server: each(server) })
}

async fn run_client(
    plan: Plan,
    subject: Arc<impl Dial>,
    address: SocketAddr,
    finished: Arc<Semaphore>,
) -> anyhow::Result<(Histogram<u64>, Duration)> {
    let mut times = Histogram::new(3)?;
    let mut before = Duration::ZERO;
    for number in 0..plan.all() {
        if number == plan.warm_up {
            before = own_cpu_time();
        }
        let start = Instant::now();
        let open = subject.dial(number, address).await?;
        let time = start.elapsed();
        if number >= plan.warm_up {
            times.record(u64::try_from(time.as_nanos())?)?;
        }
        subject.close(open).await?;
        // Waits for the server, so that the next connection finds it idle.
        finished.acquire().await?.forget();
        pause(plan).await;
    }
    Ok((times, own_cpu_time() - before))
}

async fn run_server(
    plan: Plan,
    subject: Arc<impl Dial>,
    (listener, mut ended): (std::net::TcpListener, oneshot::Receiver<()>),
    finished: Arc<Semaphore>,
) -> anyhow::Result<Duration> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let mut before = Duration::ZERO;
    for number in 0..plan.all() {
        if number == plan.warm_up {
            before = own_cpu_time();
        }
        let socket = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            _ = &mut ended => bail!("the client ended early"),
        };
        subject.serve(socket).await?;
        finished.add_permits(1);
    }
    pause(plan).await;
    Ok(own_cpu_time() - before)
}

/// Lets the tasks of a channel handle the end of its connection.
async fn pause(plan: Plan) {
    if plan.pause.is_zero() {
        tokio::task::yield_now().await;
    } else {
        sleep(plan.pause).await;
    }
}

/// Sets TCP_NODELAY, because all subjects batch their writes themselves.
pub fn with_nodelay(socket: TcpStream) -> anyhow::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Checks that the handshake was full or resumed as `wanted`. The first connection never has a
/// ticket.
pub fn check_handshake(number: usize, wanted: bool, resumed: bool) -> anyhow::Result<()> {
    let expected = wanted && number > 0;
    let kind = |resumed| if resumed { "resumed" } else { "full" };
    (expected == resumed).then_some(()).ok_or_else(|| {
        anyhow!("connection {number} was {} instead of {}", kind(resumed), kind(expected))
    })
}
