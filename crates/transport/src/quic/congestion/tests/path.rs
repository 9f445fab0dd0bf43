//! A path with a rate, a queue, a delay and random loss, and flows that fill it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::window::Window;

/// The bytes of a packet.
pub const MTU: u16 = 1500;
/// The time of a step: a packet at 100 Mbit/s.
pub const STEP: Duration = Duration::from_micros(120);

/// What decides how many bytes are in flight.
pub trait Control {
    fn window(&self) -> u64;
    fn on_ack(&mut self, now: Instant, sent: Instant, app_limited: bool, rtt: Duration);
    fn on_loss(&mut self, now: Instant, sent: Instant);
}

impl Control for Window {
    fn window(&self) -> u64 {
        self.bytes()
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, app_limited: bool, rtt: Duration) {
        Window::on_ack(self, now, sent, u64::from(MTU), app_limited, rtt);
    }

    fn on_loss(&mut self, now: Instant, sent: Instant) {
        Window::on_loss(self, now, sent, u64::from(MTU), false);
    }
}

/// CUBIC in packets, as TCP has it: every loss is congestion.
pub struct Cubic {
    window: f64,
    slow_start: bool,
    highest: f64,
    reno: f64,
    since: Option<Instant>,
}

impl Cubic {
    pub fn new() -> Self {
        Self { window: 10.0, slow_start: true, highest: 0.0, reno: 0.0, since: None }
    }
}

impl Control for Cubic {
    fn window(&self) -> u64 {
        (self.window * f64::from(MTU)) as u64
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, _: bool, rtt: Duration) {
        let Some(since) = self.since.filter(|_| !self.slow_start) else {
            self.window += 1.0;
            return;
        };
        if sent <= since {
            return;
        }
        let time = (now - since + rtt).as_secs_f64();
        let k = (self.highest * 0.3 / 0.4).cbrt();
        let target = self.highest + 0.4 * (time - k).powi(3);
        self.reno += 0.53 / self.window;
        self.window += (target - self.window).max(0.0) / self.window;
        self.window = self.window.max(self.reno);
    }

    fn on_loss(&mut self, now: Instant, sent: Instant) {
        if self.since.is_some_and(|since| sent <= since) {
            return;
        }
        let fast = self.window < self.highest;
        self.highest = if fast { self.window * 0.85 } else { self.window };
        self.window = (self.window * 0.7).max(2.0);
        self.reno = self.window;
        (self.since, self.slow_start) = (Some(now), false);
    }
}

/// A sender that always has data.
pub struct Flow {
    pub controller: Box<dyn Control>,
    /// Packets delivered, and lost.
    pub delivered: u64,
    pub lost: u64,
    /// The sender has no more data beyond these packets.
    pub most_in_flight: usize,
    /// The packets in flight, as number and time of sending.
    in_flight: VecDeque<(u64, Instant)>,
    next: u64,
    rtt: Duration,
    /// The bytes that pacing permits.
    tokens: f64,
}

impl Flow {
    pub fn new(controller: Box<dyn Control>) -> Self {
        Self {
            controller,
            delivered: 0,
            lost: 0,
            most_in_flight: usize::MAX,
            in_flight: VecDeque::new(),
            next: 0,
            rtt: Duration::from_millis(20),
            tokens: 0.0,
        }
    }

    /// The next packet, if the window and pacing permit one.
    fn send(&mut self, now: Instant) -> Option<u64> {
        let bytes = (self.in_flight.len() as u64 + 1) * u64::from(MTU);
        let ready = self.tokens >= f64::from(MTU) && self.in_flight.len() < self.most_in_flight;
        if !ready || bytes > self.controller.window() {
            return None;
        }
        self.tokens -= f64::from(MTU);
        self.in_flight.push_back((self.next, now));
        self.next += 1;
        Some(self.next - 1)
    }

    /// Pacing, as quinn does it: 1.25 windows in a round trip, in bursts of up to ten packets.
    fn pace(&mut self) {
        let rate = self.controller.window() as f64 * 1.25 / self.rtt.as_secs_f64();
        self.tokens = (self.tokens + rate * STEP.as_secs_f64()).min(10.0 * f64::from(MTU));
    }

    /// A packet is acknowledged; those three and more before it are lost.
    fn on_ack(&mut self, now: Instant, number: u64) {
        let Some(at) = self.in_flight.iter().position(|(other, _)| *other == number) else {
            return;
        };
        let app_limited = self.in_flight.len() >= self.most_in_flight;
        if let Some((_, sent)) = self.in_flight.remove(at) {
            self.rtt = (self.rtt * 7 + (now - sent)) / 8;
            self.controller.on_ack(now, sent, app_limited, self.rtt);
            self.delivered += 1;
        }
        while let Some((_, sent)) = self.in_flight.front().copied().filter(|(n, _)| n + 3 <= number)
        {
            self.in_flight.pop_front();
            self.lost += 1;
            self.controller.on_loss(now, sent);
        }
    }
}

/// A bottleneck with a queue, and its delay.
pub struct SimulatedPath {
    /// How many steps a packet takes at the bottleneck.
    pub steps_per_packet: u64,
    now: Instant,
    steps: u64,
    delay: Duration,
    queue: VecDeque<(usize, u64)>,
    longest: usize,
    loss: f64,
    /// Acknowledgements on their way, as time of arrival, flow and number.
    acks: VecDeque<(Instant, usize, u64)>,
    random: u64,
}

impl SimulatedPath {
    pub fn new(delay: Duration, longest: usize, loss: f64) -> Self {
        Self {
            steps_per_packet: 1,
            now: Instant::now(),
            steps: 0,
            delay,
            queue: VecDeque::new(),
            longest,
            loss,
            acks: VecDeque::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Runs all flows for a time.
    pub fn run(&mut self, flows: &mut [Flow], time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step(flows);
        }
    }

    fn step(&mut self, flows: &mut [Flow]) {
        self.now += STEP;
        self.steps += 1;
        while let Some((_, flow, number)) =
            self.acks.front().copied().filter(|ack| ack.0 <= self.now)
        {
            self.acks.pop_front();
            flows[flow].on_ack(self.now, number);
        }
        for flow in flows.iter_mut() {
            flow.pace();
        }
        // One packet of each flow in turn, so that none is always first at a queue that has room
        // for one.
        while self.send(flows) {}
        if self.steps.is_multiple_of(self.steps_per_packet)
            && let Some((flow, number)) = self.queue.pop_front()
        {
            self.acks.push_back((self.now + self.delay, flow, number));
        }
    }

    fn send(&mut self, flows: &mut [Flow]) -> bool {
        let mut sent = false;
        let count = flows.len();
        for turn in 0..count {
            let flow = (turn + self.steps as usize) % count;
            let Some(number) = flows[flow].send(self.now) else { continue };
            sent = true;
            let lost = self.loss > 0.0 && self.uniform() < self.loss;
            if !lost && self.queue.len() < self.longest {
                self.queue.push_back((flow, number));
            }
        }
        sent
    }

    /// A number from 0 to 1 (xorshift).
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}
