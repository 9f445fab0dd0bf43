//! The task that moves bytes between a transport and its channel.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use levada_transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;
use tokio::time::Sleep;

use crate::SessionError;
use crate::budget::Account;
use crate::rate::Rate;
use crate::shared::Shared;

/// Bytes asked of the transport at once, at first: more than the longest record (RFC 8446 5.2). A peer
/// that has not finished its handshake costs no more than this.
const FIRST_READ: usize = 18 * 1024;
/// The most that it grows to, for peers that fill it.
const LARGEST_READ: usize = 8 * FIRST_READ;
/// A read that leaves so much room says that the peer is not busy.
const SMALL_READ: usize = 4 * 1024;
/// How long the last bytes of an ended connection may take to leave.
const LINGER: Duration = Duration::from_secs(2);
/// After so many reads in a row that were small the buffer is small again: a busy peer has lulls.
const SMALL_READS: u8 = 64;
/// Rounds in one poll before other tasks get their turn.
const ROUNDS: usize = 16;
/// Bytes read in one poll before they do: those who read streams take them while they are in the
/// processor's cache, and nothing piles up.
const TURN: usize = 128 * 1024;
/// The same for a peer that has not proved a right: others come first.
const TURN_ACCOUNTED: usize = FIRST_READ;
/// How often a connection that waits for memory asks for it again.
const ASK: Duration = Duration::from_millis(100);

pub(crate) struct Driver {
    shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    input: Vec<u8>,
    /// `input[..filled]` came from the transport and is not consumed yet.
    filled: usize,
    small_reads: u8,
    /// Bytes that were read in this poll.
    read: usize,
    output: Vec<u8>,
    /// `output[..sent]` has left.
    sent: usize,
    timer: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    linger_until: Option<Instant>,
    /// The last byte has left.
    flushed: bool,
    /// What the connection holds, while its peer has yet to prove a right.
    account: Option<Account>,
    /// When it last asked for memory, if it waits for some.
    asked: Option<Instant>,
    /// For how long it has waited, in all.
    waited: Duration,
    rate: Rate,
    rtt: Option<Duration>,
}

/// What one direction of the transport has to say in one round.
#[derive(PartialEq)]
enum Progress {
    Moved,
    Waiting,
    Over,
}

impl Driver {
    /// `input` are bytes that were read from the transport before. With an account, what the connection holds is counted there.
    pub(crate) fn new(
        shared: Arc<Shared>,
        transport: Box<dyn Transport>,
        mut input: Vec<u8>,
        account: Option<Account>,
    ) -> Self {
        shared.lock().accounted = account.is_some();
        let filled = input.len();
        input.resize(FIRST_READ.max(filled), 0);
        let mut driver = Self {
            shared,
            transport,
            input,
            filled,
            small_reads: 0,
            read: 0,
            output: Vec::new(),
            sent: 0,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            linger_until: None,
            flushed: false,
            account,
            asked: None,
            waited: Duration::ZERO,
            rate: Rate::new(),
            rtt: None,
        };
        if filled > 0 {
            driver.deliver();
        }
        driver
    }

