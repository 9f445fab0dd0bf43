//! One connection: requests come in, answers go out in the same order.

mod requests;

use std::future::poll_fn;
use std::io;
use std::net::TcpStream as StdStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tokio::io::ReadBuf;
use tokio::time::{Instant, timeout};

use super::deadline::Deadline;
use super::ending::{finish, is_patience};
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::places::{Place, Slot};
use super::request::{MAX_HEAD, Method, Refusal, Request};
use super::response::{Body, Connection as Stays, Response};
use super::route::Job;
use super::socket::Socket;
use super::watch::Watch;
use super::{MIN_TAKEN, Site};

/// When so much is to be sent, it is sent before more requests are answered, in bytes.
const ENOUGH: usize = 64 * 1024;
/// After so many steps others have their turn, however much this client asks for.
const TURN: u64 = 32;
const LATE: &str = "the request did not come in time";
const CROWDED: &str = "there are too many connections: try again in a moment";

/// A connection without its socket.
pub(super) struct Connection {
    site: Arc<Site>,
    input: Vec<u8>,
    /// What of `input` has come and was not answered.
    start: usize,
    end: usize,
    /// A request whose head is here, and whose body is on its way.
    incoming: Option<Incoming>,
    outgoing: Outgoing,
    /// When the request on its way must be here; none if there is none.
    head_until: Option<Instant>,
    /// What has come is no request that is answered here.
    refused: bool,
    busy: bool,
    place: Place,
}

/// What has to be done next.
pub(super) enum Step {
    /// More must come.
    Read,
    /// What waits must be sent.
    Send,
    /// Somebody else makes the answer.
    Job(Job, Answering),
    /// A place must be free before the next request is answered.
    Place,
    /// Only events from here on.
    Watch(Box<Watch>),
    /// What waits must be sent, and that is all.
    End,
}

/// What of a request is needed to answer it.
#[derive(Clone, Copy)]
pub(super) struct Answering {
    only_head: bool,
    keep_alive: bool,
    old: bool,
}

impl Answering {
    fn of(request: &Request<'_>) -> Self {
        let Request { method, keep_alive, old, .. } = *request;
        Self { only_head: method == Method::Head, keep_alive, old }
    }
}

impl Connection {
    pub fn new(site: Arc<Site>, place: Place) -> Self {
        site.counters.connections.fetch_add(1, Ordering::Relaxed);
        site.counters.open.fetch_add(1, Ordering::Relaxed);
        let until_head = site.config.times.head;
        Self {
            site,
            input: vec![0; MAX_HEAD],
            start: 0,
            end: 0,
            incoming: None,
            outgoing: Outgoing::new(),
            head_until: Some(Instant::now() + until_head),
            refused: false,
            busy: false,
            place,
        }
    }

    /// Answers what has already come, before anybody waits for more: most clients that ask once have asked by the time
    /// that they are accepted. Gives back what is not over with that.
    pub fn begin(mut self, socket: StdStream) -> Option<(Self, StdStream, Step)> {
        match io::Read::read(&mut &socket, &mut self.input) {
            Ok(0) => return None,
            Ok(count) => self.arrived(count),
            Err(error) if is_patience(&error) => return Some((self, socket, Step::Read)),
            Err(_) => return None,
        }
        let step = self.advance();
        if matches!(step, Step::Job(..) | Step::Place | Step::Watch(_)) {
            return Some((self, socket, step));
        }
        let written = self.outgoing.write_to(socket.as_fd());
        self.site.counters.sent.fetch_add(self.outgoing.total, Ordering::Relaxed);
        match written {
            Ok(true) if self.outgoing.last && !self.is_talking() => {
                finish(&socket);
                None
            }
            Ok(_) => Some((self, socket, step)),
            Err(error) if is_patience(&error) => Some((self, socket, step)),
            Err(_) => None,
        }
    }

