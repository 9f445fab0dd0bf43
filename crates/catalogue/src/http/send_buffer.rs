//! What is on its way to a client.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::fs::sendfile;
use rustix::net::sockopt::set_tcp_cork;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use tokio::io::AsyncWrite;

use super::response::Body;

/// Parts up to this length are copied behind the head, so that several answers are one piece of memory.
const COPIED: usize = 16 * 1024;
/// So much is written before others have their turn, in bytes.
const TURN: u64 = 2 * 1024 * 1024;
/// Memory that is there from the beginning, and that is kept for the next answers.
const FIRST: usize = 2 * 1024;
const KEPT: usize = 16 * 1024;

/// Heads and short bodies, and behind them at most one long body.
pub(super) struct Outgoing {
    text: Vec<u8>,
    sent: usize,
    body: Body,
    /// The kernel sends nothing but full packets for the moment.
    corked: bool,
    /// Nothing follows: the connection is closed when all is sent.
    pub last: bool,
    /// How much was sent in all.
    pub total: u64,
}

impl Outgoing {
    pub fn new() -> Self {
        Self {
            text: Vec::with_capacity(FIRST),
            sent: 0,
            body: Body::empty(),
            corked: false,
            last: false,
            total: 0,
        }
    }

    /// Where heads are written to.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// How many bytes wait, a long body aside.
    pub fn waiting(&self) -> usize {
        self.text.len() - self.sent
    }

    /// Adds the body of what was written last. Whether it is long, so that nothing may follow before it is sent.
    pub fn add(&mut self, body: Body) -> bool {
        match body {
            Body::Whole(bytes) if bytes.len() <= COPIED => {
                self.text.extend_from_slice(&bytes);
                false
            }
            Body::Parts(parts) if parts.iter().map(Bytes::len).sum::<usize>() <= COPIED => {
                parts.iter().for_each(|part| self.text.extend_from_slice(part));
                false
            }
            Body::Events(_) => false,
            long => {
                self.body = long;
                true
            }
        }
    }

    /// Whether nothing waits.
    pub fn is_done(&self) -> bool {
        self.waiting() == 0 && self.body.length().is_none_or(|length| length == 0)
    }

    /// Writes until everything is sent (true), or others should have their turn (false).
    ///
    /// # Errors
    /// `WouldBlock` if the socket is full; or it failed.
    pub fn write_to(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let end = self.total.saturating_add(TURN);
        self.cork(socket);
        while !self.is_done() {
            if self.total >= end {
                return Ok(false);
            }
            let (sent, tried) = self.write_some(socket)?;
            self.total += sent as u64;
            self.take(sent as u64);
            // What was not taken did not fit: that is known without asking once more.
            if sent < tried {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        self.clear();
        // The end of a connection sends what is left.
        if self.corked && !self.last {
            let _ = set_tcp_cork(socket, false);
            self.corked = false;
        }
        Ok(true)
    }

    /// As [`Self::write_to`], copying everything, files too, into `stream`.
    pub fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<bool>> {
        let end = self.total.saturating_add(TURN);
        while !self.is_done() {
            if self.total >= end {
                return Poll::Ready(Ok(false));
            }
            let mut read = Vec::new();
            let piece = self.piece(&mut read)?;
            let sent = ready!(Pin::new(&mut *stream).poll_write(cx, piece))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.total += sent as u64;
            self.take(sent as u64);
        }
        self.clear();
        Poll::Ready(Ok(true))
    }

    /// What comes next: some of it, and not nothing. `read` takes what is read for that.
    fn piece<'a>(&'a self, read: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if self.waiting() > 0 {
            return Ok(&self.text[self.sent..]);
        }
        match &self.body {
            Body::File(file, from, to) => {
                let length = usize::try_from(to - from).unwrap_or(usize::MAX).min(COPIED);
                read.resize(length, 0);
                let count = file.file().read_at(read, *from)?;
                // The file is shorter than it was: the promised length cannot be kept.
                if count == 0 {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(&read[..count])
                }
            }
            Body::Whole(bytes) => Ok(bytes),
            Body::Parts(parts) => {
                Ok(parts.iter().find(|part| !part.is_empty()).map_or(&[], |part| part.as_ref()))
            }
            Body::Events(_) => Ok(&[]),
        }
    }

    /// For the next answers.
    fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(KEPT);
        self.sent = 0;
        self.body = Body::empty();
    }

    /// A file's head leaves in one packet with its beginning. The file itself leaves in pieces of 64 KiB, and what of a
    /// piece does not fill a packet would leave alone as soon as something is acknowledged: that more follows is
    /// forgotten by then, unless the socket itself knows.
    fn cork(&mut self, socket: BorrowedFd<'_>) {
        if matches!(self.body, Body::File(..)) && !self.corked {
            // Without it there are more packets.
            self.corked = set_tcp_cork(socket, true).is_ok();
        }
    }

