//! The task that moves bytes between a transport and its channel.

mod input;
mod output;
mod shutdown;

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levada_transport::Transport;

use crate::SessionError;
use crate::budget::Account;
use crate::memory::Memory;
use crate::rate::Rate;
use crate::rounds::{poll_rounds, yield_now};
use crate::shared::Shared;
use crate::timer::Timer;

/// The read buffer of a peer that has not finished its handshake, or not proved a right, in bytes:
/// more than the longest record (RFC 8446 section 5.2).
const FIRST_READ: usize = 18 * 1024;
/// The most rounds in one poll before the driver yields.
const ROUNDS: usize = 16;
/// The driver yields after reading this many bytes in one poll, so that stream readers run while
/// the data is in the processor's cache, and unread data stays small.
const READ_BUDGET: usize = 128 * 1024;
/// The same for a peer that has not proved a right, which other connections go before.
const READ_BUDGET_ACCOUNTED: usize = FIRST_READ;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    /// The beginning of a record of which more was not read yet.
    incomplete: Vec<u8>,
    /// Bytes read in this poll.
    read: usize,
    output: Vec<u8>,
    /// `output[..sent]` was accepted by the transport.
    sent: usize,
    timer: Timer,
    close_deadline: Option<Instant>,
    /// The transport has accepted the last byte.
    flushed: bool,
    /// The connection's memory is bounded until its peer has proved a right.
    memory: Option<Memory>,
    rate: Rate,
    rtt: Option<Duration>,
}

/// The result of one round in one direction.
#[derive(PartialEq)]
enum Progress {
    Moved,
    Waiting,
    Over,
}

impl Driver {
    /// `input` are bytes that were read from the transport before. The memory of the connection is
    /// reported to `account`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut transport: Box<dyn Transport>,
        mut input: Vec<u8>,
        account: Option<Account>,
    ) -> Self {
        shared.lock().accounted = account.is_some();
        if account.is_none() {
            transport.limit_unread(None);
        }
        let mut driver = Self {
            shared,
            transport,
            incomplete: Vec::new(),
            read: 0,
            output: Vec::new(),
            sent: 0,
            timer: Timer::default(),
            close_deadline: None,
            flushed: false,
            memory: account.map(Memory::new),
            rate: Rate::new(),
            rtt: None,
        };
        if !input.is_empty() {
            driver.deliver(&mut input);
        }
        driver
    }

    /// Performs the handshake; ready once it is complete or has failed. The driver must go on as a
    /// task, which sends what is left: the last flight together with the first messages, or the
    /// reason of the failure.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_rounds(cx, true)
    }

    fn poll_rounds(&mut self, cx: &mut Context<'_>, in_handshake: bool) -> Poll<()> {
        self.read = 0;
        let read_budget = if self.memory.is_some() { READ_BUDGET_ACCOUNTED } else { READ_BUDGET };
        poll_rounds(cx, ROUNDS, |cx| {
            if self.read >= read_budget {
                return ControlFlow::Break(yield_now(cx));
            }
            self.poll_round(cx, in_handshake)
        })
    }

    fn poll_round(&mut self, cx: &mut Context<'_>, in_handshake: bool) -> ControlFlow<Poll<()>> {
        let mut state = self.shared.lock();
        state.register_driver(cx.waker());
        let ended = state.ended.is_some();
        let connected = state.connected;
        drop(state);
        if in_handshake && (ended || connected) {
            return ControlFlow::Break(Poll::Ready(()));
        }
        if ended {
            // Freed memory is available to other connections while the last bytes leave.
            self.report_memory();
            return ControlFlow::Break(self.poll_shutdown(cx));
        }
        let rounds = [self.poll_output(cx), self.poll_input(cx), self.poll_timer(cx)];
        if rounds.iter().all(|progress| *progress == Progress::Waiting) {
            // The waker was registered before the rounds, so a change since then has woken the
            // task.
            return ControlFlow::Break(Poll::Pending);
        }
        ControlFlow::Continue(())
    }

    fn transport_ended(&mut self) -> Progress {
        let mut state = self.shared.lock();
        let result = state.channel.receive_end(Instant::now());
        state.dispatch_events();
        let error = result.map_or_else(error_of, |()| SessionError::Closed);
        state.end(error);
        Progress::Over
    }

    fn transport_failed(&mut self, error: &io::Error) -> Progress {
        let mut state = self.shared.lock();
        state.end(SessionError::Transport(error.to_string()));
        // This stops the channel; its error is ignored, because the reason is set above.
        let _ = state.channel.receive_end(Instant::now());
        drop(state);
        self.close_deadline = Some(Instant::now());
        self.sent = self.output.len();
        Progress::Over
    }

    /// Runs the timers that have expired, and sets the timer for the next one.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Progress {
        loop {
            let mut state = self.shared.lock();
            let retry_at = self.memory.as_ref().and_then(Memory::retry_at);
            let next = [state.timeout(), self.close_deadline, retry_at].into_iter().flatten().min();
            let Some(next) = next else { return Progress::Waiting };
            let now = Instant::now();
            if next > now {
                drop(state);
                if self.timer.poll(cx, Some(next)).is_pending() {
                    return Progress::Waiting;
                }
                continue;
            }
            if self.close_deadline.is_some() {
                return Progress::Over;
            }
            if retry_at.is_some_and(|retry_at| retry_at <= now) {
                return Progress::Moved;
            }
            let result = state.channel.handle_timeout(now);
            state.dispatch_events();
            if let Err(error) = result {
                state.end(error_of(error));
                return Progress::Over;
            }
            drop(state);
            // The peer was silent for a while.
            self.release_output();
            return Progress::Moved;
        }
    }
}

/// Ends the connection also if the task is cancelled, so that no handle waits for it.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.end(SessionError::Closed);
        state.flushed();
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_rounds(cx, false)
    }
}

fn error_of(error: levada_channel::Error) -> SessionError {
    match error {
        levada_channel::Error::WrongPeer { expected, presented } => {
            SessionError::WrongPeer { expected, presented }
        }
        other => SessionError::Channel(other),
    }
}