    /// Writes what the channel has sealed until it has no more or the transport is full.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            let mut state = self.shared.lock();
            state.channel.written();
            state.dispatch_events();
            if !state.channel.wants_transmit() {
                return Progress::Waiting;
            }
            state.channel.transmit(Instant::now(), &mut self.output);
            state.dispatch_events();
            let interactive = state.interactive > 0;
            self.rtt = state.channel.rtt();
            drop(state);
            self.rate.limit_unsent(self.transport.as_mut(), interactive);
            if self.output.is_empty() {
                return Progress::Waiting;
            }
        }
        match Pin::new(&mut self.transport).poll_write(cx, &self.output[self.sent..]) {
            Poll::Pending => {
                self.rate.refused();
                Progress::Waiting
            }
            Poll::Ready(Ok(length)) if length > 0 => {
                self.sent += length;
                self.rate.sent(length, self.rtt);
                Progress::Moved
            }
            Poll::Ready(Ok(_)) => self.link_failed(&io::ErrorKind::WriteZero.into()),
            Poll::Ready(Err(error)) => {
                self.hear_out(cx);
                self.link_failed(&error)
            }
        }
    }

    /// The peer has left. What it said before says more than a broken pipe: that it closed, and why.
    fn hear_out(&mut self, cx: &mut Context<'_>) {
        loop {
            let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
            let read = Pin::new(&mut self.transport).poll_read(cx, &mut buffer);
            let length = buffer.filled().len();
            if !matches!(read, Poll::Ready(Ok(()))) || length == 0 {
                return;
            }
            self.filled += length;
            if self.deliver() != Progress::Moved {
                return;
            }
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Progress {
        if self.account.is_some() && !self.may_read() {
            return Progress::Waiting;
        }
        let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
        match Pin::new(&mut self.transport).poll_read(cx, &mut buffer) {
            Poll::Pending => Progress::Waiting,
            Poll::Ready(Ok(())) => {
                let length = buffer.filled().len();
                self.filled += length;
                self.read += length;
                if length == 0 { self.link_ended() } else { self.deliver() }
            }
            Poll::Ready(Err(error)) => self.link_failed(&error),
        }
    }

    /// Whether the connection may hold more. What is not read now is read later, or never.
    fn may_read(&mut self) -> bool {
        let now = Instant::now();
        if let Some(asked) = self.asked.take() {
            self.waited += now.duration_since(asked);
        }
        if self.account() {
            return true;
        }
        self.asked = Some(now);
        if let Some(account) = &self.account {
            account.waited(self.waited, &self.shared);
        }
        false
    }

    /// Accounts for what the connection holds, until its peer has proved a right; whether it may hold more.
    fn account(&mut self) -> bool {
        let Some(account) = &self.account else { return true };
        let state = self.shared.lock();
        let (accounted, memory) = (state.accounted, state.channel.memory());
        drop(state);
        if !accounted {
            self.account = None;
            return true;
        }
        account.hold(memory + self.input.capacity() + self.output.capacity())
    }

    /// Hands what was read to the channel and keeps the incomplete record at the end.
    fn deliver(&mut self) -> Progress {
        let mut state = self.shared.lock();
        let result = state.channel.receive(Instant::now(), &mut self.input[..self.filled]);
        state.dispatch_events();
        match result {
            Ok(consumed) => {
                let connected = state.connected;
                drop(state);
                let read = self.filled;
                self.input.copy_within(consumed..read, 0);
                self.filled -= consumed;
                if connected && self.account.is_none() {
                    self.fit_input(read);
                }
                Progress::Moved
            }
            Err(error) => {
                state.end(error_of(error));
                Progress::Over
            }
        }
    }

    /// Grows the buffer for a peer that fills it, and gives it back when only little comes.
    fn fit_input(&mut self, read: usize) {
        let length = self.input.len();
        if read >= SMALL_READ {
            self.small_reads = 0;
        }
        if read == length && length < LARGEST_READ {
            self.input.resize(LARGEST_READ.min(length * 4), 0);
        } else if self.filled == 0 && read < SMALL_READ && length > FIRST_READ {
            self.small_reads += 1;
            if self.small_reads == SMALL_READS {
                self.small_reads = 0;
                self.input.truncate(FIRST_READ);
                self.input.shrink_to_fit();
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
        let mut state = self.shared.lock();
        state.end(SessionError::Transport(error.to_string()));
        // The channel must know that nothing more comes; why, is said already.
        let _ = state.channel.receive_end(Instant::now());
        drop(state);
        self.linger_until = Some(Instant::now());
        self.sent = self.output.len();
        Progress::Over
    }

    /// Lets the channel act on time that has passed and sets the timer for the next point.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Progress {
        loop {
            let mut state = self.shared.lock();
            let asks = self.asked.map(|asked| asked + ASK);
            let next = [state.timeout(), self.linger_until, asks].into_iter().flatten().min();
            let Some(next) = next else { return Progress::Waiting };
            let now = Instant::now();
            if next <= now {
                if self.linger_until.is_some() {
                    return Progress::Over;
                }
                if asks.is_some_and(|asks| asks <= now) {
                    return Progress::Moved;
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

    /// The connection is over: send what is still sealed (a close, an alert), then read on until the
    /// peer has ended too. A socket that is closed with unread input would throw away what was sent.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A peer that never finished its handshake is owed one try, and no socket for longer than that.
        let linger = if self.shared.lock().connected { LINGER } else { Duration::ZERO };
        let until = *self.linger_until.get_or_insert_with(|| Instant::now() + linger);
        while !self.flushed {
            match self.poll_output(cx) {
                Progress::Moved if Instant::now() < until => {
                    // Slow is not dead: whoever takes bytes gets time for the next ones.
                    self.linger_until = Some(Instant::now() + linger);
                }
                Progress::Waiting if self.sent < self.output.len() => {
                    return self.poll_until(until, cx);
                }
                Progress::Waiting => {
                    let _ = Pin::new(&mut self.transport).poll_shutdown(cx);
                    self.flushed = true;
                    self.shared.lock().flushed();
                }
                Progress::Moved | Progress::Over => return Poll::Ready(()),
            }
        }
        self.poll_discard(until, cx)
    }

    fn poll_discard(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS {
            let mut buffer = ReadBuf::new(&mut self.input);
            match Pin::new(&mut self.transport).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() && Instant::now() < until => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.poll_until(until, cx),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().reset(until.into());
        self.timer.as_mut().poll(cx)
    }
}

/// However the task ends, nobody waits for it any longer.
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
        let this = &mut *self;
        this.read = 0;
        let turn = if this.account.is_some() { TURN_ACCOUNTED } else { TURN };
        for _ in 0..ROUNDS {
            if this.read >= turn {
                break;
            }
            let ended = {
                let mut state = this.shared.lock();
                state.driver_sleeps(cx.waker());
                state.ended.is_some()
            };
            if ended {
                // What it has given back is free for others while the last bytes leave.
                this.account();
                return this.poll_farewell(cx);
            }
            let rounds = [this.poll_output(cx), this.poll_input(cx), this.poll_timer(cx)];
            if rounds.iter().all(|progress| *progress == Progress::Waiting) {
                // Whatever came between the rounds and this look has woken us, because the waker was set first.
                return Poll::Pending;
            }
        }
        // Not by waking itself at once: a runtime may then run nothing else for a long while.
        let _ = pin!(yield_now()).poll(cx);
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
