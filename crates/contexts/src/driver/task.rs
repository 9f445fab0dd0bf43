//! The task that moves bytes between a transport and an endpoint.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use levada_session::parts::{Account, MAX_DELIVERED, Memory, Pipe, Timer, now, poll_rounds};
use levada_transport::Transport;

use super::session::Shared;
use super::{CLOSE_TIMEOUT, PathError, ROUNDS};

pub(super) struct Driver {
    shared: Arc<Shared>,
    pipe: Pipe,
    timer: Timer,
    deadline: Option<Instant>,
    /// Until the peer has proved a right.
    memory: Option<Memory>,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        transport: Box<dyn Transport>,
        received: Vec<u8>,
        account: Option<Account>,
    ) -> Self {
        shared.lock().accounted = account.is_some();
        let pipe = Pipe::new(transport, received);
        let memory = account.map(Memory::new);
        let mut driver = Self { shared, pipe, timer: Timer::default(), deadline: None, memory };
        driver.deliver();
        driver
    }

    /// Reports the memory of the session to its budget, until the peer has proved a right; returns
    /// whether it may read more.
    fn may_read(&mut self) -> bool {
        let Some(memory) = &mut self.memory else { return true };
        let (accounted, held, ended) = {
            let state = self.shared.lock();
            (state.accounted, state.memory(), state.ended.is_some())
        };
        if !accounted {
            self.memory = None;
            return true;
        }
        let held = held + self.pipe.memory();
        if ended {
            memory.report(held);
            return false;
        }
        memory.may_read(held, self.shared.as_ref())
    }

    /// Passes what was read to the connection.
    fn deliver(&mut self) {
        let mut state = self.shared.lock();
        let received = self.pipe.received();
        let length = received.len().min(MAX_DELIVERED);
        let result = state.connection.receive(&mut received[..length], now());
        state.dispatch();
        match result {
            Ok(consumed) => self.pipe.consume(consumed),
            Err(error) => state.end(error.into()),
        }
    }

    /// True if bytes were moved.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Result<bool, PathError> {
        if let Some(output) = self.pipe.output() {
            let mut state = self.shared.lock();
            state.connection.transmit(output);
            if output.is_empty() {
                return Ok(false);
            }
            state.wake_all();
        }
        match self.pipe.poll_write(cx) {
            Poll::Ready(written) => written.map(|()| true).map_err(Into::into),
            Poll::Pending => Ok(false),
        }
    }

    /// True if bytes were moved.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Result<bool, PathError> {
        if !self.shared.lock().wants_input() {
            return Ok(false);
        }
        if !self.pipe.received().is_empty() {
            // What was left when the connection wanted nothing more.
            let before = self.pipe.received().len();
            self.deliver();
            if self.pipe.received().len() < before {
                return Ok(true);
            }
        }
        match self.pipe.poll_read(cx) {
            Poll::Ready(read) => read?,
            Poll::Pending => return Ok(false),
        }
        if self.pipe.has_ended() {
            let mut state = self.shared.lock();
            state.connection.receive_end()?;
            state.end(PathError::Closed);
            return Ok(false);
        }
        self.deliver();
        Ok(true)
    }

    /// One round: true if bytes were moved, or a timer has expired.
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<bool, PathError> {
        let may_read = self.may_read();
        let retry_at = self.memory.as_ref().and_then(Memory::retry_at);
        let mut state = self.shared.lock();
        let reading = may_read && state.wants_input();
        state.connection.set_reading(reading, now());
        let deadline = [state.connection.timeout(), retry_at].into_iter().flatten().min();
        drop(state);
        if self.timer.poll(cx, deadline).is_ready() {
            self.shared.lock().connection.handle_timeout(now())?;
            if retry_at.is_some_and(|retry_at| retry_at <= now()) {
                return Ok(true);
            }
        }
        let moved = [self.poll_output(cx)?, may_read && self.poll_input(cx)?];
        // An end is noticed in the next round.
        Ok(moved != [false, false] || self.shared.lock().ended.is_some())
    }

    /// Whether nothing is left to do but to send the last bytes.
    fn is_over(&self, cx: &Context<'_>) -> bool {
        let mut state = self.shared.lock();
        state.register_driver(cx);
        state.ended.is_some() || state.abandoned || state.closed && state.peer_closed
    }

    /// Sends what is left, and waits until the peer has ended too.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = *self.deadline.get_or_insert_with(|| now() + CLOSE_TIMEOUT);
        if self.timer.poll(cx, Some(until)).is_ready() {
            return Poll::Ready(());
        }
        loop {
            if let Some(output) = self.pipe.output() {
                self.shared.lock().connection.transmit(output);
                if output.is_empty() {
                    break;
                }
            }
            let before = self.pipe.sent();
            let written = self.pipe.poll_write(cx);
            // A slow peer that takes bytes gets the full time for the next ones.
            if self.pipe.sent() > before {
                self.deadline = Some(now() + CLOSE_TIMEOUT);
            }
            match written {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        let _ = self.pipe.poll_shutdown(cx);
        self.shared.lock().wake_all();
        self.pipe.poll_discard(cx)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        poll_rounds(cx, ROUNDS, |cx| {
            if self.is_over(cx) {
                return ControlFlow::Break(self.poll_shutdown(cx));
            }
            match self.poll_round(cx) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(Poll::Pending),
                Err(error) => {
                    self.shared.lock().end(error);
                    ControlFlow::Break(self.poll_shutdown(cx))
                }
            }
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.lock().end(PathError::Closed);
    }
}
