//! The responses that a connection has still to send.

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

use super::body::Body;

/// Bodies up to this length are copied behind the head, so that several responses are one buffer;
/// in bytes.
const COPIED: usize = 16 * 1024;
/// How much is written before the task yields, in bytes.
const BUDGET: u64 = 2 * 1024 * 1024;
/// The initial capacity of the buffer, in bytes.
const INITIAL_CAPACITY: usize = 2 * 1024;
/// The maximum capacity that is kept for the next responses, in bytes.
const MAX_KEPT_CAPACITY: usize = 16 * 1024;

/// Heads and short bodies, followed by at most one long body.
pub(super) struct SendBuffer {
    text: Vec<u8>,
    sent: usize,
    body: Body,
    /// `TCP_CORK` is set: the kernel sends full packets only.
    corked: bool,
    /// No response follows: the connection is closed when everything is sent.
    pub last: bool,
    /// How much the connection has sent, in bytes.
    pub total: u64,
}

impl SendBuffer {
    pub fn new() -> Self {
        Self {
            text: Vec::with_capacity(INITIAL_CAPACITY),
            sent: 0,
            body: Body::empty(),
            corked: false,
            last: false,
            total: 0,
        }
    }

    /// The buffer that heads are written to.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// How many bytes are pending, not counting a long body.
    pub fn pending(&self) -> usize {
        self.text.len() - self.sent
    }

    /// Adds the body of the head that was written last. True if it is long: nothing may be added
    /// before it is sent.
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

    /// Whether everything is sent.
    pub fn is_done(&self) -> bool {
        self.pending() == 0 && self.body.length().is_none_or(|length| length == 0)
    }

    /// Writes until everything is sent (true) or [`BUDGET`] is used up (false).
    ///
    /// # Errors
    /// `WouldBlock` if the send buffer of the socket is full; or the socket failed.
    pub fn write_to(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let end = self.total.saturating_add(BUDGET);
        self.cork(socket);
        while !self.is_done() {
            if self.total >= end {
                return Ok(false);
            }
            let (sent, tried) = self.write_some(socket)?;
            self.total += sent as u64;
            self.advance(sent as u64);
            // A partial write means that the socket is full; another call would only return EAGAIN.
            if sent < tried {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        self.clear();
        // Before a shutdown the cork may stay: the shutdown sends the rest.
        if self.corked && !self.last {
            let _ = set_tcp_cork(socket, false);
            self.corked = false;
        }
        Ok(true)
    }

    /// As [`Self::write_to`] for `stream`; files are read and copied.
    pub fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<bool>> {
        let end = self.total.saturating_add(BUDGET);
        while !self.is_done() {
            if self.total >= end {
                return Poll::Ready(Ok(false));
            }
            let mut file_bytes = Vec::new();
            let next = self.next_bytes(&mut file_bytes)?;
            let sent = ready!(Pin::new(&mut *stream).poll_write(cx, next))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.total += sent as u64;
            self.advance(sent as u64);
        }
        self.clear();
        Poll::Ready(Ok(true))
    }

    /// The next bytes to send, at least one. Bytes of a file are read into `file_bytes`.
    fn next_bytes<'a>(&'a self, file_bytes: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if self.pending() > 0 {
            return Ok(&self.text[self.sent..]);
        }
        match &self.body {
            Body::File(file, from, to) => {
                let length = usize::try_from(to - from).unwrap_or(usize::MAX).min(COPIED);
                file_bytes.resize(length, 0);
                let count = file.file().read_at(file_bytes, *from)?;
                // The file was truncated: it is shorter than the Content-Length that was sent.
                if count == 0 {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(&file_bytes[..count])
                }
            }
            Body::Whole(bytes) => Ok(bytes),
            Body::Parts(parts) => {
                Ok(parts.iter().find(|part| !part.is_empty()).map_or(&[], |part| part.as_ref()))
            }
            Body::Events(_) => Ok(&[]),
        }
    }

    /// Empties the buffer for the next responses.
    fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(MAX_KEPT_CAPACITY);
        self.sent = 0;
        self.body = Body::empty();
    }

