//! A single-threaded HTTP load generator.
//!
//! *Open loop*: requests are due at fixed times, independent of the answers, and the response time
//! is measured from the time at which a request was due. A stall of the server therefore counts for
//! all requests that it delays, not only for the current one (the opposite is "coordinated
//! omission", Tene). *Closed loop*: on each connection the next request follows the answer, which
//! measures the highest rate of a server.
//!
//! The generator records its own lateness: from when a request is due and a connection is free,
//! until it is sent. It polls without sleeping while requests are pending, because a sleeping
//! thread wakes up late; it therefore also records the share of the time in which it was busy.

mod answer;
mod connection;
mod schedule;
mod statistics;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use connection::{Connection, Step};
pub use schedule::Load;
use schedule::Schedule;
pub use statistics::Statistics;

/// A request that is not answered within this time after it was due is an error, as in the paper.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Most open connections: the default backlog of a listening socket (`net.core.somaxconn`).
const OPEN_MOST: usize = 4096;
/// The time between opening the connections and the first request.
const LEAD: Duration = Duration::from_millis(20);
/// The time limit for the answers to warm-up requests.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// The generator stops sleeping this long before a request is due.
const AWAKE: Duration = Duration::from_micros(200);
/// The longest sleep.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Most events of one epoll call.
const EVENTS: usize = 256;
/// The length of the receive buffer, in bytes.
const BUFFER: usize = 256 * 1024;

/// The requests and their server.
#[derive(Clone)]
pub struct Target {
    /// The server's address.
    pub address: SocketAddr,
    /// The encoded requests, sent in order and repeatedly.
    pub requests: Vec<Vec<u8>>,
    /// The expected answer to each.
    pub expect: Expect,
}

/// An expected answer.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// Its status code.
    pub status: u16,
    /// The length of its body in bytes, if known.
    pub length: Option<u64>,
}

/// How requests are sent.
#[derive(Clone, Copy)]
pub struct Plan {
    /// When requests are due.
    pub load: Load,
    /// The connections.
    pub reuse: Reuse,
    /// Whether this thread has its core alone, and may poll without sleeping.
    pub alone: bool,
    /// A request that is not answered within this time after it was due is an error.
    pub timeout: Duration,
}

impl Plan {
    /// A plan for a core of its own, with the paper's time-out.
    pub fn new(load: Load, reuse: Reuse) -> Self {
        Self { load, reuse, alone: true, timeout: REQUEST_TIMEOUT }
    }
}

/// How many requests a connection carries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// One, after which the server closes it. In a closed loop this many are open at once.
    One(usize),
    /// Many: this many connections are opened beforehand, and a request uses the one that has been
    /// free longest.
    Many(usize),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There was no answer within [`Plan::timeout`].
    TimedOut,
    /// The connection was refused.
    Refused,
    /// The connection ended before the answer did.
    Cut,
    /// The answer is not the expected one.
    Wrong,
    /// This machine had no free socket or port.
    NoSocket,
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        match error {
            Errno::CONNREFUSED => Self::Refused,
            Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => Self::TimedOut,
            Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS => Self::NoSocket,
            _ => Self::Cut,
        }
    }
}

/// Sends requests according to `plan`, on the calling thread.
///
/// # Errors
/// The operating system's errors of epoll. Failed requests are counted instead.
pub fn run(target: &Target, plan: Plan) -> anyhow::Result<Statistics> {
    let mut generator = Generator::new(target, plan)?;
    if matches!((plan.reuse, plan.load), (Reuse::Many(_), Load::Open { .. })) {
        generator.warm_up()?;
        generator.schedule = Schedule::new(plan.load);
        generator.statistics = Statistics::new(&generator.schedule)?;
    }
    while generator.poll_once()? {}
    Ok(generator.statistics)
}

struct Generator<'a> {
    target: &'a Target,
    plan: Plan,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    slots: Vec<Slot>,
    /// Slots without a request, in the order in which they became free.
    free: VecDeque<usize>,
    schedule: Schedule,
    /// The due times of requests that have no slot yet.
    waiting: VecDeque<Instant>,
    /// The deadlines of requests, by slot and number.
    deadlines: VecDeque<(Instant, usize, u64)>,
    /// The number of requests sent.
    sent: u64,
    statistics: Statistics,
}

