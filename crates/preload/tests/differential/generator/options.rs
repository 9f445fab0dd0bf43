//! Options, flags, and calls on sockets that are not connected.

use super::Generator;

impl Generator {
    pub fn ask_options(&mut self) {
        let Some(end) = self.some_end() else { return };
        let whole = self.connections[end.0].is_whole();
        let holder = self.holder(end);
        for _ in 0..self.random.within(1, 4) {
            let line = match self.random.below(9) {
                0 => format!("set {} keepalive {}", holder.slot, self.random.below(2)),
                1 => format!("set {} keepidle {}", holder.slot, self.random.within(10, 99)),
                2 => format!("set {} usertimeout {}", holder.slot, self.random.within(9000, 9999)),
                3 => format!("get {} info", holder.slot),
                4 => format!("flags {}", holder.slot),
                5 => format!("stat {}", holder.slot),
                6 => format!("set {} unknown 1", holder.slot),
                _ => {
                    let names = [
                        "error",
                        "type",
                        "domain",
                        "protocol",
                        "acceptconn",
                        "keepalive",
                        "keepidle",
                        "usertimeout",
                        "nodelay",
                        "rcvlowat",
                        "sndlowat",
                        "rcvtimeo",
                        "sndtimeo",
                        "linger",
                        "oobinline",
                        "reuseaddr",
                        "priority",
                        "unknown",
                    ];
                    format!("get {} {}", holder.slot, self.random.pick(&names))
                }
            };
            // The state of the kernel's connection after an end of one direction is not part of the
            // comparison.
            if whole || !line.ends_with("info") {
                self.on(&holder, line);
            }
        }
        if self.random.percent(30) {
            self.on(&holder, format!("name {}", holder.slot));
            self.on(&holder, format!("peer {}", holder.slot));
        }
    }

    pub fn toggle_nonblocking(&mut self) {
        let Some(end) = self.some_end() else { return };
        let holder = self.holder(end);
        let nonblocking = !self.connections[end.0].ends[end.1].nonblocking;
        let way = self.random.pick(&["fcntl", "ioctl"]);
        self.on(&holder, format!("nonblock {} {way} {}", holder.slot, u8::from(nonblocking)));
        self.end_mut(end).nonblocking = nonblocking;
        if self.connections[end.0].ends[end.1].unread == 0 && nonblocking {
            let form = self.random.pick(&["read", "recv", "readv", "recvmsg"]);
            self.on(&holder, format!("in {form} {} 10 -", holder.slot));
        }
    }

    pub fn count_unread(&mut self) {
        let Some(end) = self.some_end() else { return };
        let holder = self.holder(end);
        self.on(&holder, format!("fionread {}", holder.slot));
        if self.random.percent(20) {
            self.on(&holder, format!("mark {}", holder.slot));
        }
    }

    /// A new socket, one that is bound, and one that listens.
    pub fn fail_on_unconnected(&mut self) {
        let mains = self.mains();
        if mains.is_empty() {
            return;
        }
        let process = mains[self.random.below(mains.len())].clone();
        let fresh = self.name("s");
        let bound = self.name("s");
        self.call(&process, format!("socket {fresh} inet"));
        self.call(&process, format!("socket {bound} inet"));
        self.call(&process, format!("bind {bound} 127.0.0.1:0"));
        for _ in 0..self.random.within(2, 6) {
            let slot = if self.random.percent(60) { &fresh } else { &bound }.clone();
            let line = match self.random.below(12) {
                0 => format!("in recv {slot} 10 -"),
                1 => format!("in read {slot} 10 -"),
                2 => format!("out send {slot} 10 1 nosignal"),
                3 => format!("peer {slot}"),
                4 => format!("shutdown {slot} wr"),
                5 => format!("accept {slot} none accept"),
                6 => format!("poll poll 0 {slot}=in+out+rdhup"),
                7 => format!("fionread {slot}"),
                8 => format!("get {slot} error"),
                9 => format!("in recv {slot} 10 oob"),
                10 => format!("connect {fresh} 127.0.0.1:${bound}"),
                _ => format!("get {slot} acceptconn"),
            };
            self.call(&process, line);
        }
        if self.random.percent(40) {
            self.call(&process, format!("listen {bound} 1"));
            self.call(&process, format!("in recv {bound} 10 dontwait"));
            self.call(&process, format!("out send {bound} 10 1 nosignal"));
            self.call(&process, format!("nonblock {bound} fcntl 1"));
            self.call(&process, format!("accept {bound} none accept"));
        }
        self.call(&process, format!("close {fresh}"));
        self.call(&process, format!("close {bound}"));
    }
}
