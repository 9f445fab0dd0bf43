//! A TCP connection of the program, and what carries its bytes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use levada_ring::records::{Mode, Reason, Record};
use levada_ring::{Consumer, ConsumerState, Half, Leaked, Producer, ProducerState, Side};

use crate::direct::Pair;
use crate::lock::{Guard, Lock};
use crate::segments::{self, User};
use crate::spin::Waits;
use crate::{arena, epoll, history, memory, shown, tcp_only};

/// How far the upgrade is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Nothing was done yet.
    Fresh = 0,
    /// The monitor has the offer.
    Offered = 1,
    /// There is a segment.
    Paired = 2,
    /// The connection stays on TCP.
    Settled = 3,
    /// The kernel does not know the connection: see [`direct`](crate::direct).
    Direct = 4,
    /// A listener with a queue.
    Listening = 5,
}

/// What carries the bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Path {
    /// TCP.
    Tcp = 0,
    /// TCP; the consumer is ready for the ring. Of the inbound direction only.
    Ready = 1,
    /// The ring.
    Ring = 2,
    /// TCP again, to the end.
    Back = 3,
}

impl Path {
    fn of(word: &AtomicU32) -> Self {
        match word.load(Ordering::Acquire) {
            0 => Self::Tcp,
            1 => Self::Ready,
            2 => Self::Ring,
            _ => Self::Back,
        }
    }
}

/// The end of a ring that the peer has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PeerEnd {
    /// The writer of the inbound ring.
    Writer,
    /// The reader of the outbound ring.
    Reader,
}

/// One direction.
#[repr(C)]
#[derive(Default)]
pub struct Direction {
    /// A [`Path`], changed under the lock.
    path: AtomicU32,
    /// Threads in a call of the kernel for this direction.
    pub in_kernel: AtomicU32,
    /// The thread that has announced its sleep in the ring, or 0.
    pub sleeper: AtomicU32,
    /// Waits for the peer.
    pub waits: Waits,
    /// For the end of the ring.
    pub lock: Lock,
}

impl Direction {
    /// Changes what carries the bytes. The caller holds the lock, or has shown the connection to no
    /// other thread.
    pub fn set_path(&self, path: Path) {
        self.path.store(path as u32, Ordering::Release);
    }
}

/// The state of a connection. All processes and threads that have the connection since a fork share
/// it, and another process may write anything into it: no value in it is an address, and positions
/// are checked before they are used.
#[repr(C, align(256))]
pub struct Connection {
    /// The number of what `levada fast top` shows.
    shown: AtomicU32,
    /// Processes that have descriptors of it.
    pub holders: AtomicU32,
    phase: AtomicU32,
    /// Bytes that come.
    pub inbound: Direction,
    /// Bytes that go.
    pub outbound: Direction,
    /// How often the direction of successful calls has changed, doubled; the lowest bit is the last
    /// one's.
    pub flips: AtomicU32,
    /// Calls since the offer.
    pub calls: AtomicU32,
    /// Offers that have failed.
    pub refusals: AtomicU32,
    /// 1 once another program may have it.
    pub is_handed_over: AtomicU32,
    /// 1 for the end that accept(2) has returned.
    pub was_accepted: AtomicU32,
    /// The exchange in which it is to be offered; 0 while its addresses are not noted.
    pub offer_at: AtomicU32,
    /// Whether the descriptor is non-blocking (O_NONBLOCK).
    pub nonblocking: AtomicU32,
    /// SO_RCVTIMEO or SO_SNDTIMEO was set, perhaps to 0 again.
    pub has_timeouts: AtomicU32,
    /// SHUT_RD was called.
    pub read_shut: AtomicU32,
    /// SHUT_WR was called.
    pub write_shut: AtomicU32,
    /// The kernel has shown that the peer's end is closed.
    pub tcp_ended: AtomicU32,
    /// A write found no room since room was last reported.
    pub was_full: AtomicU32,
    /// Bytes of the stream that were received by TCP; right from the time on when the inbound
    /// direction is ready.
    pub tcp_received: AtomicU64,
    /// When an empty read has last looked at TCP, in [`ticks`](crate::spin::ticks).
    pub looked: AtomicU32,
    /// The outbound ring has grown.
    pub has_grown: AtomicU32,
    /// Bytes that the outbound ring had carried when it was last looked at for being quiet.
    pub sent_before: AtomicU64,
    /// The error that the next call finds (SO_ERROR), of a connection without the kernel.
    pub error: AtomicU32,
    /// 1 once such a connection was reset.
    pub is_gone: AtomicU32,
    /// 1 once a read of such a connection has found the end of the peer's stream.
    pub has_read_end: AtomicU32,
    /// 1 after a non-blocking connect(2) that has not been asked for its result.
    pub is_connecting: AtomicU32,
    /// 1 if its socket is another connection's at the same time, or was one before: this library
    /// keeps its flags.
    pub shares_socket: AtomicU32,
    /// Of its socket: AF_INET or AF_INET6; 0 while that is unknown.
    pub domain: AtomicU32,
    /// TCP_NODELAY of such a descriptor: 0 while the program has not set it, else 1 more than it.
    pub nodelay: AtomicU32,
    /// 1 once an option is set that only the kernel knows.
    pub is_special: AtomicU32,
    /// 1 if SO_LINGER may be set.
    pub has_linger: AtomicU32,
    /// Of listen(2).
    pub backlog: AtomicU32,
    /// 1 once a process takes connections of this listener by queues.
    pub has_queues: AtomicU32,
    /// Of a listener, held while a thread accepts from the kernel: no other one takes what that
    /// thread has seen.
    pub accepting: Lock,
    /// The state of this end of the inbound ring.
    consumer: ConsumerCells,
    /// The state of this end of the outbound ring.
    producer: ProducerCells,
}