    /// One call: how much was sent, and how much was tried.
    fn write_some(&self, socket: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
        let text = &self.text[self.sent..];
        // The kernel keeps the end of the last answer back for the moment, so that it goes out with that of the connection;
        // that of a file, too: it is corked.
        let flags =
            SendFlags::NOSIGNAL | if self.last { SendFlags::MORE } else { SendFlags::empty() };
        match &self.body {
            Body::File(file, from, to) if text.is_empty() => {
                let tried = usize::try_from((to - from).min(TURN)).unwrap_or(usize::MAX);
                let sent = sendfile(socket, file, Some(&mut { *from }), tried)?;
                // The file is shorter than it was: the promised length cannot be kept.
                if sent == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((sent, tried)) }
            }
            Body::Whole(bytes) if !bytes.is_empty() => {
                write_all(socket, [text, bytes, &[], &[]], flags)
            }
            Body::Parts(parts) => {
                let [a, b, c] = parts.as_ref();
                write_all(socket, [text, a, b, c], flags)
            }
            _ => Ok((send(socket, text, flags)?, text.len())),
        }
    }

    fn take(&mut self, sent: u64) {
        let of_text = usize::try_from(sent).unwrap_or(usize::MAX).min(self.waiting());
        self.sent += of_text;
        let mut rest = sent - of_text as u64;
        match &mut self.body {
            Body::File(_, from, to) => *from = from.saturating_add(rest).min(*to),
            Body::Whole(bytes) => take(bytes, &mut rest),
            Body::Parts(parts) => parts.iter_mut().for_each(|part| take(part, &mut rest)),
            Body::Events(_) => {}
        }
    }
}

/// One call: how much was sent, and how much was tried.
fn write_all(
    socket: BorrowedFd<'_>,
    all: [&[u8]; 4],
    flags: SendFlags,
) -> io::Result<(usize, usize)> {
    let tried = all.iter().map(|part| part.len()).sum();
    let nothing = &mut SendAncillaryBuffer::default();
    Ok((sendmsg(socket, &all.map(IoSlice::new), nothing, flags)?, tried))
}

/// Takes up to `rest` bytes off the beginning.
fn take(bytes: &mut Bytes, rest: &mut u64) {
    let taken = usize::try_from(*rest).unwrap_or(usize::MAX).min(bytes.len());
    drop(bytes.split_to(taken));
    *rest -= taken as u64;
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::thread;

    use uapi::c::{IPPROTO_TCP, TCP_CORK};

    use super::*;

    /// Sends everything while another thread reads slowly.
    fn send_all(mut outgoing: Outgoing) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let read = thread::spawn(move || {
            let mut all = Vec::new();
            let mut piece = [0; 1000];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                all.extend_from_slice(&piece[..count]);
            }
            all
        });
        let is_file = matches!(outgoing.body, Body::File(..));
        let is_corked = || is_on(&socket, TCP_CORK);
        loop {
            match outgoing.write_to(socket.as_fd()) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert_eq!(is_corked(), is_file);
                    thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(outgoing.last || !is_corked(), "the end of it would not leave");
        drop(socket);
        let all = read.join().unwrap();
        assert_eq!(outgoing.total, all.len() as u64);
        all
    }

    fn is_on(socket: &TcpStream, option: i32) -> bool {
        let mut value = 0;
        uapi::getsockopt(socket.as_raw_fd(), IPPROTO_TCP, option, &mut value).unwrap();
        value != 0
    }

    fn long(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn everything_arrives_in_order_however_it_is_stored() {
        let bytes = long(5_000_000);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        let parts = [bytes[..10].to_vec(), bytes[10..70_000].to_vec(), bytes[70_000..].to_vec()];
        let file = Arc::new(file.into());
        for (last, body) in [
            (true, Body::File(Arc::clone(&file), 0, 5_000_000)),
            (false, Body::File(file, 0, 5_000_000)),
            (false, Body::Parts(Box::new(parts.map(Bytes::from)))),
            (true, Body::Whole(bytes.clone().into())),
        ] {
            let mut outgoing = Outgoing { last, ..Outgoing::new() };
            outgoing.text().extend_from_slice(b"head");
            assert!(!outgoing.add(Body::Whole("short".into())));
            outgoing.text().extend_from_slice(b"head");
            assert!(outgoing.add(body));
            let all = send_all(outgoing);
            assert!(all.starts_with(b"headshorthead") && all[13..] == bytes);
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let (socket, _reader) = UnixStream::pair().unwrap();
        let mut outgoing = Outgoing::new();
        outgoing.add(Body::File(Arc::new(file.into()), 0, 10));
        let error = outgoing.write_to(socket.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
