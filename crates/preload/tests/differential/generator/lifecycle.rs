//! Connections and descriptors: how they come and go.

use super::Generator;
use super::model::{Connection, End, Holder};

/// Ways to give a descriptor another number.
const REPLACING: &[&str] = &[
    "dup2",
    #[cfg(target_arch = "x86_64")]
    "dup2-syscall",
];

impl Generator {
    pub fn open_another(&mut self) {
        if self.connections.len() < 4 {
            self.open();
        }
    }

    /// Connects two processes, in either direction, or a process to itself.
    pub fn open(&mut self) {
        let mains = self.mains();
        let (from, to) = match (self.random.below(10), &mains[..]) {
            (_, []) => return,
            (0..2, _) | (_, [_]) => (mains[0].clone(), mains[0].clone()),
            (2..4, _) => (mains[1].clone(), mains[0].clone()),
            _ => (mains[0].clone(), mains[1].clone()),
        };
        let (family, bound, address) = self.random.pick::<(&str, &str, &str)>(&[
            &("inet", "127.0.0.1", "127.0.0.1"),
            &("inet", "127.0.0.1", "127.0.0.1"),
            &("inet", "0.0.0.0", "127.0.0.3"),
            &("inet6", "[::1]", "[::1]"),
            // A socket of IPv6 that accepts a connection of IPv4.
            &("inet6", "[::]", "127.0.0.1"),
        ]);
        let listener = self.name("l");
        let x = self.name("x");
        let y = self.name("y");
        let client = if address.starts_with('[') { "inet6" } else { "inet" };
        self.call(&to, format!("socket {listener} {family}"));
        self.call(&to, format!("bind {listener} {bound}:0"));
        self.call(&to, format!("listen {listener} 5"));
        let x_end = self.connect(&from, &x, client, &format!("{address}:${listener}"));
        let y_end = self.accept(&to, &listener, &y);
        let ends = [x_end, y_end];
        if self.random.percent(70) {
            self.call(&to, format!("close {listener}"));
        }
        self.configure(&ends);
        self.connections.push(Connection { ends, reset: false });
    }

    fn connect(&mut self, process: &str, slot: &str, family: &str, address: &str) -> End {
        let nonblocking = self.random.percent(20);
        let close_on_exec = self.random.percent(15);
        let flags = if close_on_exec { " cloexec" } else { "" };
        let waits = if nonblocking { " nonblock" } else { "" };
        self.call(process, format!("socket {slot} {family}{flags}{waits}"));
        if nonblocking && self.random.percent(50) {
            let form = self.poll_form();
            self.call(process, format!("poll {form} 0 {slot}=in+out"));
        }
        self.call(process, format!("connect {slot} {address}"));
        if nonblocking {
            self.call(process, format!("poll poll 5000 {slot}=out"));
            self.call(process, format!("get {slot} error"));
        }
        let process = process.to_owned();
        let slot = slot.to_owned();
        let holders = vec![Holder { process, slot, close_on_exec }];
        End { holders, nonblocking, ..End::default() }
    }

    fn accept(&mut self, process: &str, listener: &str, slot: &str) -> End {
        if self.random.percent(25) {
            let form = self.poll_form();
            self.call(process, format!("poll {form} 5000 {listener}=in"));
        }
        let nonblocking = self.random.percent(20);
        let close_on_exec = nonblocking && self.random.percent(50);
        let form = match (nonblocking, close_on_exec) {
            (true, true) => "accept4 nonblock cloexec",
            (true, false) => "accept4 nonblock",
            (false, _) => self.random.pick(&["accept", "accept4"]),
        };
        self.call(process, format!("accept {listener} {slot} {form}"));
        let process = process.to_owned();
        let slot = slot.to_owned();
        let holders = vec![Holder { process, slot, close_on_exec }];
        End { holders, nonblocking, ..End::default() }
    }

    /// Nagle's algorithm is off on most connections; some calls become part of the start.
    fn configure(&mut self, ends: &[End; 2]) {
        let delays = self.random.percent(15);
        for end in ends {
            let Holder { process, slot, .. } = end.holders[0].clone();
            if !delays {
                self.call(&process, format!("set {slot} nodelay 1"));
            }
            if self.random.percent(20) {
                self.call(&process, format!("name {slot}"));
                self.call(&process, format!("peer {slot}"));
            }
        }
    }

    /// Processes that the run itself started.
    pub fn mains(&self) -> Vec<String> {
        let mains = self.processes.iter().filter(|process| process.parent.is_none());
        mains.map(|process| process.name.clone()).filter(|name| name != "C").collect()
    }

    pub fn duplicate(&mut self) {
        let Some(end) = self.some_end() else { return };
        let old = self.holder(end);
        let slot = self.name("d");
        let high = self.random.within(40, 60);
        let (way, close_on_exec) = match self.random.below(6) {
            0..3 => ("dup".to_owned(), false),
            3 => (format!("fcntl {high}"), false),
            4 => (format!("cloexec {high}"), true),
            _ => (format!("{} {}", self.random.pick(REPLACING), 100 + self.last % 90), false),
        };
        self.on(&old, format!("dup {} {slot} {way}", old.slot));
        let process = old.process;
        self.end_mut(end).holders.push(Holder { process, slot, close_on_exec });
    }

    /// Closes one descriptor, which may be the last of its end.
    pub fn close_one(&mut self) {
        let Some(end) = self.some_end() else { return };
        let last = self.connections[end.0].ends[end.1].holders.len() == 1;
        if last && self.random.percent(50) {
            return;
        }
        let holder = self.holder(end);
        if last {
            self.prepare_close(&holder);
        }
        self.close(&holder);
        if last {
            self.use_closed(end);
        }
    }

    fn prepare_close(&mut self, holder: &Holder) {
        if self.random.percent(10) {
            self.on(holder, format!("set {} linger 1+2", holder.slot));
        }
    }

    pub fn close(&mut self, holder: &Holder) {
        self.leave_epolls(&holder.process, &holder.slot);
        self.on(holder, format!("close {}", holder.slot));
        let lost = holder.clone();
        self.lose(|holder| holder.process == lost.process && holder.slot == lost.slot);
    }

    /// What the other end finds after a close.
    fn use_closed(&mut self, (connection, end): (usize, usize)) {
        for _ in 0..self.random.below(4) {
            let Some(peer) = self.some_holder(connection, 1 - end) else { return };
            match self.random.below(4) {
                0 => {
                    let length = self.size();
                    let tag = self.tag();
                    self.on(&peer, format!("out send {} {length} {tag} nosignal", peer.slot));
                    self.note_sent(connection, 1 - end, length);
                }
                1 => {
                    let form = self.poll_form();
                    self.on(&peer, format!("poll {form} 0 {}=in+out+rdhup", peer.slot));
                }
                2 => self.on(&peer, format!("in recv {} 50 dontwait+peek", peer.slot)),
                _ => self.on(&peer, format!("get {} error", peer.slot)),
            }
        }
    }

    pub fn shut_down(&mut self) {
        let Some(end) = self.some_end() else { return };
        let holder = self.holder(end);
        let how = self.random.pick(&["wr", "wr", "rd", "rdwr"]);
        self.on(&holder, format!("shutdown {} {how}", holder.slot));
        let end = self.end_mut(end);
        end.shut_write |= how != "rd";
        end.shut_read |= how != "wr";
    }
}
