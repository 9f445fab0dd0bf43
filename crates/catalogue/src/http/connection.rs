//! One connection: parses requests and sends their responses in the same order.

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

use super::body::Body;
use super::body_reader::BodyReader;
use super::close::{is_retryable, shutdown_write};
use super::config::MIN_PROGRESS;
use super::deadline::Deadline;
use super::events::EventStream;
use super::limiter::{Activity, ConnectionPermit};
use super::path::is_below;
use super::reply::Job;
use super::request::{MAX_HEAD, Method, Refusal, Request};
use super::response::{Persistence, Response};
use super::send_buffer::SendBuffer;
use super::site::Site;
use super::socket::Socket;

/// When this much is pending, it is sent before more requests are answered; in bytes.
const MAX_PENDING: usize = 64 * 1024;
/// How many steps a connection makes before its task yields.
const STEP_BUDGET: u64 = 32;
const LATE: &str = "the request did not arrive in time";
const CROWDED: &str = "there are too many connections: try again in a moment";

/// The state of a connection, without its socket.
pub(super) struct Connection {
    site: Arc<Site>,
    input: Vec<u8>,
    /// `input[start..end]` was received and is not answered.
    start: usize,
    end: usize,
    /// A request whose head is parsed and whose body is being read.
    body_reader: Option<BodyReader>,
    send_buffer: SendBuffer,
    /// When the request that is being read must be complete; `None` between two requests.
    request_until: Option<Instant>,
    /// A request was refused, so the rest of the input is not parsed.
    refused: bool,
    /// The connection is counted in [`Site::busy`].
    busy: bool,
    permit: ConnectionPermit,
}

/// What the connection does next.
pub(super) enum Step {
    /// Read more input.
    Read,
    /// Send what is pending.
    Send,
    /// Run a job for the response.
    Job(Job, ResponseContext),
    /// Wait for a regular permit before the next request is answered.
    Permit,
    /// Send events until the connection ends.
    Events(Box<EventStream>),
    /// Send what is pending and close the connection.
    End,
}

/// The part of a request that is needed to send its response.
#[derive(Clone, Copy)]
pub(super) struct ResponseContext {
    is_head: bool,
    keep_alive: bool,
    http_1_0: bool,
    /// The response says how far the catalogue is behind.
    is_v1: bool,
}

impl ResponseContext {
    fn of(request: &Request<'_>) -> Self {
        let Request { method, keep_alive, http_1_0, .. } = *request;
        let is_v1 = is_below(request.path, "/v1");
        Self { is_head: method == Method::Head, keep_alive, http_1_0, is_v1 }
    }
}

impl Connection {
    pub fn new(site: Arc<Site>, permit: ConnectionPermit) -> Self {
        site.counters.connections.fetch_add(1, Ordering::Relaxed);
        site.counters.open.fetch_add(1, Ordering::Relaxed);
        let head_timeout = site.config.timeouts.head;
        Self {
            site,
            input: vec![0; MAX_HEAD],
            start: 0,
            end: 0,
            body_reader: None,
            send_buffer: SendBuffer::new(),
            request_until: Some(Instant::now() + head_timeout),
            refused: false,
            busy: false,
            permit,
        }
    }

    /// Answers what has already arrived, without registering the socket with the reactor: most
    /// clients with a single request have sent it before the connection is accepted. Returns a
    /// connection that is not finished.
    pub fn answer_first(mut self, socket: StdStream) -> Option<(Self, StdStream, Step)> {
        match io::Read::read(&mut &socket, &mut self.input) {
            Ok(0) => return None,
            Ok(count) => self.received(count),
            Err(error) if is_retryable(&error) => return Some((self, socket, Step::Read)),
            Err(_) => return None,
        }
        let step = self.advance();
        if matches!(step, Step::Job(..) | Step::Permit | Step::Events(_)) {
            return Some((self, socket, step));
        }
        let written = self.send_buffer.write_to(socket.as_fd());
        self.site.counters.sent.fetch_add(self.send_buffer.total, Ordering::Relaxed);
        match written {
            Ok(true) if self.send_buffer.last && !self.has_input() => {
                shutdown_write(&socket);
                None
            }
            Ok(_) => Some((self, socket, step)),
            Err(error) if is_retryable(&error) => Some((self, socket, step)),
            Err(_) => None,
        }
    }

