//! The emulator's thread: reads packets, and writes them when they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tun_rs::SyncDevice;

use super::packet::{Pool, VNET_HEADER, charge};
use super::shaper::Shaper;
use super::{NewLink, Order};
use crate::LabError;
use crate::measures::{LatenessHistogram, Measures};

/// The most packets and bytes read from one device before due packets and other devices are
/// handled.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 128 * 1024;
/// Most memory of packets in flight in one direction, in bytes; more are dropped. Enough for 6
/// Gbit/s at 300 ms.
const MAX_IN_FLIGHT: usize = 256 * 1024 * 1024;
/// The epoll data of wake-up and timer; for devices it is the device's number.
const WAKEUP: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

pub(super) struct Engine {
    orders: Receiver<Order>,
    wakeup: Arc<OwnedFd>,
    epoll: OwnedFd,
    /// Fires when a packet is due. Edge-triggered, so that it need not be read.
    timer: OwnedFd,
    /// The time to which the timer was last set.
    timer_due: u64,
    epoch: Instant,
    /// Device 2n and 2n + 1 are the ends of link n.
    ends: Vec<End>,
    links: Vec<LatenessHistogram>,
    in_flight: BinaryHeap<Reverse<Packet>>,
    /// The number of packets so far, which keeps the order of packets with the same due time.
    sequence: u64,
    pool: Pool,
}

/// One end of a link, and the direction that begins there.
struct End {
    device: SyncDevice,
    shaper: Shaper,
    offload: bool,
    /// The longest packet of a read, in bytes.
    longest: usize,
    in_flight: usize,
}

struct Packet {
    due: u64,
    sequence: u64,
    /// The end at which it was received.
    from: usize,
    bytes: Vec<u8>,
}

