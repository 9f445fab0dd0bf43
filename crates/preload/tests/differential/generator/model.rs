//! What is known of each connection before a step.

use super::Generator;

/// A slot of a process that refers to an end.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    pub process: String,
    pub slot: String,
    /// The slot is closed by `exec`.
    pub close_on_exec: bool,
}

/// One end of a connection.
#[derive(Debug, Default)]
pub struct End {
    pub holders: Vec<Holder>,
    pub nonblocking: bool,
    /// Calls that receive wait for a bounded time.
    pub times_out: bool,
    pub shut_read: bool,
    pub shut_write: bool,
    /// Bytes that have arrived and were not read.
    pub unread: usize,
    /// The last holder was closed.
    pub closed: bool,
}

#[derive(Debug)]
pub struct Connection {
    /// The one that connected, and the one that was accepted.
    pub ends: [End; 2],
    /// One end has reset the connection: no call blocks any more.
    pub reset: bool,
}

/// An epoll instance of one process, with the slots in it.
pub struct Epoll {
    pub process: String,
    pub slot: String,
    /// Other slots of the same instance.
    pub duplicates: Vec<String>,
    pub members: Vec<String>,
    /// Another instance is in it.
    pub outer: bool,
    /// A slot was registered with EPOLLET.
    pub edges: bool,
}

impl Connection {
    /// The other end sends no more.
    pub fn ended(&self, end: usize) -> bool {
        let peer = &self.ends[1 - end];
        self.reset || peer.shut_write || peer.closed
    }

    /// Both ends are open, and every call works.
    pub fn is_whole(&self) -> bool {
        !self.reset && self.ends.iter().all(|end| !end.closed && !end.shut_read && !end.shut_write)
    }

    /// A call that receives returns without another step.
    pub fn answers(&self, end: usize) -> bool {
        let this = &self.ends[end];
        this.unread > 0 || self.ended(end) || this.shut_read || this.nonblocking || this.times_out
    }

    /// How many bytes an end can send now.
    pub fn space(&self, end: usize) -> usize {
        super::MOST_UNREAD.saturating_sub(self.ends[1 - end].unread)
    }
}

impl Generator {
    /// A connection with an end that is open, and that end.
    pub fn some_end(&mut self) -> Option<(usize, usize)> {
        self.some_end_where(|_, _| true)
    }

    /// One of the open ends that have a property.
    pub fn some_end_where(
        &mut self,
        has: impl Fn(&Connection, usize) -> bool,
    ) -> Option<(usize, usize)> {
        let mut all = Vec::new();
        for (number, connection) in self.connections.iter().enumerate() {
            for end in 0..2 {
                let open = !connection.ends[end].holders.is_empty();
                if open && has(connection, end) {
                    all.push((number, end));
                }
            }
        }
        if all.is_empty() { None } else { Some(all[self.random.below(all.len())]) }
    }

    /// One of the slots of an end; none if it is closed.
    pub fn some_holder(&mut self, connection: usize, end: usize) -> Option<Holder> {
        let holders = &self.connections[connection].ends[end].holders;
        let count = holders.len();
        (count > 0).then(|| holders[self.random.below(count)].clone())
    }

    pub fn holder(&mut self, (connection, end): (usize, usize)) -> Holder {
        self.some_holder(connection, end).expect("the end is open")
    }

    /// A slot of this end, and one of the other end in another process.
    pub fn apart(&mut self, (connection, end): (usize, usize)) -> Option<(Holder, Holder)> {
        let one = self.some_holder(connection, end)?;
        let other = self.some_holder(connection, 1 - end)?;
        (one.process != other.process).then_some((one, other))
    }

    pub fn end_mut(&mut self, (connection, end): (usize, usize)) -> &mut End {
        &mut self.connections[connection].ends[end]
    }

    /// The slots of connections that a process has, with the number of their connection.
    pub fn slots_of(&self, process: &str) -> Vec<String> {
        let ends = self.connections.iter().flat_map(|connection| &connection.ends);
        let holders = ends.flat_map(|end| &end.holders);
        let own = holders.filter(|holder| holder.process == process);
        own.map(|holder| holder.slot.clone()).collect()
    }

    /// Returns true if the peer of this slot sends no more.
    pub fn has_ended(&self, process: &str, slot: &str) -> bool {
        let is_it = |holder: &Holder| holder.process == process && holder.slot == slot;
        self.connections.iter().any(|connection| {
            (0..2)
                .any(|end| connection.ended(end) && connection.ends[end].holders.iter().any(is_it))
        })
    }

    /// Whether bytes have arrived for a process that it has not read.
    pub fn has_unread(&self, process: &str) -> bool {
        let ends = self.connections.iter().flat_map(|connection| &connection.ends);
        let of_it = |end: &End| end.holders.iter().any(|holder| holder.process == process);
        ends.filter(|end| of_it(end)).any(|end| end.unread > 0)
    }

    /// An end loses holders; without any, it is closed: with unread bytes, that resets the
    /// connection.
    pub fn lose(&mut self, lost: impl Fn(&Holder) -> bool) {
        for connection in &mut self.connections {
            for end in &mut connection.ends {
                let before = end.holders.len();
                end.holders.retain(|holder| !lost(holder));
                if before > 0 && end.holders.is_empty() {
                    end.closed = true;
                    connection.reset |= end.unread > 0;
                }
            }
        }
        for epoll in &mut self.epolls {
            let process = &epoll.process;
            epoll.members.retain(|slot| {
                let close_on_exec = false;
                let holder = Holder { process: process.clone(), slot: slot.clone(), close_on_exec };
                !lost(&holder)
            });
        }
    }
}