/// A slot for one connection.
struct Slot {
    connection: Option<Connection>,
    /// The due time of its unanswered request.
    due: Option<Instant>,
    /// The number of its latest request.
    number: u64,
    /// When it became free.
    free_since: Instant,
}

impl<'a> Generator<'a> {
    fn new(target: &'a Target, plan: Plan) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (room, beforehand) = match (plan.reuse, plan.load) {
            (Reuse::Many(count), _) => (count, true),
            (Reuse::One(count), Load::Closed { .. }) => (count, false),
            (Reuse::One(_), Load::Open { .. }) => (OPEN_MOST, false),
        };
        let free_since = Instant::now();
        let slot = |index| {
            let open = || Connection::open(target.address, &epoll, index).ok();
            let connection = beforehand.then(open).flatten();
            Slot { connection, due: None, number: 0, free_since }
        };
        let slots = (0..room).map(slot).collect();
        if !plan.alone {
            // The default timer slack of 50 µs would delay this thread's wake-ups.
            rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        }
        thread::sleep(LEAD);
        let schedule = Schedule::new(plan.load);
        Ok(Self {
            target,
            plan,
            epoll,
            events: Vec::with_capacity(EVENTS),
            buffer: vec![0; BUFFER],
            slots,
            free: (0..room).collect(),
            statistics: Statistics::new(&schedule)?,
            schedule,
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            sent: 0,
        })
    }

    /// Sends one request on each connection that was opened beforehand, so that connection setup is
    /// not measured. Errors are ignored, because they repeat in the measurement.
    fn warm_up(&mut self) -> anyhow::Result<()> {
        let request = &self.target.requests[0];
        let mut waiting = 0;
        for slot in &mut self.slots {
            slot.connection.take_if(|connection| connection.send_request(request).is_err());
            waiting += usize::from(slot.connection.is_some());
        }
        let until = Instant::now() + self.plan.timeout.min(WARM_UP_TIMEOUT);
        while waiting > 0 && Instant::now() < until {
            let mut events = std::mem::take(&mut self.events);
            self.poll_events(&mut events)?;
            for event in events.drain(..) {
                let slot = &mut self.slots[event.data.u64() as usize];
                let Some(connection) = &mut slot.connection else { continue };
                match connection.advance(event.flags, &mut self.buffer, self.target.expect) {
                    Ok(Step::Waiting) => continue,
                    Ok(Step::Answered) => {}
                    Ok(Step::AnsweredLast | Step::Ended) | Err(_) => slot.connection = None,
                }
                waiting -= 1;
            }
            self.events = events;
        }
        Ok(())
    }

    /// Takes pending events of connections, without waiting.
    fn poll_events(&self, events: &mut Vec<epoll::Event>) -> anyhow::Result<()> {
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&Timespec::default())) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles due requests, deadlines and events once; `false` when all requests are done.
    fn poll_once(&mut self) -> anyhow::Result<bool> {
        let now = Instant::now();
        self.statistics.busy.begin_turn(now);
        self.send_due(now)?;
        self.expire(now);
        if self.waiting.is_empty() && self.pending() == 0 && self.schedule.is_over(now) {
            self.statistics.end(now);
            return Ok(false);
        }
        self.wait(now)?;
        let mut events = std::mem::take(&mut self.events);
        self.poll_events(&mut events)?;
        for event in events.drain(..) {
            self.statistics.busy.mark_busy();
            self.advance(event.data.u64() as usize, event.flags)?;
        }
        self.events = events;
        Ok(true)
    }

    /// The number of slots with a request, or with a connection that has not ended.
    fn pending(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Sends every request that is due and has a slot.
    fn send_due(&mut self, now: Instant) -> anyhow::Result<()> {
        self.schedule.issue_due(now, self.free.len(), &mut self.waiting);
        while let (Some(&slot), Some(&due)) = (self.free.front(), self.waiting.front()) {
            self.free.pop_front();
            self.waiting.pop_front();
            self.statistics.busy.mark_busy();
            self.send_request(slot, due)?;
        }
        Ok(())
    }

    fn send_request(&mut self, index: usize, due: Instant) -> anyhow::Result<()> {
        let requests = &self.target.requests;
        let request = &requests[(self.sent % requests.len() as u64) as usize];
        self.sent += 1;
        let slot = &mut self.slots[index];
        self.statistics.sent(due.max(slot.free_since), Instant::now())?;
        (slot.due, slot.number) = (Some(due), self.sent);
        self.deadlines.push_back((due + self.plan.timeout, index, self.sent));
        let usable = slot.connection.take().filter(Connection::is_idle);
        let connection = match usable {
            Some(connection) => Ok(connection),
            None => Connection::open(self.target.address, &self.epoll, index).map_err(Fault::from),
        };
        let asked = connection.and_then(|mut connection| {
            connection.send_request(request)?;
            Ok(connection)
        });
        match asked {
            Ok(connection) => slot.connection = Some(connection),
            Err(fault) => self.fail(index, fault),
        }
        Ok(())
    }

    /// Handles events of a connection.
    fn advance(&mut self, index: usize, mut events: epoll::EventFlags) -> anyhow::Result<()> {
        loop {
            let slot = &mut self.slots[index];
            let Some(connection) = &mut slot.connection else { return Ok(()) };
            let step = connection.advance(events, &mut self.buffer, self.target.expect);
            match step {
                Ok(Step::Waiting) => return Ok(()),
                Ok(Step::Answered | Step::AnsweredLast) => {
                    let now = Instant::now();
                    if let Some(due) = slot.due.take() {
                        self.statistics.answered(due, now)?;
                    }
                    if matches!(self.plan.reuse, Reuse::Many(_)) {
                        slot.connection.take_if(|_| step == Ok(Step::AnsweredLast));
                        self.release(index);
                        return self.send_due(now);
                    }
                    // The server closes first, so that TIME_WAIT is on its side.
                    events = epoll::EventFlags::IN;
                }
                Ok(Step::Ended) => {
                    slot.connection = None;
                    if matches!(self.plan.reuse, Reuse::One(_)) {
                        self.release(index);
                        return self.send_due(Instant::now());
                    }
                    return Ok(());
                }
                Err(fault) => {
                    self.fail(index, fault);
                    return Ok(());
                }
            }
        }
    }

    /// Fails requests past their deadline.
    fn expire(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|due| *due + self.plan.timeout < now) {
            self.waiting.pop_front();
            self.statistics.failed(Fault::TimedOut);
        }
        let many = matches!(self.plan.reuse, Reuse::Many(_));
        while let Some(&(deadline, index, number)) = self.deadlines.front() {
            let slot = &self.slots[index];
            let over = slot.due.is_none() && (many || slot.connection.is_none());
            let over = over || slot.number != number;
            if !over && deadline > now {
                return;
            }
            self.deadlines.pop_front();
            if !over {
                self.fail(index, Fault::TimedOut);
            }
        }
    }

    /// Drops the connection, and counts an error if a request was pending.
    fn fail(&mut self, index: usize, fault: Fault) {
        let slot = &mut self.slots[index];
        slot.connection = None;
        let asked = slot.due.take().is_some();
        if asked {
            self.statistics.failed(fault);
        }
        if asked || matches!(self.plan.reuse, Reuse::One(_)) {
            self.release(index);
        }
    }

    fn release(&mut self, index: usize) {
        self.slots[index].free_since = Instant::now();
        self.free.push_back(index);
    }

    /// Sleeps until the next request is due or an event arrives.
    fn wait(&mut self, now: Instant) -> anyhow::Result<()> {
        let next = self.schedule.next().map(|due| due.saturating_duration_since(now));
        let nothing = self.pending() == 0;
        let ahead = match (self.plan.alone, nothing) {
            (true, false) => return Ok(()),
            (true, true) => next.unwrap_or_default().saturating_sub(AWAKE),
            (false, _) => next.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL),
        };
        if ahead.is_zero() {
            return Ok(());
        }
        let time = Timespec::try_from(ahead).unwrap_or_default();
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.statistics.busy.end_sleep(Instant::now());
        Ok(())
    }
}
