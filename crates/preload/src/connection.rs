//! A TCP connection of the program, and what carries its bytes.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use levada_ring::records::{Mode, Reason, Record};
use levada_ring::{Consumer, Half, Leaked, Producer, Side};

use crate::lock::{Guard, Lock};
use crate::spin::Waits;
use crate::{arena, epoll, memory};

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

/// The state of a connection, behind what is shown of it. All its processes and threads share it.
#[repr(C)]
pub struct Connection {
    /// What `levada fast top` shows.
    pub record: Record,
    /// Of a free record: the next one, plus 1.
    pub next_free: AtomicU32,
    /// Changes when the record is used for another connection.
    pub generation: AtomicU32,
    /// Processes that have descriptors of it.
    pub holders: AtomicU32,
    phase: AtomicU32,
    /// Bytes that come.
    pub inbound: Direction,
    /// Bytes that go.
    pub outbound: Direction,
    /// How often the direction of successful calls has changed, doubled; the lowest bit is the last one's.
    pub flips: AtomicU32,
    /// The monitor has the socket, perhaps: its response to the offer has not come.
    pub is_offered: AtomicU32,
    /// Calls since the offer.
    pub calls: AtomicU32,
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
    /// The number of the process at the other end; 0 if that is this one.
    pub peer: AtomicU32,
    /// The process whose [marks](crate::waking) the peer sets.
    pub marks_of: AtomicU32,
    /// Bytes of the stream that were received by TCP; right from the time on when the inbound direction is ready.
    pub tcp_received: AtomicU64,
    /// When an empty read has last looked at TCP, in [`ticks`](crate::spin::ticks).
    pub looked: AtomicU32,
    /// The outbound ring has grown.
    pub has_grown: AtomicU32,
    /// Bytes that the outbound ring had carried when it was last looked at for being quiet.
    pub sent_before: AtomicU64,
    /// Which end of the segment this is: 0 for [`Side::Connector`].
    side: AtomicU32,
    /// Whether there is a segment: the cells below are set.
    mapped: AtomicU32,
    segment: UnsafeCell<MaybeUninit<Leaked>>,
    producer: UnsafeCell<MaybeUninit<Producer<Half>>>,
    consumer: UnsafeCell<MaybeUninit<Consumer<Half>>>,
    _reserved: AtomicU64,
}

/// The inbound direction, locked, with its end of the ring.
pub struct Inbound<'a> {
    connection: &'a Connection,
    _guard: Guard<'a>,
}

/// The outbound direction, locked, with its end of the ring.
pub struct Outbound<'a> {
    connection: &'a Connection,
    _guard: Guard<'a>,
}