/// A [`ConsumerState`].
#[repr(C)]
#[derive(Default)]
struct ConsumerCells {
    tail: AtomicU64,
    head: AtomicU64,
    end: AtomicU64,
    entered: AtomicU32,
}

/// A [`ProducerState`].
#[repr(C)]
#[derive(Default)]
struct ProducerCells {
    head: AtomicU64,
    published: AtomicU64,
    tail: AtomicU64,
    since: AtomicU64,
    switches: AtomicU32,
}

impl ConsumerCells {
    fn load(&self) -> ConsumerState {
        ConsumerState {
            tail: self.tail.load(Ordering::Relaxed),
            head: self.head.load(Ordering::Relaxed),
            entered: self.entered.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
        }
    }

    fn store(&self, state: ConsumerState) {
        self.tail.store(state.tail, Ordering::Relaxed);
        self.head.store(state.head, Ordering::Relaxed);
        self.entered.store(state.entered, Ordering::Relaxed);
        self.end.store(state.end, Ordering::Relaxed);
    }
}

impl ProducerCells {
    fn load(&self) -> ProducerState {
        ProducerState {
            head: self.head.load(Ordering::Relaxed),
            published: self.published.load(Ordering::Relaxed),
            tail: self.tail.load(Ordering::Relaxed),
            since: self.since.load(Ordering::Relaxed),
            switches: self.switches.load(Ordering::Relaxed),
        }
    }

    fn store(&self, state: ProducerState) {
        self.head.store(state.head, Ordering::Relaxed);
        self.published.store(state.published, Ordering::Relaxed);
        self.tail.store(state.tail, Ordering::Relaxed);
        self.since.store(state.since, Ordering::Relaxed);
        self.switches.store(state.switches, Ordering::Relaxed);
    }
}

/// The inbound direction, locked, with its end of the ring, whose state is stored when this is
/// dropped.
pub struct Inbound<'a> {
    connection: &'a Connection,
    segment: Leaked,
    side: Side,
    consumer: Consumer<Half>,
    // In this order: the segment is no longer used when the lock is freed.
    _user: User,
    _guard: Guard<'a>,
}

/// The outbound direction, locked, with its end of the ring, whose state is stored when this is
/// dropped.
pub struct Outbound<'a> {
    connection: &'a Connection,
    producer: Producer<Half>,
    _user: User,
    _guard: Guard<'a>,
}

