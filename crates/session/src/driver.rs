//! The task that moves bytes between a link and its channel.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levada_link::Link;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::SessionError;
use crate::shared::Shared;

/// Bytes asked of the link at once, at first: more than the longest record (RFC 8446 5.2). A peer
/// that has not finished its handshake costs no more than this.
const FIRST_READ: usize = 18 * 1024;
/// The most that it grows to, for peers that fill it.
const LARGEST_READ: usize = 16 * FIRST_READ;
/// How long the last bytes of an ended connection may take to leave.
const LINGER: Duration = Duration::from_secs(2);
/// Rounds in one poll before other tasks get their turn.
const ROUNDS: usize = 16;
/// While an interactive stream exists, the link holds this many microseconds' worth of unsent bytes…
const UNSENT_MICROS: u64 = 2_000;
/// …but at least this many bytes.
const UNSENT_FLOOR: u64 = 16 * 1024;

pub(crate) struct Driver {
    shared: Arc<Shared>,
    link: Box<dyn Link>,
    input: Vec<u8>,
    /// `input[..filled]` came from the link and is not consumed yet.
    filled: usize,
    output: Vec<u8>,
    /// `output[..sent]` has left.
    sent: usize,
    timer: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    linger_until: Option<Instant>,
    rate: Rate,
}

