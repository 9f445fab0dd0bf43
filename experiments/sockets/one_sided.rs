//! What fast sockets cost a connection whose peer has none: the calls of libc, which the library
//! sees, in turns with the same calls by their numbers, which it does not see. Both are of one
//! process, so that nothing else of the machine is between them. Without the library, in a process
//! of its own, the two differ by what libc adds: the library costs the ratio of both ratios.

use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use levada_harness::{Measured, pin};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketType};

use super::exchange::named;
use super::subject::Subject;

/// The rate of libc's calls as a part of that of the others.
pub const METRICS: [(&str, &str); 4] =
    [("round trips", "1"), ("round trips, epoll", "1"), ("sending", "1"), ("receiving", "1")];

/// How long one turn takes, roughly.
const SLICE: Duration = Duration::from_millis(5);

/// How long a connection is offered before it stays on TCP for good, and some more.
const OFFERED: Duration = Duration::from_secs(6);

/// Who makes the calls.
#[derive(Clone, Copy)]
enum By {
    Libc,
    Number,
}

/// What the far end does next, with as many messages.
enum Work {
    Echo(usize),
    Take(usize),
    Send(usize),
}

/// The near end of a connection, and the far end's orders.
struct Pair {
    near: TcpStream,
    orders: Sender<Work>,
    message: Vec<u8>,
    /// Where the near end waits, by each kind of calls.
    epolls: [OwnedFd; 2],
}

/// Measures with messages of `length` bytes.
pub fn measure(subject: Subject, length: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    pin(0)?;
    let mut pair = Pair::connect(length)?;
    // The library offers the connection to the monitor, and hears after five seconds that there is
    // no peer.
    let pause = if subject == Subject::Tcp { Duration::ZERO } else { OFFERED / 10 };
    for _ in 0..10 {
        pair.round_trips(20, By::Libc)?;
        thread::sleep(pause);
    }
    pair.round_trips(20, By::Libc)?;
    let turns = if quick { 20 } else { 200 };
    let trips = messages(Duration::from_micros(30), length);
    let sent = messages(Duration::from_micros(2), length);
    let values = [
        kept(turns, |by| pair.round_trips(trips, by))?,
        kept(turns, |by| pair.round_trips_by_epoll(trips, by))?,
        kept(turns, |by| pair.send_many(sent, by))?,
        kept(turns, |by| pair.receive_many(sent, by))?,
    ];
    Ok(named(&METRICS, values))
}

/// The messages of one turn, if each takes `alone` and what its bytes take at 2 GB/s.
fn messages(alone: Duration, length: usize) -> usize {
    (SLICE.as_nanos() as usize / (alone.as_nanos() as usize + length / 2)).max(10)
}

/// The time of a turn by number ÷ that of the one by libc beside it: the median of `turns`. Each
/// kind is the first in every other turn.
fn kept(turns: usize, mut turn: impl FnMut(By) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut timed = |by| {
        let start = Instant::now();
        turn(by)?;
        anyhow::Ok(start.elapsed().as_secs_f64())
    };
    let mut ratios = Vec::with_capacity(turns);
    for number in 0..turns {
        let (libc, direct);
        if number % 2 == 0 {
            (libc, direct) = (timed(By::Libc)?, timed(By::Number)?);
        } else {
            let first = timed(By::Number)?;
            (libc, direct) = (timed(By::Libc)?, first);
        }
        ratios.push(direct / libc);
    }
    ratios.sort_by(f64::total_cmp);
    ratios.get(turns / 2).copied().context("there were no turns")
}

