//! How a script can end: a process is killed, or dies of its own call; a connection is reset.

use super::Generator;
use super::model::Holder;

impl Generator {
    /// Ends one process that has connections. What the others find there follows.
    pub fn kill_one(&mut self) {
        let Some(end) = self.some_end() else { return };
        let process = self.holder(end).process;
        let parent =
            self.processes.iter().find(|entry| entry.name == process).unwrap().parent.clone();
        // A child of it would have its connections.
        if self.processes.iter().any(|entry| entry.parent.as_ref() == Some(&process)) {
            return;
        }
        self.drain_all(&process);
        self.call(&process, "kill");
        if let Some(parent) = parent {
            self.call(&parent, "child");
        }
        self.after_end_of(&process);
    }

    /// Before a process is killed: with unread bytes it would answer in another way, see
    /// `differences/killed_receiver`.
    fn drain_all(&mut self, process: &str) {
        for (connection, end) in self.open_ends() {
            if let Some(holder) = self.some_holder(connection, end)
                && holder.process == process
            {
                self.on(&holder, format!("drain {}", holder.slot));
            }
        }
    }

    fn after_end_of(&mut self, process: &str) {
        let before: Vec<_> = self.open_ends();
        self.lose(|holder| holder.process == process);
        self.processes.retain(|entry| entry.name != process);
        self.epolls.retain(|epoll| epoll.process != process);
        for (connection, end) in before {
            let this = &self.connections[connection];
            if this.ends[end].closed {
                // Another process learns of the end some time after it: each end waits for it
                // first.
                if let Some(peer) = self.some_holder(connection, 1 - end) {
                    self.find_end(&peer);
                }
            }
        }
    }

    fn open_ends(&self) -> Vec<(usize, usize)> {
        let ends =
            (0..self.connections.len()).flat_map(|connection| [(connection, 0), (connection, 1)]);
        ends.filter(|(connection, end)| !self.connections[*connection].ends[*end].closed).collect()
    }

    fn find_end(&mut self, peer: &Holder) {
        let slot = &peer.slot;
        self.on(peer, format!("poll poll 10000 {slot}=rdhup"));
        let form = self.poll_form();
        self.on(peer, format!("poll {form} 0 {slot}=in+out"));
        self.on(peer, format!("drain {slot}"));
        for _ in 0..self.random.below(4) {
            let tag = self.tag();
            let line = match self.random.below(4) {
                0 => format!("out send {slot} 10 {tag} nosignal"),
                1 => format!("in recv {slot} 10 -"),
                2 => format!("get {slot} error"),
                _ => format!("poll poll 0 {slot}=in+out+rdhup"),
            };
            self.on(peer, line);
        }
    }

    /// Sends after its own end of the stream, without a handler.
    pub fn die_of_sigpipe(&mut self) {
        let Some(end) = self.some_end_where(|connection, _| connection.is_whole()) else { return };
        let holder = self.holder(end);
        let has_family = |entry: &super::Process| {
            entry.name == holder.process && (entry.children > 0 || entry.parent.is_some())
        };
        if self.processes.iter().any(has_family) {
            return;
        }
        let form = self.random.pick(&["write", "send", "sendmsg", "writev"]);
        let tag = self.tag();
        self.drain_all(&holder.process);
        self.on(&holder, "handle PIPE restart");
        self.on(&holder, format!("shutdown {} wr", holder.slot));
        self.end_mut(end).shut_write = true;
        self.on(&holder, format!("out {form} {} 10 {tag} -", holder.slot));
        self.on(&holder, "count PIPE");
        self.on(&holder, format!("out send {} 10 {tag} nosignal", holder.slot));
        self.on(&holder, "count PIPE");
        self.on(&holder, "handle PIPE default");
        self.on(&holder, format!("out {form} {} 10 {tag} -", holder.slot));
        self.after_end_of(&holder.process);
    }

    /// `SO_LINGER` with no time: the close resets the connection.
    pub fn reset(&mut self) {
        let alone = |connection: &super::Connection, end: usize| {
            !connection.reset && connection.ends[end].holders.len() == 1
        };
        let Some(end) = self.some_end_where(alone) else { return };
        let holder = self.holder(end);
        self.on(&holder, format!("set {} linger 1+0", holder.slot));
        self.close(&holder);
        self.connections[end.0].reset = true;
        if let Some(peer) = self.some_holder(end.0, 1 - end.1) {
            self.find_end(&peer);
        }
    }
}
