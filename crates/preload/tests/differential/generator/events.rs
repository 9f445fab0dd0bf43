//! Urgent data, streams of stdio, threads, and some more bytes than a buffer takes.

use super::Generator;
use super::model::Connection;

/// Both directions are empty, and calls may wait.
fn is_idle(connection: &Connection, _: usize) -> bool {
    let idle = |end: &super::model::End| end.unread == 0 && !end.nonblocking && !end.times_out;
    connection.is_whole() && connection.ends.iter().all(idle)
}

impl Generator {
    /// `MSG_OOB`: a byte beside the stream, at a mark in it.
    pub fn send_urgent(&mut self) {
        let Some(end) = self.some_end_where(is_idle) else { return };
        let reader = self.holder(end);
        let writer = self.holder((end.0, 1 - end.1));
        let before = self.random.within(1, 300);
        let after = self.random.within(1, 300);
        let tag = self.tag();
        self.on(&writer, format!("out send {} {before} {tag} -", writer.slot));
        self.on(&writer, format!("out send {} 1 {tag} oob", writer.slot));
        self.on(&writer, format!("out send {} {after} {tag} -", writer.slot));
        let form = self.poll_form();
        self.on(&reader, format!("poll {form} 0 {}=in+pri", reader.slot));
        self.on(&reader, format!("in recv {} 1000 -", reader.slot));
        self.on(&reader, format!("mark {}", reader.slot));
        self.on(&reader, format!("in recv {} 1 oob", reader.slot));
        self.on(&reader, format!("in recv {} 1000 -", reader.slot));
        self.on(&reader, format!("in recv {} 1 oob", reader.slot));
    }

    /// A duplicate as a stream of stdio; the first descriptor stays.
    pub fn use_stdio(&mut self) {
        let Some(end) = self.some_end_where(is_idle) else { return };
        let one = self.holder(end);
        let other = self.holder((end.0, 1 - end.1));
        let slot = self.name("d");
        let stream = self.name("f");
        self.on(&one, format!("dup {} {slot} dup", one.slot));
        self.on(&one, format!("fdopen {stream} {slot}"));
        let line = format!("line{}", self.last);
        self.on(&one, format!("fputs {stream} {line}"));
        self.on(&one, format!("fflush {stream}"));
        self.on(&other, format!("in recv {} {} waitall", other.slot, line.len() + 1));
        self.on(&other, format!("dprintf {} {line}", other.slot));
        self.on(&one, format!("fgets {stream}"));
        let length = self.random.within(1, 3000);
        let tag = self.tag();
        self.on(&one, format!("fwrite {stream} {length} {tag}"));
        self.on(&other, format!("in read {} {length} -", other.slot));
        self.on(&one, format!("fclose {stream}"));
    }

    /// One thread sends and one receives, on both ends.
    pub fn use_threads(&mut self) {
        let Some(end) = self.some_end_where(is_idle) else { return };
        self.transfer(end, 1, 60_000, &["threads"]);
    }

    pub fn transfer_some(&mut self) {
        let Some(end) = self.some_end_where(is_idle) else { return };
        self.transfer(end, 1, 300_000, &["threads", "poll", "select", "epoll", "epoll-et"]);
    }

    pub fn transfer_much(&mut self) {
        let Some(end) = self.some_end_where(is_idle) else { return };
        self.transfer(end, 1 << 20, 8 << 20, &["threads", "poll", "select", "epoll", "epoll-et"]);
    }

    /// Random bytes in both directions at once; only their content is compared.
    fn transfer(&mut self, end: (usize, usize), least: usize, most: usize, ways: &[&str]) {
        let Some((one, other)) = self.apart(end) else { return };
        let lengths = [self.random.within(least, most), self.random.within(least, most)];
        let tags = [self.tag(), self.tag()];
        for (number, holder) in [one.clone(), other.clone()].iter().enumerate() {
            let out = number;
            let back = 1 - number;
            let way = self.random.pick(ways);
            let seed = self.random.below(1 << 30);
            let line = format!(
                "start pump {} {way} {} {} {} {} {seed}",
                holder.slot, lengths[out], tags[out], lengths[back], tags[back]
            );
            self.on(holder, line);
        }
        self.on(&one, "finish");
        self.on(&other, "finish");
    }
}