impl Connection {
    /// Prepares the state for a new connection with one holder. `false` if no more connections can
    /// be shown.
    pub fn begin(&self, nonblocking: bool, was_accepted: bool) -> bool {
        let Some(shown) = shown::allocate() else { return false };
        self.shown.store(shown, Ordering::Relaxed);
        segments::own(arena::number(self)).begin();
        for word in [
            &self.flips,
            &self.calls,
            &self.refusals,
            &self.offer_at,
            &self.is_handed_over,
            &self.has_timeouts,
            &self.read_shut,
            &self.write_shut,
            &self.tcp_ended,
            &self.was_full,
            &self.looked,
            &self.error,
            &self.is_gone,
            &self.has_read_end,
            &self.is_connecting,
            &self.shares_socket,
            &self.domain,
            &self.nodelay,
            &self.is_special,
            &self.has_linger,
            &self.backlog,
            &self.has_queues,
            &self.inbound.in_kernel,
            &self.outbound.in_kernel,
            &self.inbound.sleeper,
            &self.outbound.sleeper,
            &self.record().reason,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for direction in [&self.inbound, &self.outbound] {
            direction.waits.clear();
            direction.path.store(Path::Tcp as u32, Ordering::Relaxed);
        }
        self.record().offer.store(0, Ordering::Relaxed);
        self.record().counters.all().for_each(|word| word.store(0, Ordering::Relaxed));
        self.nonblocking.store(nonblocking.into(), Ordering::Relaxed);
        self.was_accepted.store(was_accepted.into(), Ordering::Relaxed);
        self.holders.store(1, Ordering::Relaxed);
        self.set_mode(Mode::Tcp);
        self.phase.store(Phase::Fresh as u32, Ordering::Release);
        true
    }

    /// What `levada fast top` shows.
    #[inline]
    pub fn record(&self) -> &'static Record {
        shown::record(self.shown.load(Ordering::Relaxed))
    }

    /// The number of the record.
    pub fn shown(&self) -> u32 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Returns true while a thread holds the lock of a direction.
    pub fn is_locked(&self) -> bool {
        self.inbound.lock.is_locked() || self.outbound.lock.is_locked()
    }

    /// Waits for some milliseconds at most until no thread holds a lock of a direction. Returns
    /// false if one still does: a process that shares the connection can hold a lock for ever,
    /// which must not keep this one from its end.
    pub fn becomes_free(&self) -> bool {
        let is_free = |pause: &Duration| {
            let is_free = !self.is_locked();
            if !is_free {
                std::thread::sleep(*pause);
            }
            is_free
        };
        std::iter::repeat_n(Duration::from_micros(100), 1000).any(|pause| is_free(&pause))
    }