    /// By which it hears that it has to make room.
    pub fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.place.slot)
    }

    /// Whether there may be more answers than those that wait.
    pub fn stays(&self) -> bool {
        !self.outgoing.last
    }

    /// Goes on until the connection ends. None is an end before the end.
    pub async fn run(mut self, mut socket: Socket, mut step: Step) -> Option<()> {
        let mut deadline = Deadline::new(Instant::now() + self.site.config.times.head);
        for turn in 1_u64.. {
            if turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
            step = match step {
                Step::Read => {
                    self.send(&mut socket, &mut deadline).await?;
                    self.fill(&mut socket, &mut deadline).await?;
                    self.advance()
                }
                Step::Send => {
                    self.send(&mut socket, &mut deadline).await?;
                    self.advance()
                }
                Step::Job(job, answering) => {
                    self.send(&mut socket, &mut deadline).await?;
                    let response = self.site.run(job).await;
                    match self.push(response, answering) {
                        Some(step) => step,
                        None => self.advance(),
                    }
                }
                Step::Place => {
                    self.send(&mut socket, &mut deadline).await?;
                    self.find_place().await
                }
                Step::Watch(watch) => return self.watch(&mut socket, &mut deadline, watch).await,
                Step::End => {
                    self.send(&mut socket, &mut deadline).await?;
                    socket.end(self.is_talking()).await;
                    return Some(());
                }
            };
        }
        None
    }

    /// Waits for a place, as long as for the head of a request.
    async fn find_place(&mut self) -> Step {
        match timeout(self.site.config.times.head, self.place.exchange()).await {
            Ok(place) => {
                self.place = place;
                self.advance()
            }
            Err(_) => self.refuse(Refusal { status: 503, detail: CROWDED }),
        }
    }

    fn arrived(&mut self, count: usize) {
        self.end += count;
        self.set_busy(true);
    }

    fn set_busy(&mut self, busy: bool) {
        match (self.busy, busy) {
            (false, true) => self.site.busy.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.site.busy.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.busy = busy;
    }

    /// Whether the client has sent, or may be sending, what nobody reads.
    fn is_talking(&self) -> bool {
        self.refused || self.start < self.end
    }

    /// Puts an answer behind what waits to be sent. Gives what must be done before the next one.
    fn push(&mut self, response: Response, answering: Answering) -> Option<Step> {
        self.site.counters.answered(response.status);
        let endless = matches!(response.body, Body::Events(_));
        let stays = answering.keep_alive && !endless && !self.site.is_stopping();
        let connection = match (stays, answering.old) {
            (true, false) => Stays::Stays,
            (true, true) => Stays::StaysOld,
            (false, _) => Stays::Closes,
        };
        self.outgoing.last |= !stays && !endless;
        response.write_head(self.outgoing.text(), connection);
        let body = match response.body {
            Body::Events(watch) => return Some(Step::Watch(watch)),
            body => body,
        };
        let long = !answering.only_head && self.outgoing.add(body);
        long.then_some(Step::Send)
    }

    /// Reads more. An end of the client's is an end of ours: what he asked for is sent by now.
    async fn fill(&mut self, socket: &mut Socket, deadline: &mut Deadline) -> Option<()> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.begin_wait(deadline);
        let mut free = ReadBuf::new(&mut self.input[self.end..]);
        // Unlike `try_read` this knows that a read which left room has emptied the socket: it does not ask once more.
        let read = deadline.or(|cx| socket.poll_read(cx, &mut free)).await;
        let count = free.filled().len();
        match read {
            Some(Ok(())) if count > 0 => self.arrived(count),
            None if self.incoming.is_some() => {
                self.refuse_body(Refusal { status: 408, detail: LATE });
            }
            None if self.end > 0 => {
                self.refuse(Refusal { status: 408, detail: LATE });
            }
            _ => return None,
        }
        Some(())
    }

    fn begin_wait(&mut self, deadline: &mut Deadline) {
        self.place.rest();
        let (now, times) = (Instant::now(), self.site.config.times);
        if self.end == 0 && self.head_until.is_none() && self.incoming.is_none() {
            self.set_busy(false);
            deadline.set(now + times.idle);
        } else {
            deadline.set(*self.head_until.get_or_insert(now + times.head));
        }
    }

    /// Sends all that waits, to a client that takes it fast enough.
    async fn send(&mut self, socket: &mut Socket, deadline: &mut Deadline) -> Option<()> {
        if self.outgoing.is_done() {
            return Some(());
        }
        let before = self.outgoing.total;
        let sent = self.send_all(socket, deadline).await;
        self.site.counters.sent.fetch_add(self.outgoing.total - before, Ordering::Relaxed);
        sent
    }

    async fn send_all(&mut self, socket: &mut Socket, deadline: &mut Deadline) -> Option<()> {
        let mut mark = self.outgoing.total;
        let stall = self.site.config.times.stall;
        // Mostly the socket takes it all: then no clock is read.
        let mut sent = poll_fn(|cx| match socket.poll_send(cx, &mut self.outgoing) {
            Poll::Ready(sent) => Poll::Ready(Some(sent)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        let mut until = None;
        loop {
            match sent {
                Some(Ok(true)) => return Some(()),
                Some(Ok(false)) => tokio::task::yield_now().await,
                Some(Err(_)) => return None,
                None if until.is_some_and(|until| Instant::now() >= until) => {
                    if self.outgoing.total - mark < MIN_TAKEN {
                        return None;
                    }
                    (mark, until) = (self.outgoing.total, None);
                }
                None => {}
            }
            deadline.set(*until.get_or_insert_with(|| Instant::now() + stall));
            sent = deadline.or(|cx| socket.poll_send(cx, &mut self.outgoing)).await;
        }
    }

    async fn watch(
        &mut self,
        socket: &mut Socket,
        deadline: &mut Deadline,
        mut watch: Box<Watch>,
    ) -> Option<()> {
        // It does not hold up the end of the server.
        self.set_busy(false);
        self.send(socket, deadline).await?;
        loop {
            let events = tokio::select! {
                events = watch.next() => events?,
                () = socket.closed() => return Some(()),
            };
            self.outgoing.text().extend_from_slice(&events);
            self.send(socket, deadline).await?;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.set_busy(false);
        self.site.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}