    /// Sets `TCP_CORK` while a file is sent, so that head and file share packets. `sendfile` works
    /// in pieces of 64 KiB; without the cork, the rest of a piece that does not fill a packet is
    /// sent as a short one.
    fn cork(&mut self, socket: BorrowedFd<'_>) {
        if matches!(self.body, Body::File(..)) && !self.corked {
            // If it fails, more packets are sent.
            self.corked = set_tcp_cork(socket, true).is_ok();
        }
    }

    /// Makes one system call: how many bytes were sent, and how many were offered.
    fn write_some(&self, socket: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
        let text = &self.text[self.sent..];
        // The kernel holds back the end of the last response, so that one packet carries it and the
        // FIN. A file needs no flag: the socket is corked.
        let flags =
            SendFlags::NOSIGNAL | if self.last { SendFlags::MORE } else { SendFlags::empty() };
        match &self.body {
            Body::File(file, from, to) if text.is_empty() => {
                let tried = usize::try_from((to - from).min(BUDGET)).unwrap_or(usize::MAX);
                let sent = sendfile(socket, file, Some(&mut { *from }), tried)?;
                // The file was truncated: it is shorter than the Content-Length that was sent.
                if sent == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((sent, tried)) }
            }
            Body::Whole(bytes) if !bytes.is_empty() => {
                send_vectored(socket, [text, bytes, &[], &[]], flags)
            }
            Body::Parts(parts) => {
                let [a, b, c] = parts.as_ref();
                send_vectored(socket, [text, a, b, c], flags)
            }
            _ => Ok((send(socket, text, flags)?, text.len())),
        }
    }

    /// Removes the first `sent` bytes.
    fn advance(&mut self, sent: u64) {
        let of_text = usize::try_from(sent).unwrap_or(usize::MAX).min(self.pending());
        self.sent += of_text;
        let mut rest = sent - of_text as u64;
        match &mut self.body {
            Body::File(_, from, to) => *from = from.saturating_add(rest).min(*to),
            Body::Whole(bytes) => advance(bytes, &mut rest),
            Body::Parts(parts) => parts.iter_mut().for_each(|part| advance(part, &mut rest)),
            Body::Events(_) => {}
        }
    }
}

/// Sends several buffers with one call: how many bytes were sent, and how many were offered.
fn send_vectored(
    socket: BorrowedFd<'_>,
    all: [&[u8]; 4],
    flags: SendFlags,
) -> io::Result<(usize, usize)> {
    let tried = all.iter().map(|part| part.len()).sum();
    let nothing = &mut SendAncillaryBuffer::default();
    Ok((sendmsg(socket, &all.map(IoSlice::new), nothing, flags)?, tried))
}

/// Removes up to `rest` bytes from the front.
fn advance(bytes: &mut Bytes, rest: &mut u64) {
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
    fn send_all(mut buffer: SendBuffer) -> Vec<u8> {
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
        let is_file = matches!(buffer.body, Body::File(..));
        let is_corked = || is_on(&socket, TCP_CORK);
        loop {
            match buffer.write_to(socket.as_fd()) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert_eq!(is_corked(), is_file);
                    thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(buffer.last || !is_corked(), "the rest would stay in the kernel");
        drop(socket);
        let all = read.join().unwrap();
        assert_eq!(buffer.total, all.len() as u64);
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
    fn sends_bodies_of_every_kind_in_order() {
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
            let mut buffer = SendBuffer { last, ..SendBuffer::new() };
            buffer.text().extend_from_slice(b"head");
            assert!(!buffer.add(Body::Whole("short".into())));
            buffer.text().extend_from_slice(b"head");
            assert!(buffer.add(body));
            let all = send_all(buffer);
            assert!(all.starts_with(b"headshorthead") && all[13..] == bytes);
        }
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let (socket, _reader) = UnixStream::pair().unwrap();
        let mut buffer = SendBuffer::new();
        buffer.add(Body::File(Arc::new(file.into()), 0, 10));
        let error = buffer.write_to(socket.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
