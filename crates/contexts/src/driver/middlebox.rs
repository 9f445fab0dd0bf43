//! A middlebox between two transports.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::task::{Context, Poll};
use std::time::Instant;

use levada_session::parts::{MAX_DELIVERED, Pipe, Timer, now, poll_rounds};
use levada_transport::Transport;
use tokio::time::timeout_at;

use super::{CLOSE_TIMEOUT, PathError, ROUNDS};
use crate::{ContextError, Direction, Path, Relay, Role};

/// Nothing is read for a side whose transport has this many bytes to take.
const MAX_PENDING: usize = 256 * 1024;
/// The code of ALERT of a party that is busy.
const BUSY: u8 = 5;
/// The transport to the next party, or why there is none.
pub type Dialed = Result<Box<dyn Transport>, PathError>;

/// Carries one session: reads PATH from `client`, calls `dial` with it and this middlebox's number
/// for the transport to the next party, and passes on until one side ends. `received` was read from
/// `client` before. `admit` is called once, when every party is there; if it returns false, the
/// session ends because this middlebox is busy.
///
/// # Errors
/// [`PathError`] if a party broke the protocol or a transport failed; both sides were told.
pub async fn relay<D: Future<Output = Dialed>>(
    relay: Relay,
    client: Box<dyn Transport>,
    received: Vec<u8>,
    dial: impl FnOnce(Path, u8) -> D,
    admit: impl FnOnce() -> bool,
) -> Result<(), PathError> {
    let mut task = Task {
        relay,
        client: Pipe::new(client, received),
        server: None,
        undelivered: [false; 2],
        timer: Timer::default(),
        closing: None,
    };
    let result = task.run(dial, admit).await;
    task.closing = Some(now() + CLOSE_TIMEOUT);
    poll_fn(|cx| task.poll_close(cx)).await;
    result
}

struct Task {
    relay: Relay,
    client: Pipe,
    server: Option<Pipe>,
    /// By direction: more was received than could be delivered at once.
    undelivered: [bool; 2],
    timer: Timer,
    /// A side has ended: until when the other one may take the rest.
    closing: Option<Instant>,
}

impl Task {
    async fn run<D: Future<Output = Dialed>>(
        &mut self,
        dial: impl FnOnce(Path, u8) -> D,
        admit: impl FnOnce() -> bool,
    ) -> Result<(), PathError> {
        poll_fn(|cx| self.poll_path(cx)).await?;
        let (path, number) = match self.relay.path() {
            Some((path, number)) => (path.clone(), number),
            None => return Err(ContextError::Truncated("before PATH").into()),
        };
        let deadline = self.relay.timeout().map(tokio::time::Instant::from_std);
        let deadline = deadline.unwrap_or_else(tokio::time::Instant::now);
        let late = {
            let next = Role::at(number + 1, path.hops.len());
            let address = &path.after(number).address;
            format!("{next} at {address} accepted no connection in the time of the handshake")
        };
        let dialed = timeout_at(deadline, dial(path, number)).await;
        let dialed = dialed.unwrap_or(Err(PathError::Transport(late)));
        match dialed {
            Ok(server) => self.server = Some(Pipe::new(server, Vec::new())),
            Err(error) => {
                self.relay.unreachable();
                return Err(error);
            }
        }
        let mut admit = Some(admit);
        poll_fn(|cx| {
            let polled = self.poll_rounds(cx);
            if self.relay.is_open() && !admit.take().is_none_or(|admit| admit()) {
                let number = self.relay.path().map_or(0, |(_, number)| number);
                self.relay.busy();
                let error = ContextError::Alert { code: BUSY, hop: number };
                return Poll::Ready(Err(error.into()));
            }
            polled
        })
        .await
    }

    /// Reads until PATH is complete.
    fn poll_path(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PathError>> {
        loop {
            self.deliver(Direction::ToServer)?;
            if self.relay.path().is_some() {
                return Poll::Ready(Ok(()));
            }
            if self.timer.poll(cx, self.relay.timeout()).is_ready() {
                return Poll::Ready(self.relay.handle_timeout(now()).map_err(Into::into));
            }
            match self.client.poll_read(cx) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Poll::Pending,
            }
            if self.client.has_ended() {
                return Poll::Ready(Err(ContextError::Truncated("before PATH").into()));
            }
        }
    }