    /// How far the upgrade is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Fresh,
            1 => Phase::Offered,
            2 => Phase::Paired,
            4 => Phase::Direct,
            5 => Phase::Listening,
            _ => Phase::Settled,
        }
    }

    /// Moves from one phase to the next. `false` if another thread was faster.
    pub fn advance(&self, from: Phase, to: Phase) -> bool {
        let from = from as u32;
        let to = to as u32;
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Leaves the connection on TCP, for a reason, if it has no segment yet.
    pub fn settle(&self, reason: Reason) {
        if self.advance(Phase::Fresh, Phase::Settled)
            || self.advance(Phase::Offered, Phase::Settled)
        {
            self.note(reason);
            self.set_mode(Mode::Kernel);
            epoll::look_again(arena::number(self));
        }
    }

    /// The offer has failed: the connection stays on TCP until it is offered again.
    pub fn try_later(&self, reason: Reason) {
        self.note(reason);
        self.refusals.fetch_add(1, Ordering::Relaxed);
        self.wait_for_monitor();
    }

    /// The offer was not sent: it is made again.
    pub fn wait_for_monitor(&self) {
        if self.advance(Phase::Offered, Phase::Fresh) {
            self.set_mode(Mode::Tcp);
        }
    }

    /// Notes why the connection left the ring; the first reason counts.
    pub fn note(&self, reason: Reason) {
        let _ = self.record().reason.compare_exchange(
            Reason::None as u32,
            reason as u32,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Shows what carries the bytes.
    pub fn set_mode(&self, mode: Mode) {
        self.record().mode.store(mode as u32, Ordering::Relaxed);
    }

    /// What carries the bytes that come.
    pub fn inbound_path(&self) -> Path {
        Path::of(&self.inbound.path)
    }

    /// What carries the bytes that go.
    pub fn outbound_path(&self) -> Path {
        Path::of(&self.outbound.path)
    }

    /// Whether a ring is, or may soon be, used in one of the directions.
    pub fn uses_ring(&self) -> bool {
        matches!(self.inbound_path(), Path::Ready | Path::Ring)
            || self.outbound_path() == Path::Ring
    }

    /// Notes the segment of the connection.
    pub fn attach(&self, segment: Leaked, side: Side, peer: u32) {
        let (Some(_inbound), Some(_outbound)) =
            (self.inbound.lock.lock(), self.outbound.lock.lock())
        else {
            return;
        };
        let forked = self.holders.load(Ordering::SeqCst) != 1;
        if self.phase() != Phase::Offered || forked {
            // Closed meanwhile; or the process was forked, and its child would not see the segment.
            // SAFETY: nothing has used the mapping yet.
            unsafe { segment.unmap() };
            self.settle(Reason::Forked);
            return;
        }
        if tcp_only::is_on() {
            // SAFETY: as above.
            unsafe { segment.unmap() };
            self.settle(Reason::Unsupported);
            return;
        }
        segments::unmap_unused();
        if !memory::take_segment() {
            // SAFETY: as above.
            unsafe { segment.unmap() };
            self.settle(Reason::Exhausted);
            return;
        }
        self.consumer.store(ConsumerState::default());
        self.producer.store(ProducerState::default());
        segments::own(arena::number(self)).attach(segment, side, peer);
        // Offers before this one may have failed.
        self.record().reason.store(Reason::None as u32, Ordering::Relaxed);
        self.phase.store(Phase::Paired as u32, Ordering::Release);
    }

    /// Begins a connection that the kernel does not know, in a segment of a pool.
    pub fn begin_direct(&self, pair: &'static Pair, place: (u8, u64)) {
        let (number, generation) = place;
        self.consumer.store(ConsumerState::of_generation(generation));
        self.producer.store(ProducerState::of_generation(generation));
        let own = segments::own(arena::number(self));
        own.set_pair(pair, place);
        own.attach(pair.segment(number), pair.side(), 0);
        self.inbound.set_path(Path::Ring);
        self.outbound.set_path(Path::Ring);
        self.record().reason.store(Reason::None as u32, Ordering::Relaxed);
        self.set_mode(Mode::Ring);
        self.phase.store(Phase::Direct as u32, Ordering::Release);
    }

    /// Locks the inbound direction. `None` without a segment, or in a signal handler that has
    /// interrupted the holder of the lock.
    pub fn lock_inbound(&self) -> Option<Inbound<'_>> {
        self.lock_inbound_quickly()
    }

    /// As [`lock_inbound`](Self::lock_inbound), but always inlined: the state of the ring's end
    /// stays in registers, which saves a quarter of a short exchange.
    #[inline(always)]
    pub fn lock_inbound_quickly(&self) -> Option<Inbound<'_>> {
        let guard = self.inbound.lock.lock()?;
        let number = arena::number(self);
        let user = User::in_call(number);
        let (segment, side) = segments::own(number).segment()?;
        let consumer = segment.consumer(side, self.consumer.load());
        Some(Inbound { connection: self, segment, side, consumer, _user: user, _guard: guard })
    }

    /// Returns true once a wait for bytes is over: the ring has some, or the direction is on it no
    /// longer. Without the lock, since a thread that spins calls it all the time; the segment stays
    /// mapped for the [`User`].
    #[inline]
    pub fn may_have_bytes(&self, _user: &User) -> bool {
        let tail = self.consumer.tail.load(Ordering::Relaxed);
        let segment = segments::own(arena::number(self)).segment();
        self.inbound_path() != Path::Ring
            || segment.is_none_or(|(segment, side)| segment.has_more(side, tail))
    }

    /// Returns true if the peer was on the processor of this thread when it last wrote, or read. The
    /// segment stays mapped for the [`User`].
    #[inline]
    pub fn shares_processor(&self, _user: &User, end: PeerEnd) -> bool {
        let segment = segments::own(arena::number(self)).segment();
        segment.is_some_and(|(segment, side)| {
            let [written, read] = segment.peer_processors(side);
            let shown = if end == PeerEnd::Writer { written } else { read };
            shown != 0 && shown == levada_ring::processor()
        })
    }

    /// Locks the outbound direction. `None` as for [`lock_inbound`](Self::lock_inbound).
    pub fn lock_outbound(&self) -> Option<Outbound<'_>> {
        self.lock_outbound_quickly()
    }

    /// As [`lock_outbound`](Self::lock_outbound), but always inlined, for the same reason as
    /// [`lock_inbound_quickly`](Self::lock_inbound_quickly).
    #[inline(always)]
    pub fn lock_outbound_quickly(&self) -> Option<Outbound<'_>> {
        let guard = self.outbound.lock.lock()?;
        let number = arena::number(self);
        let user = User::in_call(number);
        let (segment, side) = segments::own(number).segment()?;
        let producer = segment.producer(side, self.producer.load());
        Some(Outbound { connection: self, producer, _user: user, _guard: guard })
    }

    /// Ends the connection after its last descriptor in all processes is closed. Both directions
    /// are left first.
    pub fn end(&self) {
        let (Some(_inbound), Some(_outbound)) =
            (self.inbound.lock.lock(), self.outbound.lock.lock())
        else {
            return;
        };
        for direction in [&self.inbound, &self.outbound] {
            direction.path.store(Path::Back as u32, Ordering::Release);
        }
        let phase = self.phase();
        match phase {
            Phase::Paired => memory::give_segment_back(self),
            Phase::Direct => {
                memory::give_growth_back(self);
                segments::own(arena::number(self)).set_last();
            }
            _ => {}
        }
        self.phase.store(Phase::Settled as u32, Ordering::Release);
        if self.offer_at.load(Ordering::Relaxed) != 0 {
            history::note(self);
        }
        self.count(phase == Phase::Direct);
        self.set_mode(Mode::Free);
        shown::release(self.shown());
    }

    /// Lets go of the connection after its last descriptor in this process is closed.
    pub fn close(&self) {
        let locks = (self.inbound.lock.lock(), self.outbound.lock.lock());
        // A handler that has interrupted a call of this connection leaves it as it is.
        if let (Some(_inbound), Some(_outbound)) = &locks {
            segments::close(arena::number(self));
        }
    }

    /// The number of exchanges so far: of messages in each direction.
    pub fn exchanges(&self) -> u32 {
        let counters = &self.record().counters;
        let in_rings =
            [&counters.taken, &counters.written].map(|count| count.load(Ordering::Relaxed));
        let by_tcp = self.flips.load(Ordering::Relaxed) / 2;
        let messages = in_rings[0].saturating_add(in_rings[1]).saturating_add(by_tcp.into());
        u32::try_from(messages / 2).unwrap_or(u32::MAX)
    }

    /// Adds what this connection has carried to the totals.
    fn count(&self, is_direct: bool) {
        let Some(totals) = shown::totals() else { return };
        let own = &self.record().counters;
        let is_unused = own.all().all(|counter| counter.load(Ordering::Relaxed) == 0);
        if is_unused {
            // It listened, or never connected, or carried nothing.
            return;
        }
        for (from, to) in own.all().zip(totals.counters.all()) {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let upgraded =
            [&own.taken, &own.written].iter().any(|count| count.load(Ordering::Relaxed) > 0);
        totals.upgraded.fetch_add(upgraded.into(), Ordering::Relaxed);
        totals.direct.fetch_add(is_direct.into(), Ordering::Relaxed);
        let reason = match self.record().reason.load(Ordering::Relaxed) {
            0 if !upgraded => Reason::Short as u32,
            other => other,
        };
        if let Some(counter) = totals.reasons.get(reason as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Inbound<'_> {
    /// Whether the reader of the other direction has left the ring.
    #[inline]
    pub fn peer_has_left(&self) -> bool {
        self.segment.is_left(self.side)
    }

    /// What carries the bytes.
    #[inline]
    pub fn path(&self) -> Path {
        self.connection.inbound_path()
    }

    /// Changes it.
    pub fn set_path(&self, path: Path) {
        self.connection.inbound.path.store(path as u32, Ordering::Release);
        epoll::look_again(arena::number(self.connection));
    }

    /// Counts bytes that were taken.
    #[inline]
    pub fn count(&self, bytes: usize) {
        let counters = &self.connection.record().counters;
        add(&counters.ring_in, bytes);
        add(&counters.taken, 1);
    }

    /// Counts bytes that the same call has taken later.
    #[inline]
    pub fn count_more(&self, bytes: usize) {
        add(&self.connection.record().counters.ring_in, bytes);
    }

    /// The end of the ring.
    #[inline]
    pub fn consumer(&mut self) -> &mut Consumer<Half> {
        &mut self.consumer
    }
}

impl Outbound<'_> {
    /// What carries the bytes.
    #[inline]
    pub fn path(&self) -> Path {
        self.connection.outbound_path()
    }

    /// Changes it.
    pub fn set_path(&self, path: Path) {
        self.connection.outbound.path.store(path as u32, Ordering::Release);
        epoll::look_again(arena::number(self.connection));
    }

    /// Counts bytes that were written.
    #[inline]
    pub fn count(&self, bytes: usize) {
        let counters = &self.connection.record().counters;
        add(&counters.ring_out, bytes);
        add(&counters.written, 1);
    }

    /// The end of the ring.
    #[inline]
    pub fn producer(&mut self) -> &mut Producer<Half> {
        &mut self.producer
    }
}

impl Drop for Inbound<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.connection.consumer.store(self.consumer.state());
    }
}

impl Drop for Outbound<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.connection.producer.store(self.producer.state());
    }
}

/// Adds to a counter that only the holder of a lock changes, which the caller is: so it need not be
/// one atomic step, which costs more.
#[inline]
fn add(counter: &AtomicU64, more: usize) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(more as u64);
    counter.store(sum, Ordering::Relaxed);
}