impl Engine {
    pub(super) fn new(orders: Receiver<Order>, wakeup: Arc<OwnedFd>) -> Result<Self, LabError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(LabError::system("make an epoll descriptor"))?;
        epoll::add(&epoll, &wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)
            .map_err(LabError::system("watch an eventfd"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .map_err(LabError::system("make a timer"))?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), edges)
            .map_err(LabError::system("watch a timer"))?;
        Ok(Self {
            orders,
            wakeup,
            epoll,
            timer,
            timer_due: 0,
            epoch: Instant::now(),
            ends: Vec::new(),
            links: Vec::new(),
            in_flight: BinaryHeap::new(),
            sequence: 0,
            pool: Pool::default(),
        })
    }

    /// Runs until [`Order::Stop`].
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            self.deliver();
            events.clear();
            self.set_timer();
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), None);
            if waited.is_err_and(|error| error != Errno::INTR) {
                return;
            }
            for event in &events {
                match event.data.u64() {
                    WAKEUP => {
                        if self.handle_orders() {
                            return;
                        }
                    }
                    TIMER => self.deliver(),
                    end => {
                        self.read(end as usize);
                        self.deliver();
                    }
                }
            }
        }
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sets the timer to the next due time, unless it is already set to that.
    fn set_timer(&mut self) {
        let Some(Reverse(next)) = self.in_flight.peek() else { return };
        if self.timer_due == next.due {
            return;
        }
        self.timer_due = next.due;
        // A value of 0 would disarm the timer.
        let wait = Duration::from_nanos(next.due.saturating_sub(self.now()).max(1));
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(it_value) = Timespec::try_from(wait) else { return };
        let _ = timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: once, it_value },
        );
    }

    /// Reads packets from one end.
    fn read(&mut self, from: usize) {
        let mut packets = 0;
        let mut read = 0;
        while packets < BATCH && read < BATCH_BYTES {
            let Some(end) = self.ends.get(from) else { return };
            let mut bytes = self.pool.take(end.longest);
            match rustix::io::read(&end.device, spare_capacity(&mut bytes)) {
                Ok(length) if length > 0 => {
                    (packets, read) = (packets + 1, read + length);
                    self.accept(from, bytes);
                }
                result => {
                    self.pool.give(bytes);
                    // Any other error repeats at once: the device was removed or set down.
                    if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                        let _ = epoll::delete(&self.epoll, &end.device);
                    }
                    return;
                }
            }
        }
    }

    /// Passes a packet through the shaper.
    fn accept(&mut self, from: usize, bytes: Vec<u8>) {
        let now = self.now();
        let bytes = self.pool.shrink(bytes);
        let end = &mut self.ends[from];
        let [first, second] = end.shaper.enqueue(now, charge(&bytes, end.offload));
        if let Some(due) = second {
            let copy = self.pool.copy(&bytes);
            self.schedule_delivery(from, due, copy);
        }
        match first {
            Some(due) => self.schedule_delivery(from, due, bytes),
            None => self.pool.give(bytes),
        }
    }

    fn schedule_delivery(&mut self, from: usize, due: u64, bytes: Vec<u8>) {
        let end = &mut self.ends[from];
        if end.in_flight + bytes.capacity() > MAX_IN_FLIGHT {
            end.shaper.counters.dropped += 1;
            return self.pool.give(bytes);
        }
        end.in_flight += bytes.capacity();
        self.sequence += 1;
        self.in_flight.push(Reverse(Packet { due, sequence: self.sequence, from, bytes }));
    }

    /// Writes due packets.
    fn deliver(&mut self) {
        loop {
            let now = self.now();
            if self.in_flight.peek().is_none_or(|Reverse(next)| next.due > now) {
                return;
            }
            let Some(Reverse(packet)) = self.in_flight.pop() else { return };
            let written = rustix::io::write(&self.ends[packet.from ^ 1].device, &packet.bytes);
            let end = &mut self.ends[packet.from];
            end.in_flight -= packet.bytes.capacity();
            match written {
                Ok(_) => end.shaper.counters.delivered += 1,
                Err(_) => end.shaper.counters.dropped += 1,
            }
            self.links[packet.from / 2].record(Duration::from_nanos(now - packet.due));
            self.pool.give(packet.bytes);
        }
    }

    /// Handles pending orders; `true` for [`Order::Stop`].
    fn handle_orders(&mut self) -> bool {
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        while let Ok(order) = self.orders.try_recv() {
            let now = self.now();
            match order {
                Order::Add(new) => self.add(*new),
                Order::Measure(link, reply) => drop(reply.send(self.measure(link))),
                Order::Reset => self.reset(),
                Order::Change(link, change) => {
                    self.ends_of(link).iter_mut().for_each(|end| end.shaper.change(&change));
                }
                Order::RestartSchedule(link) => {
                    let ends = self.ends_of(link);
                    ends.iter_mut().for_each(|end| end.shaper.restart_schedule(now));
                }
                Order::Stop => return true,
            }
        }
        false
    }

    fn add(&mut self, new: NewLink) {
        let now = self.now();
        let NewLink { link, stream, offload, devices, late } = new;
        self.links.push(late);
        let longest = link.mtu_or_default() as usize;
        let longest = if offload { VNET_HEADER + 65_535 } else { longest };
        for (side, device) in devices.into_iter().enumerate() {
            let data = epoll::EventData::new_u64(self.ends.len() as u64);
            // Fails only without memory; the link then forwards nothing, and the attestation fails
            // with NoEcho.
            let _ = epoll::add(&self.epoll, &device, data, epoll::EventFlags::IN);
            let direction = if side == 0 { &link } else { link.back() };
            let shaper = Shaper::new(direction, (2 * stream + side) as u64, now);
            self.ends.push(End { device, shaper, offload, longest, in_flight: 0 });
        }
    }

    fn ends_of(&mut self, link: usize) -> &mut [End] {
        self.ends.get_mut(2 * link..2 * link + 2).unwrap_or_default()
    }

    fn measure(&self, link: Option<usize>) -> Measures {
        let mut measures = Measures::default();
        let mut late: Option<LatenessHistogram> = None;
        for (n, link_late) in self.links.iter().enumerate() {
            if link.is_some_and(|link| link != n) {
                continue;
            }
            measures.there.add(&self.ends[2 * n].shaper.counters);
            measures.back.add(&self.ends[2 * n + 1].shaper.counters);
            match &mut late {
                Some(late) => late.add(link_late),
                None => late = Some(link_late.clone()),
            }
        }
        measures.lateness = late.map(|late| late.lateness()).unwrap_or_default();
        measures
    }

    fn reset(&mut self) {
        self.links.iter_mut().for_each(LatenessHistogram::clear);
        self.ends.iter_mut().for_each(|end| end.shaper.counters = Default::default());
    }
}

impl Ord for Packet {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Packet {}