    /// What aborts the connection's task when it is evicted.
    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.permit.activity)
    }

    /// Whether more responses may follow those that are pending.
    pub fn keeps_alive(&self) -> bool {
        !self.send_buffer.last
    }

    /// Runs the connection until it ends; `None` if it was cut off.
    pub async fn run(mut self, mut socket: Socket, mut step: Step) -> Option<()> {
        let mut deadline = Deadline::new(Instant::now() + self.site.config.timeouts.head);
        for count in 1_u64.. {
            if count % STEP_BUDGET == 0 {
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
                Step::Job(job, context) => {
                    self.send(&mut socket, &mut deadline).await?;
                    let response = job.run_blocking(&self.site).await;
                    match self.push(response, context) {
                        Some(step) => step,
                        None => self.advance(),
                    }
                }
                Step::Permit => {
                    self.send(&mut socket, &mut deadline).await?;
                    self.wait_for_permit().await
                }
                Step::Events(stream) => {
                    return self.send_events(&mut socket, &mut deadline, stream).await;
                }
                Step::End => {
                    self.send(&mut socket, &mut deadline).await?;
                    socket.end(self.has_input()).await;
                    return Some(());
                }
            };
        }
        None
    }

    /// Waits for a regular permit, as long as for the head of a request.
    async fn wait_for_permit(&mut self) -> Step {
        match timeout(self.site.config.timeouts.head, self.permit.wait_for_regular()).await {
            Ok(permit) => {
                self.permit = permit;
                self.advance()
            }
            Err(_) => self.refuse(Refusal { status: 503, detail: CROWDED }),
        }
    }

    /// Records that `count` bytes were read into the input.
    fn received(&mut self, count: usize) {
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

    /// Whether there is, or may be, input that is never read.
    fn has_input(&self) -> bool {
        self.refused || self.start < self.end
    }

    /// Appends a response to the send buffer. Returns the step that must precede the next response,
    /// if any.
    fn push(&mut self, response: Response, context: ResponseContext) -> Option<Step> {
        self.site.counters.count_response(response.status);
        let response = if context.is_v1 { self.site.mark_behind(response) } else { response };
        let is_stream = matches!(response.body, Body::Events(_));
        let keep_alive = context.keep_alive && !is_stream && !self.site.is_stopping();
        let persistence = match (keep_alive, context.http_1_0) {
            (true, false) => Persistence::KeepAlive,
            (true, true) => Persistence::KeepAliveExplicit,
            (false, _) => Persistence::Close,
        };
        self.send_buffer.last |= !keep_alive && !is_stream;
        response.write_head(self.send_buffer.text(), persistence);
        let body = match response.body {
            Body::Events(stream) => return Some(Step::Events(stream)),
            body => body,
        };
        let is_long = !context.is_head && self.send_buffer.add(body);
        is_long.then_some(Step::Send)
    }

    /// Reads more input. `None` if the client has closed its side: its requests are answered by
    /// now.
    async fn fill(&mut self, socket: &mut Socket, deadline: &mut Deadline) -> Option<()> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.begin_wait(deadline);
        let mut free = ReadBuf::new(&mut self.input[self.end..]);
        // After a read that does not fill the buffer, `poll_read` clears the readiness, which saves
        // the call that would return EAGAIN; `try_read` does not.
        let read = deadline.or(|cx| socket.poll_read(cx, &mut free)).await;
        let count = free.filled().len();
        match read {
            Some(Ok(())) if count > 0 => self.received(count),
            None if self.body_reader.is_some() => {
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
        let now = Instant::now();
        let timeouts = self.site.config.timeouts;
        self.permit.set_idle(now.into_std());
        if self.end == 0 && self.request_until.is_none() && self.body_reader.is_none() {
            self.set_busy(false);
            deadline.set(now + timeouts.idle);
        } else {
            deadline.set(*self.request_until.get_or_insert(now + timeouts.head));
        }
    }

    /// Sends everything that is pending. `None` if the socket failed or the client reads too
    /// slowly.
    async fn send(&mut self, socket: &mut Socket, deadline: &mut Deadline) -> Option<()> {
        if self.send_buffer.is_done() {
            return Some(());
        }
        let before = self.send_buffer.total;
        let sent = self.send_all(socket, deadline).await;
        self.site.counters.sent.fetch_add(self.send_buffer.total - before, Ordering::Relaxed);
        sent
    }

    async fn send_all(&mut self, socket: &mut Socket, deadline: &mut Deadline) -> Option<()> {
        let mut mark = self.send_buffer.total;
        let stall = self.site.config.timeouts.stall;
        // Usually the socket takes everything at once: then the clock is not read.
        let mut sent = poll_fn(|cx| match socket.poll_send(cx, &mut self.send_buffer) {
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
                    if self.send_buffer.total - mark < MIN_PROGRESS {
                        return None;
                    }
                    (mark, until) = (self.send_buffer.total, None);
                }
                None => {}
            }
            deadline.set(*until.get_or_insert_with(|| Instant::now() + stall));
            sent = deadline.or(|cx| socket.poll_send(cx, &mut self.send_buffer)).await;
        }
    }

    async fn send_events(
        &mut self,
        socket: &mut Socket,
        deadline: &mut Deadline,
        mut stream: Box<EventStream>,
    ) -> Option<()> {
        // A stream does not delay the shutdown of the server.
        self.set_busy(false);
        self.send(socket, deadline).await?;
        loop {
            let events = tokio::select! {
                events = stream.next() => events?,
                () = socket.closed() => return Some(()),
            };
            self.send_buffer.text().extend_from_slice(&events);
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
