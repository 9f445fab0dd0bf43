//! A client's connection: what was received and is not handled yet, and what was not sent yet.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use levada_ring::wire::{LENGTH, Response, WAKING};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::liveness::Kernel;
use crate::packet::{NoPacket, receive, send};
use crate::request::{Hello, Received};

/// Responses that wait until the client reads. More are dropped; those with descriptors, which this
/// process has open until they are sent, at half of it.
const QUEUE: usize = 4096;
/// Requests that are read at a time, before it is the turn of another client.
pub const BATCH: usize = 64;
/// Runs that one connection watches.
const WATCHES: usize = 64;

/// A message, and descriptors that other messages may carry, too.
pub struct Outgoing {
    bytes: [u8; LENGTH],
    descriptors: Vec<Arc<OwnedFd>>,
}

impl Outgoing {
    /// A response with its descriptors.
    pub fn new(response: Response, descriptors: Vec<Arc<OwnedFd>>) -> Self {
        Self { bytes: response.encode(), descriptors }
    }
}

/// What a process shows, and how it is woken.
pub struct Process {
    /// What it shows.
    pub shown: Shown,
    /// What wakes it, for its peers.
    pub waking: [Arc<OwnedFd>; WAKING],
}

/// What a process shows of its connections.
#[derive(Clone)]
pub struct Shown {
    /// As in [`Request::Hello`](levada_ring::wire::Request::Hello).
    pub run: u64,
    /// As in [`Request::Hello`](levada_ring::wire::Request::Hello).
    pub pid: u32,
    /// The file of its records.
    pub records: Arc<OwnedFd>,
    /// Which file that is: processes share one after a fork.
    pub inode: (u64, u64),
}

/// A client.
pub struct Connection {
    socket: OwnedFd,
    /// Checked requests, in the order in which they came.
    pub inbox: VecDeque<Received>,
    /// No more requests will come: the client has closed the connection, or broke the protocol.
    pub ended: bool,
    outbox: VecDeque<Outgoing>,
    /// Whether epoll reports when there is room for a response.
    pub awaits_room: bool,
    /// `None` until it has introduced itself.
    pub process: Option<Process>,
    /// The first of the clients that have added it, one for the other; `None` if it has connected
    /// itself.
    pub adopted_by: Option<u32>,
    /// The runs whose records it keeps.
    pub watches: HashSet<u64>,
}

impl Connection {
    /// A connection that nothing was received from.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            inbox: VecDeque::new(),
            ended: false,
            outbox: VecDeque::new(),
            awaits_room: false,
            process: None,
            adopted_by: None,
            watches: HashSet::new(),
        }
    }

    /// Reads at most `limit` requests. Returns whether more may be there.
    pub fn read(&mut self, kernel: &Kernel, limit: usize) -> bool {
        for _ in 0..limit {
            if self.ended {
                return false;
            }
            match receive(&self.socket, RecvFlags::DONTWAIT) {
                Ok(packet) => match Received::read(packet, kernel) {
                    Some(request) => self.inbox.push_back(request),
                    None => self.ended = true,
                },
                Err(NoPacket::Yet) => return false,
                Err(NoPacket::Ever) => self.ended = true,
            }
        }
        !self.ended
    }

    /// Sends a message, after those that wait. `false` if it is dropped: the client does not read,
    /// or no more descriptors can be on their way.
    pub fn respond(&mut self, message: Outgoing) -> bool {
        if self.outbox.is_empty() {
            match self.send(&message) {
                Ok(()) => return true,
                Err(Errno::AGAIN) => {}
                Err(_) => return false,
            }
        }
        let limit = if message.descriptors.is_empty() { QUEUE } else { QUEUE / 2 };
        if self.outbox.len() >= limit {
            return false;
        }
        self.outbox.push_back(message);
        true
    }

    /// Sends messages, after those that wait, however many there are. `false`, and nothing is sent,
    /// if an earlier answer waits still.
    pub fn respond_with_list(&mut self, messages: impl Iterator<Item = Outgoing>) -> bool {
        if self.is_waiting() {
            return false;
        }
        self.outbox.extend(messages);
        self.flush();
        true
    }

    /// Sends what waits, as far as there is room.
    pub fn flush(&mut self) {
        while let Some(message) = self.outbox.pop_front() {
            if self.send(&message) == Err(Errno::AGAIN) {
                self.outbox.push_front(message);
                return;
            }
        }
    }

    /// Whether a response waits for room.
    pub fn is_waiting(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Notes a run whose records are to be kept. `false` if there are too many.
    pub fn watch(&mut self, run: u64) -> bool {
        self.watches.insert(run);
        self.watches.len() <= WATCHES
    }

    fn send(&self, message: &Outgoing) -> Result<(), Errno> {
        let descriptors: Vec<_> = message.descriptors.iter().map(|one| one.as_fd()).collect();
        send(&self.socket, &message.bytes, &descriptors, SendFlags::DONTWAIT)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl TryFrom<Hello> for Process {
    type Error = Errno;

    fn try_from(hello: Hello) -> Result<Self, Errno> {
        let file = rustix::fs::fstat(&hello.records)?;
        let Hello { run, pid, records, waking } = hello;
        let shown =
            Shown { run, pid, records: Arc::new(records), inode: (file.st_dev, file.st_ino) };
        Ok(Self { shown, waking: waking.map(Arc::new) })
    }
}
