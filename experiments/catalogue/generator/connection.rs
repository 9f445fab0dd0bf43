//! One connection: asks, and takes what comes.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::answer::Head;
use super::{Expect, Fault};

/// The head of an answer has at most so many bytes.
const HEAD: usize = 16 * 1024;

/// A TCP connection to a server, and where it is in its exchange.
pub struct Connection {
    socket: OwnedFd,
    stage: Stage,
    /// Of the request, what the kernel has not taken.
    unsent: Vec<u8>,
    /// Of the head, what came without the rest.
    partial: Vec<u8>,
    /// The server is about to close, or has closed.
    last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was asked.
    Idle,
    /// Asked; the head is not complete.
    Head,
    /// So many bytes of the body are to come.
    Body(u64),
    /// Nothing more will be asked: the server is to close.
    Ending,
}

/// How far a connection got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More must come.
    Waiting,
    /// The answer is complete; another may be asked for.
    Answered,
    /// The answer is complete; the server is going to close.
    AnsweredLast,
    /// The server has closed when it should.
    Ended,
}

impl Connection {
    /// Begins to connect. Events of the connection bear `token`.
    ///
    /// # Errors
    /// The system's, `EADDRNOTAVAIL` or `EMFILE` for instance.
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
        let (unsent, partial) = (Vec::new(), Vec::new());
        Ok(Self { socket, stage: Stage::Idle, unsent, partial, last: false })
    }

    /// Sends a request, or as much of it as can be sent now.
    ///
    /// # Errors
    /// [`Fault`] if the connection is gone.
    pub fn ask(&mut self, request: &[u8]) -> Result<(), Fault> {
        self.stage = Stage::Head;
        self.unsent.extend_from_slice(request);
        self.flush()
    }

    /// Whether it can be used for another request.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle && !self.last
    }

    /// Something has happened: takes what there is, up to the end of an answer.
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
            let silent = matches!(self.stage, Stage::Idle | Stage::Ending);
            match self.take(buffer, expect)? {
                None => return Ok(Step::Waiting),
                Some(0) if silent => return Ok(Step::Ended),
                Some(0) => return Err(Fault::Cut),
                Some(_) if silent => return Err(Fault::Wrong),
                Some(_) => {}
            }
            if self.stage == Stage::Body(0) {
                return Ok(self.answered());
            }
        }
    }

    fn answered(&mut self) -> Step {
        self.stage = if self.last { Stage::Ending } else { Stage::Idle };
        if self.last { Step::AnsweredLast } else { Step::Answered }
    }

    /// Takes bytes once; None if there are none, 0 at the end.
    fn take(&mut self, buffer: &mut [u8], expect: Expect) -> Result<Option<usize>, Fault> {
        if let Stage::Body(left) = self.stage {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            // The kernel drops them: a copy to this thread would only make the generator slower.
            let taken = received(&self.socket, &mut buffer[..most], RecvFlags::TRUNC)?;
            self.stage = Stage::Body(left - taken.unwrap_or(0) as u64);
            return Ok(taken);
        }
        let held = self.partial.len();
        buffer[..held].copy_from_slice(&self.partial);
        let Some(taken) = received(&self.socket, &mut buffer[held..HEAD], RecvFlags::empty())?
        else {
            return Ok(None);
        };
        if self.stage == Stage::Head && taken > 0 {
            self.head(&buffer[..held + taken], expect)?;
        }
        Ok(Some(taken))
    }

    /// These bytes came since the request.
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
        self.stage = Stage::Body(head.length - body);
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
