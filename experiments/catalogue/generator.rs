//! Asks a server for something, again and again, from one thread.
//!
//! *Open loop*: requests are due at times that were fixed beforehand, whatever becomes of the answers, and the time of an
//! answer counts from when its request was due. So a server that stalls is charged for all that it kept waiting, and not
//! only for the one request that it was busy with (Tene calls the opposite "coordinated omission"). *Closed loop*: on each
//! connection the next request follows the answer, which shows how many a server can answer at most.
//!
//! The generator says how late it was itself: from when a request was due, and a connection free for it, until it was
//! sent. It looks all the time while anything is under way, because a thread that sleeps is woken late; so it says, too,
//! for what share of the time it had something to do.

mod answer;
mod connection;
mod schedule;
mod seen;
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
pub use seen::Seen;

/// A request that was not answered so long after it was due is an error, as in the paper.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many connections are open at most: as many as a listening socket holds here (`net.core.somaxconn`).
const OPEN_MOST: usize = 4096;
/// Between the opening of connections and the first request.
const LEAD: Duration = Duration::from_millis(20);
/// What is asked before anything is measured must be answered within this.
const GREETING: Duration = Duration::from_secs(1);
/// So long before a request is due the generator no longer sleeps.
const AWAKE: Duration = Duration::from_micros(200);
/// It looks at least so often what happened.
const LOOK: Duration = Duration::from_millis(100);
/// Events taken at once.
const EVENTS: usize = 256;
const BUFFER: usize = 256 * 1024;

/// What is asked for, and where.
#[derive(Clone)]
pub struct Target {
    /// The server's.
    pub address: SocketAddr,
    /// The requests as sent, one after the other and then from the first again.
    pub requests: Vec<Vec<u8>>,
    /// What every answer must be.
    pub expect: Expect,
}

/// What an answer must be.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// Its status code.
    pub status: u16,
    /// Bytes of its body, where that is known.
    pub length: Option<u64>,
}

/// How to ask.
#[derive(Clone, Copy)]
pub struct Plan {
    /// When.
    pub load: Load,
    /// On which connections.
    pub reuse: Reuse,
    /// Nothing else needs this thread's core: it may look all the time.
    pub alone: bool,
    /// A request that was not answered so long after it was due is an error.
    pub patience: Duration,
}

impl Plan {
    /// With a core of its own, and as much patience as in the paper.
    pub fn new(load: Load, reuse: Reuse) -> Self {
        Self { load, reuse, alone: true, patience: PATIENCE }
    }
}

/// How many requests a connection carries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// One, after which the server closes it. In a closed loop so many are open at once.
    One(usize),
    /// Many: so many connections are opened beforehand, and a request takes the one that has been free longest.
    Many(usize),
}

/// What can go wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There was no answer within [`Plan::patience`].
    TimedOut,
    /// Nobody listens.
    Refused,
    /// The connection ended before the answer did.
    Cut,
    /// The answer is not what it must be.
    Wrong,
    /// This machine had no socket or no port left.
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

/// Asks as `plan` says, on the calling thread, and tells what came of it.
///
/// # Errors
/// The system's, if it has no epoll. What goes wrong with a request is counted instead.
pub fn run(target: &Target, plan: Plan) -> anyhow::Result<Seen> {
    let mut generator = Generator::new(target, plan)?;
    if matches!((plan.reuse, plan.load), (Reuse::Many(_), Load::Open { .. })) {
        generator.greet()?;
        generator.schedule = Schedule::new(plan.load);
        generator.seen = Seen::new(&generator.schedule)?;
    }
    while generator.turn()? {}
    Ok(generator.seen)
}

struct Generator<'a> {
    target: &'a Target,
    plan: Plan,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    slots: Vec<Slot>,
    /// Slots without a request, those first that have been so longest.
    free: VecDeque<usize>,
    schedule: Schedule,
    /// When requests were due that have no slot yet.
    waiting: VecDeque<Instant>,
    /// Until when which request must be answered, by slot and number.
    deadlines: VecDeque<(Instant, usize, u64)>,
    /// How many requests were sent.
    asked: u64,
    seen: Seen,
}

