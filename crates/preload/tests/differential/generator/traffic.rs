//! Bytes that are sent and received without waiting.

use super::Generator;
use super::model::Holder;

/// Calls that take flags.
const WITH_FLAGS: &[&str] =
    &["send", "sendto", "sendmsg", "recv", "recvfrom", "recvmsg", "recv_chk"];

impl Generator {
    /// A message size: mostly small.
    pub fn size(&mut self) -> usize {
        match self.random.below(20) {
            0..6 => self.random.within(1, 16),
            6..12 => self.random.within(17, 600),
            12..17 => self.random.within(601, 4000),
            _ => self.random.within(4001, 16_000),
        }
    }

    pub fn exchange(&mut self) {
        let Some((connection, _)) = self.some_end_where(|connection, _| connection.is_whole())
        else {
            return;
        };
        self.exchange_on(connection);
    }

    /// A request and an answer.
    pub fn exchange_on(&mut self, connection: usize) {
        let first = self.random.below(2);
        for end in [first, 1 - first] {
            let length = self.size();
            self.send(connection, end, length);
            self.receive_all(connection, 1 - end);
        }
    }

    pub fn send_some(&mut self) {
        let Some((connection, end)) = self.some_end() else { return };
        for _ in 0..self.random.within(1, 3) {
            let length = self.size();
            self.send(connection, end, length);
        }
    }

    /// Sends once, if the other end has space for it.
    pub fn send(&mut self, connection: usize, end: usize, length: usize) {
        if length > self.connections[connection].space(end) {
            return;
        }
        let Some(holder) = self.some_holder(connection, end) else { return };
        match self.random.below(100) {
            0..3 => self.send_corked(&holder, length),
            3..6 => self.send_more(&holder, length),
            6..11 => self.send_messages(&holder, length),
            _ => self.send_at_once(&holder, length),
        }
        self.note_sent(connection, end, length);
    }

    /// What the model knows after bytes were sent.
    pub fn note_sent(&mut self, connection: usize, end: usize, length: usize) {
        let connection = &mut self.connections[connection];
        if connection.ends[end].shut_write || connection.reset || length == 0 {
            return;
        }
        let peer = &mut connection.ends[1 - end];
        peer.unread += length;
        // A connection of which nothing can be read any more answers with a reset.
        connection.reset |= peer.closed || peer.shut_read && peer.shut_write;
    }

    fn send_at_once(&mut self, holder: &Holder, length: usize) {
        let form = match self.random.below(40) {
            0 => "sendfile",
            1 => "splice",
            2..4 => "pwritev2",
            4..8 => "writev",
            8..12 => "sendmsg",
            12..14 => "sendto",
            14..27 => "send",
            _ => "write",
        };
        let lengths = match form {
            "writev" | "sendmsg" | "pwritev2" => self.parts(length),
            _ => length.to_string(),
        };
        let flags = if WITH_FLAGS.contains(&form) {
            self.random.pick(&["-", "-", "-", "nosignal", "dontwait", "nosignal+dontwait"])
        } else {
            "-"
        };
        let tag = self.tag();
        self.on(holder, format!("out {form} {} {lengths} {tag} {flags}", holder.slot));
    }

    /// Lengths of up to four parts; some may be empty.
    fn parts(&mut self, length: usize) -> String {
        let mut left = length;
        let mut parts = Vec::new();
        for _ in 0..self.random.below(4) {
            let part = if self.random.percent(20) { 0 } else { self.random.within(0, left) };
            left -= part;
            parts.push(part.to_string());
        }
        parts.push(left.to_string());
        parts.join("+")
    }

    fn send_messages(&mut self, holder: &Holder, length: usize) {
        let lengths = self.parts(length);
        let tag = self.tag();
        self.on(holder, format!("out sendmmsg {} {lengths} {tag} nosignal", holder.slot));
    }

    fn send_corked(&mut self, holder: &Holder, length: usize) {
        let half = length / 2;
        let tag = self.tag();
        self.last += 1;
        self.on(holder, format!("corked {} {half}+{} {tag}", holder.slot, length - half));
    }

    /// Two calls; the first one says that more follows.
    fn send_more(&mut self, holder: &Holder, length: usize) {
        let half = length / 2;
        for (part, flags) in [(half, "more+nosignal"), (length - half, "nosignal")] {
            let tag = self.tag();
            self.on(holder, format!("out send {} {part} {tag} {flags}", holder.slot));
        }
    }

