//! The time of fcntl(2) on a socket, in a process with one thread and with two.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::Args;
use levada_harness::pin;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::peer::{self, accept_first, accept_here, connect_first, is_direct};

/// Calls of one measurement.
const CALLS: u32 = 10_000;
/// Measurements of each kind, in turns: the median counts.
const ROUNDS: usize = 21;

/// The end of a connection whose flags are asked for.
#[derive(Args)]
pub struct Calls {
    /// Connect to this address; else accept
    address: Option<SocketAddr>,
}

/// The times of one call, in nanoseconds.
pub struct Times {
    /// By libc, in a process with one thread.
    pub alone: f64,
    /// By libc, with another thread, which sleeps.
    pub shared: f64,
    /// By the number of the call, with one thread.
    pub by_number: f64,
    /// The kernel does not know the connection.
    pub is_direct: bool,
}

impl Calls {
    /// Measures in the first thread of the process, and prints the times.
    pub fn run(&self) -> anyhow::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        pin(0)?;
        let all = match self.address {
            Some(address) => connect_first(address)?,
            None => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                levada_harness::print(&format!("{}\n", listener.local_addr()?.port()))?;
                accept_here(&listener)?
            }
        };
        let stream = all.last().context("there is no connection")?;
        let Times { alone, shared, by_number, is_direct } = measure(stream)?;
        let line = format!("{alone} {shared} {by_number} {is_direct}\n");
        Ok(levada_harness::print(&line)?)
    }
}

impl Times {
    /// Reads the line that the process prints.
    fn read(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [alone, shared, by_number, is_direct] = words[..] else {
            bail!("not the times of calls: {line}")
        };
        Ok(Self {
            alone: alone.parse()?,
            shared: shared.parse()?,
            by_number: by_number.parse()?,
            is_direct: is_direct.parse()?,
        })
    }
}

fn measure(stream: &TcpStream) -> anyhow::Result<Times> {
    let mut all: [Vec<f64>; 3] = [const { Vec::new() }; 3];
    let by_libc = || anyhow::Ok(uapi::fcntl_getfl(stream.as_raw_fd()).map(drop)?);
    for _ in 0..ROUNDS {
        all[0].push(each(CALLS, by_libc)?);
        all[1].push(each(CALLS, || Ok(rustix::fs::fcntl_getfl(stream).map(drop)?))?);
        let (end, wait) = channel::<()>();
        let other = thread::spawn(move || wait.recv());
        all[2].push(each(CALLS, by_libc)?);
        drop(end);
        let _ = other.join().ok().context("a thread that sleeps panicked")?;
    }
    let [alone, by_number, shared] = all.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    Ok(Times { alone, shared, by_number, is_direct: is_direct(stream) })
}

/// The time of one call, in nanoseconds.
pub fn each(count: u32, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    for _ in 0..count {
        call()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(count))
}

/// The times at the end of a connection that has called connect(2), and at the one that
/// accept(2) has returned. Each is measured in a process of its own.
pub fn both(must_be_direct: bool) -> anyhow::Result<[Times; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let accepting = accept_first(listener);
    let (mut child, mut output) = peer::spawn(&["calls".into(), address])?;
    let accepted = accepting.join().ok().context("the accepting thread panicked")??;
    let connecting = Times::read(&peer::line(&mut output)?);
    drop(accepted);
    child.wait()?;
    let (mut child, mut output) = peer::spawn(&["calls".into()])?;
    let port: u16 = peer::line(&mut output)?.parse()?;
    let connected = connect_first(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let accepting = Times::read(&peer::line(&mut output)?);
    drop(connected);
    child.wait()?;
    let both: [Times; 2] = [connecting?, accepting?];
    let are_direct = both.iter().all(|times| times.is_direct);
    ensure!(are_direct || !must_be_direct, "the kernel has made the connections");
    Ok(both)
}