/// Room for one connection.
struct Slot {
    connection: Option<Connection>,
    /// When its request was due, until that is answered.
    due: Option<Instant>,
    /// Its latest request.
    number: u64,
    /// Since when it could take one.
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
            // Waits of this thread are to end when they should.
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
            seen: Seen::new(&schedule)?,
            schedule,
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            asked: 0,
        })
    }

    /// Asks once on each connection that was opened beforehand: with many requests on each, their beginnings are not what
    /// is to be measured. What goes wrong here will go wrong again.
    fn greet(&mut self) -> anyhow::Result<()> {
        let request = &self.target.requests[0];
        let mut waiting = 0;
        for slot in &mut self.slots {
            slot.connection.take_if(|connection| connection.ask(request).is_err());
            waiting += usize::from(slot.connection.is_some());
        }
        let until = Instant::now() + self.plan.patience.min(GREETING);
        while waiting > 0 && Instant::now() < until {
            let mut events = std::mem::take(&mut self.events);
            self.look(&mut events)?;
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

    /// What has happened to connections, without waiting for more.
    fn look(&self, events: &mut Vec<epoll::Event>) -> anyhow::Result<()> {
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&Timespec::default())) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// One look at clock and sockets; false when all is done.
    fn turn(&mut self) -> anyhow::Result<bool> {
        let now = Instant::now();
        self.seen.busy.look(now);
        self.send_due(now)?;
        self.expire(now);
        if self.waiting.is_empty() && self.pending() == 0 && self.schedule.is_over(now) {
            self.seen.end(now);
            return Ok(false);
        }
        self.rest(now)?;
        let mut events = std::mem::take(&mut self.events);
        self.look(&mut events)?;
        for event in events.drain(..) {
            self.seen.busy.work();
            self.advance(event.data.u64() as usize, event.flags)?;
        }
        self.events = events;
        Ok(true)
    }

    /// How many slots have a request, or wait for the end of their connection.
    fn pending(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Sends every request that is due and has a slot.
    fn send_due(&mut self, now: Instant) -> anyhow::Result<()> {
        self.schedule.come_due(now, self.free.len(), &mut self.waiting);
        while let (Some(&slot), Some(&due)) = (self.free.front(), self.waiting.front()) {
            self.free.pop_front();
            self.waiting.pop_front();
            self.seen.busy.work();
            self.ask(slot, due)?;
        }
        Ok(())
    }

    fn ask(&mut self, index: usize, due: Instant) -> anyhow::Result<()> {
        let requests = &self.target.requests;
        let request = &requests[(self.asked % requests.len() as u64) as usize];
        self.asked += 1;
        let slot = &mut self.slots[index];
        self.seen.sent(due.max(slot.free_since), Instant::now())?;
        (slot.due, slot.number) = (Some(due), self.asked);
        self.deadlines.push_back((due + self.plan.patience, index, self.asked));
        let usable = slot.connection.take().filter(Connection::is_idle);
        let connection = match usable {
            Some(connection) => Ok(connection),
            None => Connection::open(self.target.address, &self.epoll, index).map_err(Fault::from),
        };
        let asked = connection.and_then(|mut connection| {
            connection.ask(request)?;
            Ok(connection)
        });
        match asked {
            Ok(connection) => slot.connection = Some(connection),
            Err(fault) => self.fail(index, fault),
        }
        Ok(())
    }

    /// Something happened to a connection.
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
                        self.seen.answered(due, now)?;
                    }
                    if matches!(self.plan.reuse, Reuse::Many(_)) {
                        slot.connection.take_if(|_| step == Ok(Step::AnsweredLast));
                        self.release(index);
                        return self.send_due(now);
                    }
                    // The server is to close first: then its ports wait, and not those of this machine.
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

    /// What waits too long has failed.
    fn expire(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|due| *due + self.plan.patience < now) {
            self.waiting.pop_front();
            self.seen.failed(Fault::TimedOut);
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

    /// The connection is of no use any more. That is an error if there was something to be answered.
    fn fail(&mut self, index: usize, fault: Fault) {
        let slot = &mut self.slots[index];
        slot.connection = None;
        let asked = slot.due.take().is_some();
        if asked {
            self.seen.failed(fault);
        }
        if asked || matches!(self.plan.reuse, Reuse::One(_)) {
            self.release(index);
        }
    }

    fn release(&mut self, index: usize) {
        self.slots[index].free_since = Instant::now();
        self.free.push_back(index);
    }

    /// Sleeps while nothing can happen.
    fn rest(&mut self, now: Instant) -> anyhow::Result<()> {
        let next = self.schedule.next().map(|due| due.saturating_duration_since(now));
        let nothing = self.pending() == 0;
        let ahead = match (self.plan.alone, nothing) {
            (true, false) => return Ok(()),
            (true, true) => next.unwrap_or_default().saturating_sub(AWAKE),
            (false, _) => next.unwrap_or(LOOK).min(LOOK),
        };
        if ahead.is_zero() {
            return Ok(());
        }
        let time = Timespec::try_from(ahead).unwrap_or_default();
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.seen.busy.rested(Instant::now());
        Ok(())
    }
}