impl Connection {
    /// Prepares a record for a new connection with one holder.
    pub fn begin(&self, nonblocking: bool) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        for word in [
            &self.flips,
            &self.is_offered,
            &self.calls,
            &self.has_timeouts,
            &self.read_shut,
            &self.write_shut,
            &self.tcp_ended,
            &self.was_full,
            &self.looked,
            &self.inbound.in_kernel,
            &self.outbound.in_kernel,
            &self.inbound.sleeper,
            &self.outbound.sleeper,
            &self.record.reason,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for direction in [&self.inbound, &self.outbound] {
            direction.waits.clear();
            direction.path.store(Path::Tcp as u32, Ordering::Relaxed);
        }
        let counters = &self.record.counters;
        for word in [
            &counters.ring_in,
            &counters.ring_out,
            &counters.tcp_in,
            &counters.tcp_out,
            &counters.tcp_late,
            &counters.taken,
            &counters.written,
            &counters.sleeps,
            &counters.wakeups,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.nonblocking.store(nonblocking.into(), Ordering::Relaxed);
        self.holders.store(1, Ordering::Relaxed);
        self.set_mode(Mode::Tcp);
        self.phase.store(Phase::Fresh as u32, Ordering::Release);
    }

    /// How far the upgrade is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Fresh,
            1 => Phase::Offered,
            2 => Phase::Paired,
            _ => Phase::Settled,
        }
    }

    /// Moves from one phase to the next. `false` if another thread was faster.
    pub fn advance(&self, from: Phase, to: Phase) -> bool {
        let (from, to) = (from as u32, to as u32);
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

    /// Notes why the connection left the ring; the first reason counts.
    pub fn note(&self, reason: Reason) {
        let _ = self.record.reason.compare_exchange(
            Reason::None as u32,
            reason as u32,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Shows what carries the bytes.
    pub fn set_mode(&self, mode: Mode) {
        self.record.mode.store(mode as u32, Ordering::Relaxed);
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

    /// Puts the ends of a segment into the record.
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
        if !memory::take_segment() {
            // SAFETY: as above.
            unsafe { segment.unmap() };
            self.settle(Reason::Exhausted);
            return;
        }
        let (producer, consumer) = segment.ends(side);
        // SAFETY: both locks are held, and `mapped` is not set: nothing else uses the cells. Earlier values own nothing.
        unsafe {
            (*self.segment.get()).write(segment);
            (*self.producer.get()).write(producer);
            (*self.consumer.get()).write(consumer);
        }
        self.peer.store(peer, Ordering::Relaxed);
        self.marks_of.store(crate::process::own(), Ordering::Relaxed);
        self.side.store((side == Side::Acceptor).into(), Ordering::Relaxed);
        self.mapped.store(1, Ordering::Release);
        self.phase.store(Phase::Paired as u32, Ordering::Release);
    }

    /// The inbound direction, locked. `None` without a segment, or in a signal handler that has interrupted its holder.
    pub fn lock_inbound(&self) -> Option<Inbound<'_>> {
        let guard = self.inbound.lock.lock()?;
        let mapped = self.mapped.load(Ordering::Acquire) != 0;
        mapped.then_some(Inbound { connection: self, _guard: guard })
    }

    /// The outbound direction, locked. As [`lock_inbound`](Self::lock_inbound).
    pub fn lock_outbound(&self) -> Option<Outbound<'_>> {
        let guard = self.outbound.lock.lock()?;
        let mapped = self.mapped.load(Ordering::Acquire) != 0;
        mapped.then_some(Outbound { connection: self, _guard: guard })
    }

    /// Ends the record after the last descriptor is closed, or leaves that to the thread that still sleeps in it. Both directions
    /// are left first.
    pub fn end(&self, number: u32) {
        let (Some(_inbound), Some(_outbound)) =
            (self.inbound.lock.lock(), self.outbound.lock.lock())
        else {
            return;
        };
        for direction in [&self.inbound, &self.outbound] {
            direction.path.store(Path::Back as u32, Ordering::Release);
        }
        self.phase.store(Phase::Settled as u32, Ordering::Release);
        self.holders.store(0, Ordering::Relaxed);
        let asleep = [&self.inbound, &self.outbound]
            .iter()
            .any(|direction| direction.sleeper.load(Ordering::Relaxed) != 0);
        if asleep || self.record.mode.load(Ordering::Relaxed) == Mode::Free as u32 {
            return;
        }
        if self.mapped.swap(0, Ordering::AcqRel) != 0 {
            memory::give_segment_back(self);
            // SAFETY: both locks are held and no thread sleeps in the ring: nothing uses the mapping any more.
            unsafe { (*self.segment.get()).assume_init_read().unmap() };
        }
        self.count();
        self.set_mode(Mode::Free);
        drop((_inbound, _outbound));
        arena::release(number);
    }

    /// Adds what this connection has carried to the totals.
    fn count(&self) {
        let Some(totals) = arena::totals() else { return };
        let own = &self.record.counters;
        let by_tcp = own.tcp_in.load(Ordering::Relaxed) + own.tcp_out.load(Ordering::Relaxed);
        if by_tcp == 0 {
            // It listened, or never connected: every connection begins on TCP.
            return;
        }
        let all = &totals.counters;
        for (from, to) in [
            (&own.ring_in, &all.ring_in),
            (&own.ring_out, &all.ring_out),
            (&own.tcp_in, &all.tcp_in),
            (&own.tcp_out, &all.tcp_out),
            (&own.tcp_late, &all.tcp_late),
            (&own.taken, &all.taken),
            (&own.written, &all.written),
            (&own.sleeps, &all.sleeps),
            (&own.wakeups, &all.wakeups),
        ] {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let upgraded =
            [&own.taken, &own.written].iter().any(|count| count.load(Ordering::Relaxed) > 0);
        totals.upgraded.fetch_add(upgraded.into(), Ordering::Relaxed);
        let reason = match self.record.reason.load(Ordering::Relaxed) {
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
    pub fn peer_has_left(&self) -> bool {
        let side = match self.connection.side.load(Ordering::Relaxed) {
            0 => Side::Connector,
            _ => Side::Acceptor,
        };
        // SAFETY: as in `consumer`.
        unsafe { (*self.connection.segment.get()).assume_init_ref().is_left(side) }
    }

    /// What carries the bytes.
    pub fn path(&self) -> Path {
        self.connection.inbound_path()
    }

    /// Changes it.
    pub fn set_path(&self, path: Path) {
        self.connection.inbound.path.store(path as u32, Ordering::Release);
        epoll::look_again(arena::number(self.connection));
    }

    /// Counts bytes that were taken.
    pub fn count(&self, bytes: usize) {
        let counters = &self.connection.record.counters;
        add(&counters.ring_in, bytes);
        add(&counters.taken, 1);
    }

    /// The end of the ring.
    pub fn consumer(&mut self) -> &mut Consumer<Half> {
        // SAFETY: the lock is held, and `mapped` was set when it was taken: it is cleared only under this lock.
        unsafe { (*self.connection.consumer.get()).assume_init_mut() }
    }
}

impl Outbound<'_> {
    /// What carries the bytes.
    pub fn path(&self) -> Path {
        self.connection.outbound_path()
    }

    /// Changes it.
    pub fn set_path(&self, path: Path) {
        self.connection.outbound.path.store(path as u32, Ordering::Release);
        epoll::look_again(arena::number(self.connection));
    }

    /// Counts bytes that were written.
    pub fn count(&self, bytes: usize) {
        let counters = &self.connection.record.counters;
        add(&counters.ring_out, bytes);
        add(&counters.written, 1);
    }

    /// The end of the ring.
    pub fn producer(&mut self) -> &mut Producer<Half> {
        // SAFETY: as in `Inbound::consumer`.
        unsafe { (*self.connection.producer.get()).assume_init_mut() }
    }
}

/// Adds to a counter that only the holder of a lock changes, which the caller is: so it need not be one atomic step, which costs more.
fn add(counter: &AtomicU64, more: usize) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(more as u64);
    counter.store(sum, Ordering::Relaxed);
}
