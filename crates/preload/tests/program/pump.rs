//! Many bytes in both directions at once. Every received byte is compared with what the other end
//! sends.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::thread;

use crate::call::{Errno, Reply, call};
use crate::pattern;
use crate::send::vectors;
use crate::state::{State, Words};

/// How long an end waits for the other, in milliseconds.
const STALL: c_int = 20_000;

pub fn run(state: &State, verb: &str, words: &mut Words) -> Reply {
    let socket = words.descriptor(state);
    match verb {
        "pump" => pump(socket, words),
        "fill" => fill(socket, words.number()),
        _ => swallow(socket, words),
    }
}

/// Random sizes, from a seed.
struct Sizes(u64);

impl Sizes {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    /// Mostly from 256 bytes to 128 KiB, sometimes a few bytes.
    fn next(&mut self) -> usize {
        if self.below(64) == 0 {
            return 1 + self.below(8) as usize;
        }
        let power = 256 << self.below(10);
        (power / 2 + self.below(power)) as usize
    }
}

/// One direction: what is left, and where its stream is.
struct Direction {
    tag: u64,
    position: u64,
    length: u64,
    sizes: Sizes,
}

impl Direction {
    fn new(tag: u64, length: u64, seed: u64) -> Self {
        Self { tag, position: 0, length, sizes: Sizes(seed ^ tag) }
    }

    fn done(&self) -> bool {
        self.position == self.length
    }

    fn next(&mut self) -> usize {
        (self.sizes.next() as u64).min(self.length - self.position) as usize
    }

    /// One call that sends.
    fn send(&mut self, socket: RawFd) -> Result<(), Errno> {
        let length = self.next();
        let bytes = pattern::bytes(self.tag, self.position, length);
        let data = bytes.as_ptr().cast();
        let sent = match self.sizes.below(3) {
            0 => call!(libc::write: socket, data, length),
            1 => call!(libc::send: socket, data, length, libc::MSG_NOSIGNAL),
            _ => {
                let data = bytes.as_ptr().cast_mut();
                let half = vectors(data, &[length / 2, length - length / 2]);
                call!(libc::writev: socket, half.as_ptr(), 2)
            }
        }?;
        self.position += sent as u64;
        Ok(())
    }

    /// One call that receives, and compares. The end of the stream is an error here.
    fn receive(&mut self, socket: RawFd) -> Result<(), Errno> {
        let mut buffer = vec![0u8; self.next()];
        let data = buffer.as_mut_ptr().cast();
        let length = buffer.len();
        let received = match self.sizes.below(3) {
            0 => call!(libc::read: socket, data, length),
            1 => call!(libc::recv: socket, data, length, 0),
            _ => {
                let half = vectors(buffer.as_mut_ptr(), &[length / 2, length - length / 2]);
                call!(libc::readv: socket, half.as_ptr(), 2)
            }
        }?;
        if received == 0 {
            return Err(Errno(libc::ENODATA));
        }
        self.compare(&buffer[..received]);
        Ok(())
    }

    fn compare(&mut self, bytes: &[u8]) {
        let expected = pattern::bytes(self.tag, self.position, bytes.len());
        if bytes != expected {
            let at = bytes.iter().zip(expected).position(|(byte, expected)| byte != expected);
            panic!("byte {} differs from what was sent", self.position + at.unwrap() as u64);
        }
        self.position += bytes.len() as u64;
    }
}

/// `pump SLOT WAY SEND TAG RECEIVE TAG SEED`
fn pump(socket: RawFd, words: &mut Words) -> Reply {
    let way = words.text();
    let out = words.number();
    let out_tag = words.number();
    let back = words.number();
    let back_tag = words.number();
    let seed = words.number();
    let mut send = Direction::new(out_tag, out, seed);
    let mut receive = Direction::new(back_tag, back, seed.rotate_left(17));
    match way {
        "threads" => {
            thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    while !send.done() {
                        send.send(socket)?;
                    }
                    Ok::<_, Errno>(())
                });
                while !receive.done() {
                    receive.receive(socket)?;
                }
                sender.join().unwrap()
            })?;
        }
        _ => nonblocking(socket, way, &mut send, &mut receive)?,
    }
    Ok(format!("{} {}", send.position, receive.position))
}

fn nonblocking(
    socket: RawFd,
    way: &str,
    send: &mut Direction,
    receive: &mut Direction,
) -> Result<(), Errno> {
    let bits = call!(libc::fcntl: socket, libc::F_GETFL)? as c_int;
    call!(libc::fcntl: socket, libc::F_SETFL, bits | libc::O_NONBLOCK)?;
    let waiter = Waiter::new(way, socket)?;
    let edges = way == "epoll-et";
    // Edges are reported once: without an event, each direction starts with a call.
    let mut ready = (edges, edges);
    while !(send.done() && receive.done()) {
        if ready.0 && !receive.done() {
            ready.0 = moved(receive.receive(socket))? && edges;
        }
        if ready.1 && !send.done() {
            ready.1 = moved(send.send(socket))? && edges;
        }
        let busy = ready.0 && !receive.done() || ready.1 && !send.done();
        let over = send.done() && receive.done();
        if !busy && !over {
            let (readable, writable) = waiter.wait(!receive.done(), !send.done())?;
            ready = (ready.0 || readable, ready.1 || writable);
        }
    }
    waiter.end();
    call!(libc::fcntl: socket, libc::F_SETFL, bits)?;
    Ok(())
}

