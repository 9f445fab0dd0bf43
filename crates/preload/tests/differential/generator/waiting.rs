//! Calls that block until another step, a signal or a timeout ends them.

use super::Generator;
use super::model::Connection;

fn is_empty(connection: &Connection, end: usize) -> bool {
    let this = &connection.ends[end];
    connection.is_whole() && this.unread == 0 && !this.times_out
}

fn blocks(connection: &Connection, end: usize) -> bool {
    is_empty(connection, end) && !connection.ends[end].nonblocking
}

impl Generator {
    /// A line that waits until bytes can be read. With `reads`, it may read up to so many of them.
    fn waiting_line(&mut self, process: &str, slot: &str, reads: Option<usize>) -> (String, bool) {
        let choice = self.random.below(10);
        if let (Some(length), 0..5) = (reads, choice) {
            let form =
                self.random.pick(&["recv", "read", "recvmsg", "readv", "recvfrom", "recv_chk"]);
            let flags = if form == "recv" && self.random.percent(20) { "waitall" } else { "-" };
            return (format!("in {form} {slot} {length} {flags}"), true);
        }
        let timeout = self.random.pick(&["-1", "10000"]);
        if choice < 8 {
            let form = self.poll_form();
            return (format!("poll {form} {timeout} {slot}=in"), false);
        }
        let epoll = self.name("e");
        let form = self.wait_form();
        let mode = self.random.pick(&["", "+et", "+oneshot"]);
        self.call(process, format!("epoll {epoll}"));
        self.call(process, format!("ctl {epoll} add {slot} in{mode}"));
        let members = vec![slot.to_owned()];
        let process = process.to_owned();
        let slot = epoll.clone();
        let edges = mode == "+et";
        let duplicates = Vec::new();
        self.epolls.push(super::Epoll { process, slot, duplicates, members, outer: false, edges });
        (format!("wait {form} {epoll} {timeout} 16"), false)
    }

    pub fn start(&mut self, process: &str, line: &str) {
        self.call(process, format!("start {line}"));
        if self.random.percent(60) {
            self.call(process, "asleep");
        }
    }

    /// A reader that waits, and a message that wakes it.
    pub fn block_until_data(&mut self) {
        let Some((connection, end)) = self.some_end_where(is_empty) else { return };
        let length = self.size();
        let may_read = !self.connections[connection].ends[end].nonblocking;
        let tag = self.tag();
        match self.apart((connection, end)) {
            Some((reader, writer)) => {
                let reads = may_read.then_some(length);
                let (line, has_read) = self.waiting_line(&reader.process, &reader.slot, reads);
                self.start(&reader.process, &line);
                self.on(&writer, format!("out send {} {length} {tag} -", writer.slot));
                self.call(&reader.process, "finish");
                self.end_mut((connection, end)).unread = if has_read { 0 } else { length };
            }
            // Both ends in one process: the reader is a thread.
            None => {
                let reader = self.holder((connection, end));
                let writer = self.holder((connection, 1 - end));
                if reader.process != writer.process {
                    return;
                }
                let reads = may_read.then_some(length);
                let (line, has_read) = self.waiting_line(&reader.process, &reader.slot, reads);
                let thread = self.name("t");
                self.on(&reader, format!("thread {thread} {line}"));
                self.on(&writer, format!("out send {} {length} {tag} -", writer.slot));
                self.on(&reader, format!("join {thread}"));
                self.end_mut((connection, end)).unread = if has_read { 0 } else { length };
            }
        }
    }

    /// `MSG_WAITALL` over two messages.
    pub fn block_until_all(&mut self) {
        let Some(end) = self.some_end_where(blocks) else { return };
        let Some((reader, writer)) = self.apart(end) else { return };
        let first = self.size();
        let second = self.size() / 4 + 1;
        let form = self.random.pick(&["recv", "recvmsg", "recvfrom"]);
        let line = format!("in {form} {} {} waitall", reader.slot, first + second);
        self.start(&reader.process, &line);
        for length in [first, second] {
            let tag = self.tag();
            self.on(&writer, format!("out write {} {length} {tag} -", writer.slot));
        }
        self.call(&reader.process, "finish");
    }

