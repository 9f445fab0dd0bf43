//! Connections one after the other: how long each takes to its first reply, and what all of them cost.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use hdrhistogram::Histogram;
use levada_harness::own_cpu_time;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use crate::channels::ends::{block_on, both};
use crate::place::Place;

/// What the client says, and what it hears: as long as a short control message.
pub const MESSAGE: [u8; 32] = [7; 32];
/// How long a farewell may take.
pub const FAREWELL: Duration = Duration::from_secs(1);
/// A way to connect, both its ends.
pub trait Dial: Sync {
    /// What the client holds of a connection.
    type Open;

    /// Connects, says [`MESSAGE`] as soon as it may, and waits for the first byte of the reply. `number` counts
    /// the connections from 0.
    async fn dial(&self, number: usize, address: SocketAddr) -> anyhow::Result<Self::Open>;

    /// Closes what [`Self::dial`] opened.
    async fn hang_up(&self, open: Self::Open) -> anyhow::Result<()>;

    /// The server's part, from the accepted socket until the connection is closed.
    async fn answer(&self, socket: TcpStream) -> anyhow::Result<()>;
}

/// How many connections, and what lies between them.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Connections that do not count, at least one: the first obtains a ticket, and caches are cold.
    pub warm_up: usize,
    /// Connections that count.
    pub count: usize,
    /// After each connection: time in which its last packets can arrive.
    pub pause: Duration,
}

impl Plan {
    /// How many connections the client makes, those included that do not count.
    pub fn all(self) -> usize {
        self.warm_up + self.count
    }
}

/// What connections took.
pub struct Taken {
    /// To the first byte of the reply, in nanoseconds.
    pub times: Histogram<u64>,
    /// CPU time of the client, per connection.
    pub client: Duration,
    /// CPU time of the server, per connection.
    pub server: Duration,
}

/// Makes the connections of `plan` one after the other.
pub fn run(place: &Place, plan: Plan, subject: &impl Dial) -> anyhow::Result<Taken> {
    let (listener, address) = place.listen()?;
    let (end, ended) = oneshot::channel();
    let finished = &Semaphore::new(0);
    let near = || {
        // Dropped with the near end, however it ends.
        let _end: oneshot::Sender<()> = end;
        block_on(call(plan, subject, address, finished))
    };
    let far = || {
        let served = block_on(answer_all(plan, subject, (listener, ended), finished));
        if served.is_err() {
            // Nobody is to wait for an end that has failed.
            finished.close();
        }
        served
    };
    let ((times, client), server) = both(place, near, far)?;
    let each = |all: Duration| all.div_f64(plan.count as f64);
    Ok(Taken { times, client: each(client), server: each(server) })
}

async fn call(
    plan: Plan,
    subject: &impl Dial,
    address: SocketAddr,
    finished: &Semaphore,
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
        subject.hang_up(open).await?;
        // The next connection is not to wait for a server that is still busy with this one.
        finished.acquire().await?.forget();
        rest(plan).await;
    }
    Ok((times, own_cpu_time() - before))
}

async fn answer_all(
    plan: Plan,
    subject: &impl Dial,
    (listener, mut ended): (std::net::TcpListener, oneshot::Receiver<()>),
    finished: &Semaphore,
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
        subject.answer(prepared(socket)?).await?;
        finished.add_permits(1);
    }
    rest(plan).await;
    Ok(own_cpu_time() - before)
}

/// Lets the tasks of a channel see the end of its connection.
async fn rest(plan: Plan) {
    if plan.pause.is_zero() {
        tokio::task::yield_now().await;
    } else {
        sleep(plan.pause).await;
    }
}

/// A socket of which every write leaves at once: all subjects decide by themselves what a write is.
pub fn prepared(socket: TcpStream) -> anyhow::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Refuses a handshake of the kind that was not asked for. The first connection has no ticket in any case.
pub fn check_kind(number: usize, wanted: bool, resumed: bool) -> anyhow::Result<()> {
    let expected = wanted && number > 0;
    let kind = |resumed| if resumed { "resumed" } else { "full" };
    (expected == resumed).then_some(()).ok_or_else(|| {
        anyhow!("connection {number} was {} instead of {}", kind(resumed), kind(expected))
    })
}