    pub fn receive_some(&mut self) {
        let answers = |connection: &super::Connection, end: usize| connection.answers(end);
        let Some((connection, end)) = self.some_end_where(answers) else { return };
        for _ in 0..self.random.within(1, 2) {
            self.receive(connection, end);
        }
    }

    /// Reads what has arrived, in one call or more.
    pub fn receive_all(&mut self, connection: usize, end: usize) {
        while self.connections[connection].ends[end].unread > 0 {
            let unread = self.connections[connection].ends[end].unread;
            let length =
                if self.random.percent(80) { unread } else { self.random.within(1, unread) };
            let Some(holder) = self.some_holder(connection, end) else { return };
            self.receive_once(&holder, length, "-");
            self.end_mut((connection, end)).unread -= length;
        }
    }

    /// One call that receives, if it returns at once.
    fn receive(&mut self, connection: usize, end: usize) {
        if !self.connections[connection].answers(end) {
            return;
        }
        let Some(holder) = self.some_holder(connection, end) else { return };
        let unread = self.connections[connection].ends[end].unread;
        let length = match self.random.below(10) {
            0..4 => unread.max(1),
            4..6 => 1,
            6..8 => self.random.within(1, unread.max(1)),
            _ => unread + self.random.within(1, 5000),
        };
        // All that is asked for is there, or the end is, or the call does not wait.
        let nonblocking = self.connections[connection].ends[end].nonblocking;
        let waits_for_all =
            length <= unread || self.connections[connection].ended(end) || nonblocking;
        let flags = match self.random.below(12) {
            0..2 => "peek",
            2 => "dontwait",
            3 if waits_for_all => "waitall",
            4 if waits_for_all => "peek+waitall",
            5 => "trunc",
            6 => "dontwait+peek",
            _ => "-",
        };
        let sends_flags = self.receive_once(&holder, length, flags);
        if !(sends_flags && flags.contains("peek")) {
            let end = self.end_mut((connection, end));
            end.unread = unread - length.min(unread);
        }
    }

    /// Whether the call took the flags.
    fn receive_once(&mut self, holder: &Holder, length: usize, flags: &str) -> bool {
        let form = match self.random.below(60) {
            // More may come in two calls.
            0 if length <= 16_000 => "splice",
            0..3 => "preadv2",
            3 => "read_chk",
            4 => "recv_chk",
            5..7 if flags == "-" => return self.receive_messages(holder, length),
            7..13 => "readv",
            13..20 => "recvmsg",
            20..23 => "recvfrom",
            23..40 => "recv",
            _ => "read",
        };
        let takes_flags = WITH_FLAGS.contains(&form);
        let form = if flags == "-" || takes_flags { form } else { "recv" };
        let lengths = match form {
            "readv" | "recvmsg" | "preadv2" => self.parts(length),
            _ => length.to_string(),
        };
        self.on(holder, format!("in {form} {} {lengths} {flags}", holder.slot));
        true
    }

    fn receive_messages(&mut self, holder: &Holder, length: usize) -> bool {
        // An empty message would wait for bytes.
        let first = self.random.within(1, length);
        let rest = length - first;
        let lengths = if rest == 0 { first.to_string() } else { format!("{first}+{rest}") };
        self.on(holder, format!("in recvmmsg {} {lengths} waitforone", holder.slot));
        true
    }

    /// Calls that find nothing, and must not wait.
    pub fn receive_nothing(&mut self) {
        let nothing = |connection: &super::Connection, end: usize| {
            connection.ends[end].unread == 0 && !connection.reset
        };
        let Some(end) = self.some_end_where(nothing) else { return };
        let holder = self.holder(end);
        let flags = self.random.pick(&["dontwait", "dontwait+peek", "dontwait+waitall"]);
        let form = self.random.pick(&["recv", "recvmsg", "recvfrom", "recvmmsg", "recv_chk"]);
        let length = self.size();
        self.on(&holder, format!("in {form} {} {length} {flags}", holder.slot));
        // SYS V: a read of nothing returns at once.
        self.on(&holder, format!("in read {} 0 -", holder.slot));
    }
}