/// What one direction of the link has to say in one round.
#[derive(PartialEq)]
enum Progress {
    Moved,
    Waiting,
    Over,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, link: Box<dyn Link>) -> Self {
        Self {
            shared,
            link,
            input: vec![0; FIRST_READ],
            filled: 0,
            output: Vec::new(),
            sent: 0,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            linger_until: None,
            rate: Rate::new(),
        }
    }

    /// Writes what the channel has sealed until it has no more or the link is full.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            let mut state = self.shared.lock();
            if !state.channel.wants_transmit() {
                return Progress::Waiting;
            }
            state.channel.transmit(Instant::now(), &mut self.output);
            state.dispatch_events();
            let interactive = state.interactive > 0;
            drop(state);
            self.rate.limit_unsent(self.link.as_ref(), interactive);
            if self.output.is_empty() {
                return Progress::Waiting;
            }
        }
        match Pin::new(&mut self.link).poll_write(cx, &self.output[self.sent..]) {
            Poll::Pending => Progress::Waiting,
            Poll::Ready(Ok(length)) if length > 0 => {
                self.sent += length;
                self.rate.sent(length);
                Progress::Moved
            }
            Poll::Ready(Ok(_)) => self.link_failed(&io::ErrorKind::WriteZero.into()),
            Poll::Ready(Err(error)) => self.link_failed(&error),
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Progress {
        let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
        match Pin::new(&mut self.link).poll_read(cx, &mut buffer) {
            Poll::Pending => Progress::Waiting,
            Poll::Ready(Ok(())) => {
                let length = buffer.filled().len();
                self.filled += length;
                if length == 0 { self.link_ended() } else { self.deliver() }
            }
            Poll::Ready(Err(error)) => self.link_failed(&error),
        }
    }

    /// Hands what was read to the channel and keeps the incomplete record at the end.
    fn deliver(&mut self) -> Progress {
        let mut state = self.shared.lock();
        let result = state.channel.receive(Instant::now(), &mut self.input[..self.filled]);
        state.dispatch_events();
        match result {
            Ok(consumed) => {
                drop(state);
                let was_full = self.filled == self.input.len();
                self.input.copy_within(consumed..self.filled, 0);
                self.filled -= consumed;
                if was_full && self.input.len() < LARGEST_READ {
                    self.input.resize(self.input.len() * 4, 0);
                }
                Progress::Moved
            }
            Err(error) => {
                state.end(error_of(error));
                Progress::Over
            }
        }
    }

    fn link_ended(&mut self) -> Progress {
        let mut state = self.shared.lock();
        let result = state.channel.receive_end(Instant::now());
        state.dispatch_events();
        let error = result.map_or_else(error_of, |()| SessionError::Closed);
        state.end(error);
        Progress::Over
    }

    fn link_failed(&mut self, error: &io::Error) -> Progress {
        self.shared.lock().end(SessionError::Link(error.to_string()));
        // Nothing more can leave.
        self.linger_until = Some(Instant::now());
        self.sent = self.output.len();
        Progress::Over
    }

    /// Lets the channel act on time that has passed and sets the timer for the next point.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Progress {
        loop {
            let mut state = self.shared.lock();
            let next = match (state.timeout(), self.linger_until) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let Some(next) = next else { return Progress::Waiting };
            let now = Instant::now();
            if next <= now {
                if self.linger_until.is_some() {
                    return Progress::Over;
                }
                let result = state.channel.handle_timeout(now);
                state.dispatch_events();
                if let Err(error) = result {
                    state.end(error_of(error));
                    return Progress::Over;
                }
                return Progress::Moved;
            }
            drop(state);
            if self.armed != Some(next) {
                self.armed = Some(next);
                self.timer.as_mut().reset(next.into());
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Progress::Waiting;
            }
            self.armed = None;
        }
    }

    /// The connection is over: send what is still sealed (a close, an alert), for a bounded time.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A peer that never finished its handshake is owed one try, and no socket for longer than that.
        let linger = if self.shared.lock().connected { LINGER } else { Duration::ZERO };
        let until = *self.linger_until.get_or_insert_with(|| Instant::now() + linger);
        loop {
            match self.poll_output(cx) {
                Progress::Moved if Instant::now() < until => {}
                Progress::Moved | Progress::Over => return Poll::Ready(()),
                Progress::Waiting if self.sent < self.output.len() => {
                    if Instant::now() >= until {
                        return Poll::Ready(());
                    }
                    self.timer.as_mut().reset(until.into());
                    if self.timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Progress::Waiting => {
                    let _ = Pin::new(&mut self.link).poll_shutdown(cx);
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..ROUNDS {
            let ended = {
                let mut state = this.shared.lock();
                state.driver_sleeps(cx.waker());
                state.ended.is_some()
            };
            if ended {
                return this.poll_farewell(cx);
            }
            let rounds = [this.poll_output(cx), this.poll_input(cx), this.poll_timer(cx)];
            if rounds.iter().all(|progress| *progress == Progress::Waiting) {
                // Whatever came between the rounds and this look has woken us, because the waker was set first.
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
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

/// How fast the link takes bytes, and the limit on unsent bytes that follows from it.
struct Rate {
    since: Instant,
    bytes: u64,
    bytes_per_second: u64,
    limit: Option<u32>,
}

impl Rate {
    fn new() -> Self {
        Self { since: Instant::now(), bytes: 0, bytes_per_second: 0, limit: None }
    }

    fn sent(&mut self, length: usize) {
        self.bytes += length as u64;
        let elapsed = self.since.elapsed();
        if elapsed < Duration::from_millis(50) {
            return;
        }
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
        let measured = self.bytes.saturating_mul(1_000_000) / micros;
        self.bytes_per_second = (self.bytes_per_second * 3 + measured) / 4;
        self.bytes = 0;
        self.since = Instant::now();
    }

    /// Tells the link when the limit has changed by more than a quarter.
    fn limit_unsent(&mut self, link: &dyn Link, interactive: bool) {
        let wanted = interactive.then(|| {
            let bytes = self.bytes_per_second.saturating_mul(UNSENT_MICROS) / 1_000_000;
            u32::try_from(bytes.max(UNSENT_FLOOR)).unwrap_or(u32::MAX)
        });
        let near = match (self.limit, wanted) {
            (Some(set), Some(wanted)) => set.abs_diff(wanted) <= set / 4,
            (set, wanted) => set == wanted,
        };
        if !near {
            link.limit_unsent(wanted);
            self.limit = wanted;
        }
    }
}