    fn deliver(&mut self, direction: Direction) -> Result<(), PathError> {
        let from = match direction {
            Direction::ToServer => Some(&mut self.client),
            Direction::ToClient => self.server.as_mut(),
        };
        let Some(from) = from else { return Ok(()) };
        let received = from.received();
        let is_more = received.len() > MAX_DELIVERED;
        let length = received.len().min(MAX_DELIVERED);
        let consumed = self.relay.receive(direction, &mut received[..length], now())?;
        from.consume(consumed);
        self.undelivered[direction as usize] = is_more && consumed > 0;
        Ok(())
    }

    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PathError>> {
        poll_rounds(cx, ROUNDS, |cx| match self.poll_round(cx) {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(over)) => ControlFlow::Break(over.map(Ok)),
            Err(error) => ControlFlow::Break(Poll::Ready(Err(error))),
        })
    }

    /// Moves bytes in both directions; ready when the session is over.
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<ControlFlow<Poll<()>>, PathError> {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let reading = self.is_reading(direction);
            self.relay.set_reading(direction, reading, now());
        }
        if self.timer.poll(cx, self.closing.or(self.relay.timeout())).is_ready() {
            if self.closing.is_some() {
                return Ok(ControlFlow::Break(Poll::Ready(())));
            }
            self.relay.handle_timeout(now())?;
        }
        self.relay.advance()?;
        // What waited behind an own answer.
        self.deliver(Direction::ToClient)?;
        let mut moved = false;
        for direction in [Direction::ToServer, Direction::ToClient] {
            moved |= self.poll_input(cx, direction)?;
            moved |= self.poll_output(cx, direction)?;
        }
        Ok(match (self.is_over(), moved) {
            (true, _) => ControlFlow::Break(Poll::Ready(())),
            (false, true) => ControlFlow::Continue(()),
            (false, false) => ControlFlow::Break(Poll::Pending),
        })
    }

    /// A side has ended, and the other one has everything.
    fn is_over(&self) -> bool {
        let client = self.client.has_ended();
        let server = self.server.as_ref().is_some_and(Pipe::has_ended);
        let server_has_all = !self.server.as_ref().is_some_and(Pipe::is_writing)
            && self.relay.pending(Direction::ToServer) == 0;
        let client_has_all = !self.client.is_writing()
            && self.relay.pending(Direction::ToClient) == 0
            && !self.relay.is_answering();
        match (client, server) {
            (true, true) => true,
            (true, false) => server_has_all,
            (false, true) => client_has_all,
            (false, false) => false,
        }
    }

    /// Whether more is read from the party that sends in this direction: not while much waits to be
    /// sent on, nor while what it sends waits behind an own answer.
    fn is_reading(&self, direction: Direction) -> bool {
        let waits = direction == Direction::ToClient && self.relay.is_answering();
        self.relay.pending(direction) < MAX_PENDING && !waits
    }

    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
    ) -> Result<bool, PathError> {
        let reading = self.is_reading(direction);
        let from = match direction {
            Direction::ToServer => Some(&mut self.client),
            Direction::ToClient => self.server.as_mut(),
        };
        let Some(from) = from else { return Ok(false) };
        if from.has_ended() || !reading {
            return Ok(false);
        }
        if self.undelivered[direction as usize] {
            return self.deliver(direction).map(|()| true);
        }
        match from.poll_read(cx) {
            Poll::Ready(read) => read?,
            Poll::Pending => return Ok(false),
        }
        if from.has_ended() {
            self.closing = Some(now() + CLOSE_TIMEOUT);
            return Ok(true);
        }
        self.deliver(direction).map(|()| true)
    }

    fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
    ) -> Result<bool, PathError> {
        let to = match direction {
            Direction::ToServer => self.server.as_mut(),
            Direction::ToClient => Some(&mut self.client),
        };
        let Some(to) = to else { return Ok(false) };
        if let Some(output) = to.output() {
            self.relay.transmit(direction, output);
            if output.is_empty() {
                return Ok(false);
            }
        }
        let before = to.sent();
        let written = to.poll_write(cx);
        // A slow neighbour that takes bytes gets the full time for the next ones.
        if to.sent() > before && self.closing.is_some() {
            self.closing = Some(now() + CLOSE_TIMEOUT);
        }
        match written {
            Poll::Ready(written) => written.map(|()| true).map_err(Into::into),
            Poll::Pending => Ok(false),
        }
    }

    /// Sends what is left to both sides, and ends both.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.poll(cx, self.closing).is_ready() {
            return Poll::Ready(());
        }
        let mut done = true;
        for direction in [Direction::ToServer, Direction::ToClient] {
            while self.poll_output(cx, direction).unwrap_or(false) {}
            let to = match direction {
                Direction::ToServer => self.server.as_mut(),
                Direction::ToClient => Some(&mut self.client),
            };
            let Some(to) = to else { continue };
            if to.is_writing() {
                done = false;
                continue;
            }
            let _ = to.poll_shutdown(cx);
            done &= to.poll_discard(cx).is_ready();
        }
        if done { Poll::Ready(()) } else { Poll::Pending }
    }
}