/// Whether a call moved bytes; if not, the direction has to wait.
fn moved(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno(libc::EAGAIN)) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Waits for one socket.
struct Waiter {
    socket: RawFd,
    /// With `epoll`: the instance, and whether it reports edges.
    epoll: Option<(RawFd, bool)>,
    select: bool,
}

impl Waiter {
    fn new(way: &str, socket: RawFd) -> Result<Self, Errno> {
        let mut waiter = Self { socket, epoll: None, select: way == "select" };
        if way.starts_with("epoll") {
            let epoll = call!(libc::epoll_create1: libc::EPOLL_CLOEXEC)? as RawFd;
            let edges = way == "epoll-et";
            let events = if edges { libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET } else { 0 };
            let mut event = libc::epoll_event { events: events as u32, u64: 0 };
            call!(libc::epoll_ctl: epoll, libc::EPOLL_CTL_ADD, socket, &raw mut event)?;
            waiter.epoll = Some((epoll, edges));
        }
        Ok(waiter)
    }

    /// Whether the socket is readable and writable.
    fn wait(&self, read: bool, write: bool) -> Result<(bool, bool), Errno> {
        let reads = if read { libc::POLLIN } else { 0 };
        let events = reads | if write { libc::POLLOUT } else { 0 };
        let reported = match self.epoll {
            Some((epoll, edges)) => self.wait_epoll(epoll, edges, events)?,
            None if self.select => self.wait_select(read, write)?,
            None => {
                let mut entry = libc::pollfd { fd: self.socket, events, revents: 0 };
                stalled(call!(libc::poll: &raw mut entry, 1, STALL)?)?;
                entry.revents
            }
        };
        let broken = libc::POLLERR | libc::POLLHUP;
        Ok((reported & (libc::POLLIN | broken) != 0, reported & (libc::POLLOUT | broken) != 0))
    }

    fn wait_epoll(&self, epoll: RawFd, edges: bool, events: i16) -> Result<i16, Errno> {
        let mut event = libc::epoll_event { events: events as u32, u64: 0 };
        if !edges {
            let change = libc::EPOLL_CTL_MOD;
            call!(libc::epoll_ctl: epoll, change, self.socket, &raw mut event)?;
        }
        stalled(call!(libc::epoll_wait: epoll, &raw mut event, 1, STALL)?)?;
        // The low bits are those of `poll`.
        Ok(event.events as i16)
    }

    fn wait_select(&self, read: bool, write: bool) -> Result<i16, Errno> {
        // SAFETY: zero is the empty set.
        let mut sets: [libc::fd_set; 2] = unsafe { std::mem::zeroed() };
        for (set, wanted) in sets.iter_mut().zip([read, write]) {
            if wanted {
                // SAFETY: the set lives, and the descriptor of a step is small.
                unsafe { libc::FD_SET(self.socket, set) };
            }
        }
        let [reads, writes] = sets.each_mut().map(|set| &raw mut *set);
        let mut time = libc::timeval { tv_sec: i64::from(STALL / 1000), tv_usec: 0 };
        let none = std::ptr::null_mut();
        stalled(call!(libc::select: self.socket + 1, reads, writes, none, &raw mut time)?)?;
        // SAFETY: the sets live, and the descriptor of a step is small.
        let has = |set: &libc::fd_set| unsafe { libc::FD_ISSET(self.socket, set) };
        let readable = if has(&sets[0]) { libc::POLLIN } else { 0 };
        Ok(readable | if has(&sets[1]) { libc::POLLOUT } else { 0 })
    }

    fn end(self) {
        if let Some((epoll, _)) = self.epoll {
            let _ = call!(libc::close: epoll);
        }
    }
}

/// Waiting ended without an event.
fn stalled(ready: usize) -> Result<(), Errno> {
    if ready == 0 { Err(Errno(libc::ETIMEDOUT)) } else { Ok(()) }
}

/// `fill SLOT TAG`: sends without blocking until not even a byte fits, for some time. How much fits
/// is not compared.
fn fill(socket: RawFd, tag: u64) -> Reply {
    let mut position = 0;
    let mut length = 1 << 16;
    let mut rounds = 0;
    while rounds < 4 {
        let data = pattern::bytes(tag, position, length).as_ptr().cast();
        match call!(libc::send: socket, data, length, libc::MSG_DONTWAIT) {
            Ok(sent) => {
                position += sent as u64;
                rounds = 0;
            }
            Err(Errno(libc::EAGAIN)) if length > 1 => length /= 2,
            // The kernel may find some space when it merges buffers, or probes the other end.
            Err(Errno(libc::EAGAIN)) => {
                let mut entry = libc::pollfd { fd: socket, events: libc::POLLOUT, revents: 0 };
                call!(libc::poll: &raw mut entry, 1, 60)?;
                rounds += 1;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(format!("~{tag}={position}"))
}

/// `swallow SLOT TAG FROM LENGTH|end`: receives and compares, to the end of the stream or this many
/// bytes.
fn swallow(socket: RawFd, words: &mut Words) -> Reply {
    let tag = words.number();
    let from: u64 = words.number();
    let length = words.text().parse().unwrap_or(u64::MAX);
    let mut direction =
        Direction { position: from, ..Direction::new(tag, from + length.min(1 << 40), tag) };
    let result = loop {
        if direction.done() {
            break Ok(());
        }
        match direction.receive(socket) {
            Ok(()) => {}
            Err(Errno(libc::ENODATA)) if length == u64::MAX => {
                return Ok(format!("~{tag}={} end", direction.position));
            }
            Err(errno) => break Err(errno),
        }
    };
    result?;
    Ok(direction.position.to_string())
}