impl Pair {
    /// The far end is a thread on the other core that makes all its calls by number: the library
    /// knows nothing of it.
    fn connect(length: usize) -> anyhow::Result<Self> {
        let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::listen(&listener, 1)?;
        let address = rustix::net::getsockname(&listener)?;
        let port = std::net::SocketAddrV4::try_from(address)?.port();
        let near = TcpStream::connect(("127.0.0.1", port))?;
        near.set_nodelay(true)?;
        let far = rustix::net::accept(&listener)?;
        rustix::net::sockopt::set_tcp_nodelay(&far, true)?;
        let (orders, work) = channel();
        thread::spawn(move || obey(&far, &work, length));
        let epolls = [uapi::epoll_create1(0)?.into(), epoll::create(epoll::CreateFlags::empty())?];
        let [by_libc, by_number] = &epolls;
        let event = uapi::c::epoll_event { events: uapi::c::EPOLLIN as u32, u64: 0 };
        let epoll_fd = by_libc.as_raw_fd();
        let fd = near.as_raw_fd();
        uapi::epoll_ctl(epoll_fd, uapi::c::EPOLL_CTL_ADD, fd, Some(&event))?;
        epoll::add(by_number, &near, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { near, orders, message: vec![7; length], epolls })
    }

    fn round_trips(&mut self, count: usize, by: By) -> anyhow::Result<()> {
        self.orders.send(Work::Echo(count))?;
        for _ in 0..count {
            send(&self.near, &self.message, by)?;
            receive(&self.near, &mut self.message, by)?;
        }
        Ok(())
    }

    fn round_trips_by_epoll(&mut self, count: usize, by: By) -> anyhow::Result<()> {
        self.orders.send(Work::Echo(count))?;
        for _ in 0..count {
            send(&self.near, &self.message, by)?;
            self.wait(by)?;
            receive(&self.near, &mut self.message, by)?;
        }
        Ok(())
    }

    fn wait(&self, by: By) -> anyhow::Result<()> {
        let [by_libc, by_number] = &self.epolls;
        let ready = match by {
            By::Libc => {
                let mut events = [uapi::c::epoll_event { events: 0, u64: 0 }; 4];
                uapi::epoll_wait(by_libc.as_raw_fd(), &mut events, -1)?
            }
            By::Number => {
                let mut events = Vec::with_capacity(4);
                epoll::wait(by_number, rustix::buffer::spare_capacity(&mut events), None)?
            }
        };
        ensure!(ready == 1, "nothing is ready");
        Ok(())
    }

    fn send_many(&mut self, count: usize, by: By) -> anyhow::Result<()> {
        self.orders.send(Work::Take(count))?;
        (0..count).try_for_each(|_| send(&self.near, &self.message, by))
    }

    fn receive_many(&mut self, count: usize, by: By) -> anyhow::Result<()> {
        self.orders.send(Work::Send(count))?;
        (0..count).try_for_each(|_| receive(&self.near, &mut self.message, by))
    }
}

/// The far end, until the near one is dropped.
fn obey(far: &OwnedFd, orders: &Receiver<Work>, length: usize) -> anyhow::Result<()> {
    pin(1)?;
    let mut message = vec![7; length];
    for work in orders {
        match work {
            Work::Echo(count) => {
                for _ in 0..count {
                    receive(far, &mut message, By::Number)?;
                    send(far, &message, By::Number)?;
                }
            }
            Work::Take(count) => {
                for _ in 0..count {
                    receive(far, &mut message, By::Number)?;
                }
            }
            Work::Send(count) => {
                for _ in 0..count {
                    send(far, &message, By::Number)?;
                }
            }
        }
    }
    Ok(())
}

fn send(end: &impl AsFd, mut bytes: &[u8], by: By) -> anyhow::Result<()> {
    while !bytes.is_empty() {
        let sent = match by {
            By::Libc => uapi::write(end.as_fd().as_raw_fd(), bytes)?,
            By::Number => rustix::io::write(end, bytes)?,
        };
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Fills the buffer.
fn receive(end: &impl AsFd, buffer: &mut [u8], by: By) -> anyhow::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let received = match by {
            By::Libc => uapi::read(end.as_fd().as_raw_fd(), rest)?.len(),
            By::Number => rustix::io::read(end, rest)?,
        };
        ensure!(received > 0, "the other end has ended");
        done += received;
    }
    Ok(())
}
