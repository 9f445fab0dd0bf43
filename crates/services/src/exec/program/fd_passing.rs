//! Bytes and open files over a Unix socket (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// The most files that are passed at once: the standard ones.
const FILES: usize = 3;

/// Sends all of `bytes`, and `files` with the first byte.
pub(super) async fn send(
    stream: &mut UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let sent = loop {
        stream.writable().await?;
        match stream.try_io(Interest::WRITABLE, || send_now(stream, bytes, files)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => break sent?,
        }
    };
    stream.write_all(&bytes[sent..]).await
}

fn send_now(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// Fills `bytes`, and returns the files that came with them. `None` if the other side closed the
/// socket before the first byte.
pub(super) async fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut filled = 0;
    let mut files = Vec::new();
    while filled < bytes.len() {
        stream.readable().await?;
        let rest = &mut bytes[filled..];
        match stream.try_io(Interest::READABLE, || receive_now(stream, rest, &mut files)) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(files))
}

fn receive_now(
    stream: &UnixStream,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let received = recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            files.extend(came);
        }
    }
    Ok(received.bytes)
}
