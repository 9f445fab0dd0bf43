//! One HTTP connection of the generator.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::answer::Head;
use super::{Expect, Fault};

/// The longest head of an answer, in bytes.
const HEAD: usize = 16 * 1024;

/// A TCP connection to a server, and the state of its exchange.
pub struct Connection {
    socket: OwnedFd,
    state: State,
    /// The unsent rest of the request.
    unsent: Vec<u8>,
    /// The received part of an incomplete head.
    partial: Vec<u8>,
    /// Whether the server closes after this answer, or has closed.
    last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No request is pending.
    Idle,
    /// A request is pending; the head is incomplete.
    Head,
    /// The remaining length of the body, in bytes.
    Body(u64),
    /// Waiting for the server to close.
    Ending,
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The answer is incomplete.
    Waiting,
    /// The answer is complete; the connection is free.
    Answered,
    /// The answer is complete; the server will close.
    AnsweredLast,
    /// The server has closed as expected.
    Ended,
}

impl Connection {
    /// Starts to connect. Events of the connection have `token`.
    ///
    /// # Errors
    /// The operating system's, such as `EADDRNOTAVAIL` or `EMFILE`.
    pub fn open(address: SocketAddr, epoll: &OwnedFd, token: usize) -> Result<Self, Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, &socket, EventData::new_u64(token as u64), events)?;
        let unsent = Vec::new();
        let partial = Vec::new();
        Ok(Self { socket, state: State::Idle, unsent, partial, last: false })
    }

    /// Sends a request, or as much of it as the socket accepts.
    ///
    /// # Errors
    /// [`Fault`] if the connection is gone.
    pub fn send_request(&mut self, request: &[u8]) -> Result<(), Fault> {
        self.state = State::Head;
        self.unsent.extend_from_slice(request);
        self.flush()
    }

    /// Whether it can be used for another request.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle && !self.last
    }

    /// Handles events: receives up to the end of an answer.
    ///
    /// # Errors
    /// [`Fault`] if the connection is gone, or the answer is not the expected one.
    pub fn advance(
        &mut self,
        events: EventFlags,
        buffer: &mut [u8],
        expect: Expect,
    ) -> Result<Step, Fault> {
        if !self.unsent.is_empty() {
            self.flush()?;
        }
        self.last |= events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if !self.last && !events.contains(EventFlags::IN) {
            return Ok(Step::Waiting);
        }
        loop {
            let silent = matches!(self.state, State::Idle | State::Ending);
            match self.receive(buffer, expect)? {
                None => return Ok(Step::Waiting),
                Some(0) if silent => return Ok(Step::Ended),
                Some(0) => return Err(Fault::Cut),
                Some(_) if silent => return Err(Fault::Wrong),
                Some(_) => {}
            }
            if self.state == State::Body(0) {
                return Ok(self.answered());
            }
        }
    }

    fn answered(&mut self) -> Step {
        self.state = if self.last { State::Ending } else { State::Idle };
        if self.last { Step::AnsweredLast } else { Step::Answered }
    }

    /// Receives once; `None` if there is no data, 0 at the end of the stream.
    fn receive(&mut self, buffer: &mut [u8], expect: Expect) -> Result<Option<usize>, Fault> {
        if let State::Body(left) = self.state {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            // The kernel discards the body without a copy (MSG_TRUNC, tcp(7)), which keeps the
            // generator fast.
            let taken = received(&self.socket, &mut buffer[..most], RecvFlags::TRUNC)?;
            self.state = State::Body(left - taken.unwrap_or(0) as u64);
            return Ok(taken);
        }
        let held = self.partial.len();
        buffer[..held].copy_from_slice(&self.partial);
        let Some(taken) = received(&self.socket, &mut buffer[held..HEAD], RecvFlags::empty())?
        else {
            return Ok(None);
        };
        if self.state == State::Head && taken > 0 {
            self.head(&buffer[..held + taken], expect)?;
        }
        Ok(Some(taken))
    }

    /// Handles the bytes received since the request.
    fn head(&mut self, bytes: &[u8], expect: Expect) -> Result<(), Fault> {
        self.partial.clear();
        let Some(head) = Head::parse(bytes)? else {
            self.partial.extend_from_slice(bytes);
            return if bytes.len() < HEAD { Ok(()) } else { Err(Fault::Wrong) };
        };
        let body = (bytes.len() - head.bytes) as u64;
        let long = expect.length.is_some_and(|length| length != head.length);
        if head.status != expect.status || long || body > head.length {
            return Err(Fault::Wrong);
        }
        self.last |= head.last;
        self.state = State::Body(head.length - body);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        match send(&self.socket, &self.unsent, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                self.unsent.drain(..sent);
                Ok(())
            }
            // Not connected yet, or full.
            Err(Errno::AGAIN | Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn received(socket: &OwnedFd, buffer: &mut [u8], flags: RecvFlags) -> Result<Option<usize>, Fault> {
    loop {
        match recv(socket, &mut *buffer, flags) {
            Ok((_, taken)) => return Ok(Some(taken)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
