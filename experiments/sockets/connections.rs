//! Connections per second, each with some exchanges of a message.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use levada_harness::{Measured, pin};

use super::exchange::{MESSAGE, named, window};
use super::subject::Subject;

/// What is measured: connections in a row, from connect(2) to close(2), and connect(2) alone.
pub const METRICS: [(&str, &str); 4] =
    [("connections", "1/s"), ("connection", "µs"), ("connection p99", "µs"), ("connect", "µs")];

/// Connects, exchanges a message of 8 bytes as often as `exchanges` says, and closes, again and
/// again.
pub fn measure(subject: Subject, exchanges: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    if subject == Subject::Unix {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path)?;
        let accept = move || Ok(listener.accept()?.0);
        return run(accept, || Ok(UnixStream::connect(&path)?), exchanges, quick);
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let accept = move || without_delay(listener.accept()?.0);
    run(accept, || without_delay(TcpStream::connect(address)?), exchanges, quick)
}

fn without_delay(stream: TcpStream) -> anyhow::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Each end is a thread with a core of its own. The server serves one connection after the other;
/// one without a message is the last.
fn run<S: Read + Write>(
    accept: impl Fn() -> anyhow::Result<S> + Send + 'static,
    connect: impl Fn() -> anyhow::Result<S>,
    exchanges: usize,
    quick: bool,
) -> anyhow::Result<Vec<Measured>> {
    let server = thread::spawn(move || {
        pin(1)?;
        let mut message = [0; MESSAGE];
        loop {
            let mut stream = accept()?;
            let mut count = 0;
            while stream.read(&mut message)? > 0 {
                stream.write_all(&message)?;
                count += 1;
            }
            if count == 0 {
                return anyhow::Ok(());
            }
        }
    });
    pin(0)?;
    let mut times = Histogram::<u64>::new(3)?;
    let mut connects = Histogram::<u64>::new(3)?;
    let mut message = [7; MESSAGE];
    let start = Instant::now();
    let warm = window(quick) / 10;
    let end = window(quick) * 11 / 10;
    let mut begun = Duration::ZERO;
    let mut count = 0_u32;
    let mut first = None;
    while begun < end {
        let mut stream = connect()?;
        let connected = start.elapsed();
        for _ in 0..exchanges {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        }
        drop(stream);
        let now = start.elapsed();
        if begun > warm {
            first.get_or_insert(begun);
            times.record(u64::try_from((now - begun).as_nanos())?.max(1))?;
            connects.record(u64::try_from((connected - begun).as_nanos())?.max(1))?;
            count += 1;
        }
        begun = now;
    }
    drop(connect()?);
    server.join().ok().context("the server panicked")??;
    let seconds = (begun - first.context("no connection was measured")?).as_secs_f64();
    let micro = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    let [middle, slow] = [0.5, 0.99].map(|quantile| micro(&times, quantile));
    let values = [f64::from(count) / seconds, middle, slow, micro(&connects, 0.5)];
    Ok(named(&METRICS, values))
}