    /// A reader that waits, and the end of the stream.
    pub fn block_until_end(&mut self) {
        let Some(end) = self.some_end_where(blocks) else { return };
        let Some((reader, writer)) = self.apart(end) else { return };
        let length = self.size();
        let (line, _) = self.waiting_line(&reader.process, &reader.slot, Some(length));
        self.start(&reader.process, &line);
        self.on(&writer, format!("shutdown {} wr", writer.slot));
        self.call(&reader.process, "finish");
        self.end_mut((end.0, 1 - end.1)).shut_write = true;
    }

    /// `SO_RCVTIMEO`, and what it does to calls.
    pub fn time_out(&mut self) {
        let Some(end) = self.some_end_where(blocks) else { return };
        let reader = self.holder(end);
        let milliseconds = self.random.within(10, 25);
        self.on(&reader, format!("set {} rcvtimeo {milliseconds}", reader.slot));
        let form = self.random.pick(&["recv", "read", "recvmsg", "readv"]);
        self.on(&reader, format!("in {form} {} 100 -", reader.slot));
        self.on(&reader, format!("get {} rcvtimeo", reader.slot));
        if self.random.percent(50) {
            self.on(&reader, format!("set {} rcvtimeo 0", reader.slot));
        } else {
            self.end_mut(end).times_out = true;
        }
    }

    /// `SO_RCVLOWAT`: a call waits, and poll reports nothing, until this many bytes have arrived.
    /// Linux may not wake a call that has taken some of them already, so a call that waits finds
    /// none at first.
    pub fn set_low_water(&mut self) {
        let Some(end) = self.some_end_where(blocks) else { return };
        let Some((reader, writer)) = self.apart(end) else { return };
        let low = self.random.within(20, 2000);
        let tag = self.tag();
        let slot = reader.slot.clone();
        self.on(&reader, format!("set {slot} rcvlowat {low}"));
        let send = |length: usize| format!("out send {} {length} {tag} -", writer.slot);
        if self.random.percent(50) {
            self.start(&reader.process, &format!("in recv {slot} 5000 -"));
            self.on(&writer, send(low + 7));
            self.call(&reader.process, "finish");
        } else {
            let form = self.poll_form();
            self.on(&writer, send(low - 1));
            self.on(&reader, format!("poll {form} 0 {slot}=in"));
            self.on(&reader, format!("in recv {slot} 5000 dontwait+peek"));
            self.on(&writer, send(1));
            self.on(&reader, format!("poll {form} 0 {slot}=in"));
            self.on(&reader, format!("in recv {slot} 5000 -"));
        }
        self.on(&reader, format!("set {slot} rcvlowat 1"));
    }

    /// A signal without `SA_RESTART` ends a call; with it, all calls but those that receive.
    pub fn interrupt(&mut self) {
        let Some(end) = self.some_end_where(blocks) else { return };
        let reader = self.holder(end);
        let restart = self.random.percent(40);
        let how = if restart { "restart" } else { "interrupt" };
        self.on(&reader, format!("handle USR1 {how}"));
        let reads = (!restart).then_some(100);
        let (line, _) = self.waiting_line(&reader.process, &reader.slot, reads);
        if self.random.percent(30) {
            let thread = self.name("t");
            self.on(&reader, format!("thread {thread} {line}"));
            self.on(&reader, format!("hit {thread} USR1"));
        } else {
            self.start(&reader.process, &line);
            self.call(&reader.process, "interrupt USR1");
        }
        self.on(&reader, "count USR1");
    }

    /// A call that receives goes on after a signal with `SA_RESTART`.
    pub fn restart(&mut self) {
        let Some(end) = self.some_end_where(blocks) else { return };
        let Some((reader, writer)) = self.apart(end) else { return };
        let length = self.size();
        let tag = self.tag();
        self.on(&reader, "handle USR2 restart");
        let form = self.random.pick(&["recv", "read", "recvmsg", "readv", "recvfrom"]);
        self.start(&reader.process, &format!("in {form} {} {length} -", reader.slot));
        self.call(&reader.process, "nudge USR2");
        self.on(&writer, format!("out send {} {length} {tag} -", writer.slot));
        self.call(&reader.process, "finish");
        self.on(&reader, "count USR2");
    }
}
