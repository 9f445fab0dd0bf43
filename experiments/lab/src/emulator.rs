//! The backend `user`: a thread that forwards packets between TUN devices, one device at each end
//! of a link.
//!
//! The thread owns all state; others send it orders. It has real-time priority where that is
//! permitted: on a busy machine it would otherwise be late by milliseconds.

mod engine;
mod packet;
mod shaper;

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::measures::LatenessHistogram;
use crate::{Change, LabError, Link, Measures, Node};
use engine::Engine;
pub(crate) use shaper::time_of;

/// The queue length of a TUN device in packets. The default of 500 overflows.
const DEVICE_QUEUE: u32 = 5000;
/// Links at or above this rate (bits per second) carry super-packets: 64 KiB then take about a
/// millisecond.
const FAST: u64 = 500_000_000;
/// The least queue in bytes for super-packets, so that it holds several.
const OFFLOAD_QUEUE: u64 = 512 * 1024;
const PRIORITY: &str = "50";

/// The handle of the emulator's thread.
#[derive(Debug)]
pub(crate) struct Emulator {
    orders: Orders,
    thread: Option<JoinHandle<()>>,
    links: usize,
    /// The thread's scheduling policy, for the settings.
    pub(crate) scheduling: String,
}

/// The sending side of the thread's orders.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    sender: Arc<Mutex<Sender<Order>>>,
    wakeup: Arc<OwnedFd>,
}

pub(crate) enum Order {
    /// Add a link; links are numbered in this order.
    Add(Box<NewLink>),
    /// Return the measures of one link, or of all.
    Measure(Option<usize>, Sender<Measures>),
    /// Reset the measures.
    Reset,
    /// Change both directions of a link.
    Change(usize, Change),
    RestartSchedule(usize),
    Stop,
}

pub(crate) struct NewLink {
    link: Link,
    stream: usize,
    offload: bool,
    devices: [SyncDevice; 2],
    late: LatenessHistogram,
}

impl Emulator {
    pub(crate) fn start() -> Result<Self, LabError> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(LabError::system("make an eventfd"))?;
        let wakeup = Arc::new(wakeup);
        let (sender, orders) = channel();
        let (reply, ready) = channel();
        let engine = Engine::new(orders, wakeup.clone())?;
        let body = move || {
            let _ = reply.send(rustix::thread::gettid().as_raw_nonzero().get());
            engine.run();
        };
        let thread = std::thread::Builder::new()
            .name("lab emulator".into())
            .spawn(body)
            .map_err(LabError::system("start a thread"))?;
        let scheduling = set_realtime_priority(ready.recv().map_err(|_| LabError::Gone)?);
        let orders = Orders { sender: Arc::new(Mutex::new(sender)), wakeup };
        Ok(Self { orders, thread: Some(thread), links: 0, scheduling })
    }

    /// Joins two nodes by devices of this name, which are still down. Returns the link's number in
    /// [`Order`]; `stream` selects different random numbers for links with the same seed.
    pub(crate) fn join(
        &mut self,
        a: &Node,
        b: &Node,
        stream: usize,
        device: &str,
        link: &Link,
    ) -> Result<usize, LabError> {
        let offload = can_offload(link) && can_offload(link.back());
        let mtu = link.mtu_or_default();
        let devices = [tun(a, device, mtu, offload)?, tun(b, device, mtu, offload)?];
        let new = NewLink {
            link: link.clone(),
            stream,
            offload,
            devices,
            late: LatenessHistogram::new()?,
        };
        self.orders.send(Order::Add(Box::new(new)))?;
        self.links += 1;
        Ok(self.links - 1)
    }

    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Orders {
    pub(crate) fn send(&self, order: Order) -> Result<(), LabError> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(order).map_err(|_| LabError::Gone)?;
        rustix::io::write(self.wakeup.as_fd(), &1_u64.to_ne_bytes())
            .map(drop)
            .map_err(LabError::system("wake the emulator"))
    }

    /// See [`Order::Measure`].
    pub(crate) fn measure(&self, link: Option<usize>) -> Result<Measures, LabError> {
        let (reply, answer) = channel();
        self.send(Order::Measure(link, reply))?;
        answer.recv().map_err(|_| LabError::Gone)
    }
}

/// Whether the link may carry super-packets: random events are per packet, and a slow link would
/// send in bursts.
fn can_offload(link: &Link) -> bool {
    let changes = || link.schedule.iter().map(|(_, change)| change);
    let lossless = link.loss == crate::Loss::None && changes().all(|change| change.loss.is_none());
    let fast = |rate: u64| rate >= FAST;
    lossless
        && link.reorder == 0.0
        && link.duplicate == 0.0
        && link.rate.is_none_or(|rate| fast(rate) && link.queue_or_default(rate) >= OFFLOAD_QUEUE)
        && changes().filter_map(|change| change.rate).all(fast)
}

fn tun(node: &Node, device: &str, mtu: u32, offload: bool) -> Result<SyncDevice, LabError> {
    let make = || {
        let tun = DeviceBuilder::new().name(device).offload(offload).enable(false).build_sync()?;
        tun.set_nonblocking(true)?;
        Ok(tun)
    };
    let tun = node.run(make)?.map_err(LabError::system::<std::io::Error>(
        "make a TUN device (does /dev/net/tun exist, and may this process open it?)",
    ))?;
    node.batch("ip", &format!("link set {device} mtu {mtu} txqueuelen {DEVICE_QUEUE}\n"))?;
    Ok(tun)
}

/// Sets real-time priority for a thread, if permitted, and returns its scheduling policy.
fn set_realtime_priority(thread: i32) -> String {
    let output = Command::new("chrt").args(["-f", "-p", PRIORITY, &thread.to_string()]).output();
    match output {
        Ok(output) if output.status.success() => format!("SCHED_FIFO {PRIORITY}"),
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            format!("normal: real time is not permitted ({reason})")
        }
        Err(error) => format!("normal: chrt cannot be run ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;

    #[test]
    fn super_packets_need_a_fast_link_without_random_events() {
        assert!(can_offload(&Link::new()));
        assert!(can_offload(&Link::new().rate(1_000_000_000)));
        let slower = Change { rate: Some(1000), ..Change::default() };
        for link in [
            Link::new().rate(499_999_999),
            Link::new().rate(1_000_000_000).queue(100_000),
            Link::new().loss(Loss::Bernoulli(0.0)),
            Link::new().reorder(0.1),
            Link::new().duplicate(0.1),
            Link::new().rate(1_000_000_000).schedule(vec![(std::time::Duration::ZERO, slower)]),
        ] {
            assert!(!can_offload(&link), "{link:?}");
        }
    }
}
