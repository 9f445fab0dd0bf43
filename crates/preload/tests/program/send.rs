//! Every way to send.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::{mem, ptr};

use crate::call::{Errno, Reply, call};
use crate::flags;
use crate::pattern;
use crate::state::{State, Words};

/// `out FORM SLOT LENGTHS TAG FLAGS`: lengths that are joined by `+` are buffers of one call, or
/// the messages of `sendmmsg`.
pub fn run(state: &State, words: &mut Words) -> Reply {
    let form = words.text();
    let socket = words.descriptor(state);
    let lengths = words.lengths();
    let tag = words.number();
    let flags = flags::parse(flags::MESSAGE, words.text());
    if form == "sendmmsg" {
        return send_messages(socket, &lengths, tag, flags);
    }
    Ok(send(form, socket, &lengths, tag, flags)?.to_string())
}

/// One call that sends the first bytes of a stream.
pub fn send(
    form: &str,
    socket: RawFd,
    lengths: &[usize],
    tag: u64,
    flags: c_int,
) -> Result<usize, Errno> {
    let length = lengths.iter().sum();
    let bytes = pattern::bytes(tag, 0, length);
    let vectors = vectors(bytes.as_ptr().cast_mut(), lengths);
    let message = message(&vectors);
    let data = bytes.as_ptr().cast::<c_void>();
    let count = vectors.len();
    match form {
        "write" => call!(libc::write: socket, data, length),
        "send" => call!(libc::send: socket, data, length, flags),
        "sendto" => call!(libc::sendto: socket, data, length, flags, ptr::null(), 0),
        "writev" => call!(libc::writev: socket, vectors.as_ptr(), count as c_int),
        "pwritev2" => call!(libc::pwritev2: socket, vectors.as_ptr(), count as c_int, -1, 0),
        "sendmsg" => call!(libc::sendmsg: socket, &raw const message, flags),
        "sendfile" => sendfile(socket, bytes),
        "splice" => splice(socket, bytes),
        "syscall" => {
            let null = ptr::null::<c_void>();
            call!(libc::syscall: libc::SYS_sendto, socket, data, length, flags, null, 0)
        }
        // The offset, which is -1, takes two arguments.
        "syscall-pwritev2" => {
            let vectors = vectors.as_ptr();
            call!(libc::syscall: libc::SYS_pwritev2, socket, vectors, count, -1_i64, -1_i64, 0)
        }
        _ => panic!("no form `{form}`"),
    }
}

/// The buffers of a call, one after the other from `data` on. A call that sends only reads them.
pub fn vectors(data: *mut u8, lengths: &[usize]) -> Vec<libc::iovec> {
    let mut next = data;
    let vector = |length: &usize| {
        let start = next;
        next = next.wrapping_add(*length);
        libc::iovec { iov_base: start.cast(), iov_len: *length }
    };
    lengths.iter().map(vector).collect()
}

pub fn message(vectors: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: zero is a valid value of this structure.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = vectors.as_ptr().cast_mut();
    message.msg_iovlen = vectors.len() as _;
    message
}

/// The answer has the number of messages, and the sent length of each.
fn send_messages(socket: RawFd, lengths: &[usize], tag: u64, flags: c_int) -> Reply {
    let bytes = pattern::bytes(tag, 0, lengths.iter().sum());
    let vectors = vectors(bytes.as_ptr().cast_mut(), lengths);
    let header =
        |vector| libc::mmsghdr { msg_hdr: message(std::slice::from_ref(vector)), msg_len: 0 };
    let mut messages: Vec<libc::mmsghdr> = vectors.iter().map(header).collect();
    let count = messages.len() as u32;
    // The type of the flags differs between C libraries.
    let sent = call!(libc::sendmmsg: socket, messages.as_mut_ptr(), count, flags as _)?;
    let lengths: Vec<_> =
        messages[..sent].iter().map(|message| message.msg_len.to_string()).collect();
    Ok(format!("{sent} {}", lengths.join("+")))
}

fn sendfile(socket: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    let file = call!(libc::memfd_create: c"file".as_ptr(), libc::MFD_CLOEXEC)? as RawFd;
    // SAFETY: the call returned a new descriptor.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    call!(libc::write: file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len())?;
    let mut offset = 0;
    let sent = call!(libc::sendfile: socket, file.as_raw_fd(), &raw mut offset, bytes.len())?;
    assert_eq!(offset as usize, sent);
    Ok(sent)
}

/// Through a pipe, which takes 64 KiB.
fn splice(socket: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    let [from, to] = pipe()?;
    call!(libc::write: to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len())?;
    let null = ptr::null_mut();
    call!(libc::splice: from.as_raw_fd(), null, socket, null, bytes.len(), 0)
}

pub fn pipe() -> Result<[OwnedFd; 2], Errno> {
    let mut ends = [0; 2];
    call!(libc::pipe2: ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    // SAFETY: the call returned two new descriptors.
    Ok(ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }))
}

/// `corked SLOT LENGTHS TAG`: one `send` for each length, while `TCP_CORK` is set.
pub fn corked(state: &State, words: &mut Words) -> Reply {
    let socket = words.descriptor(state);
    let lengths = words.lengths();
    let tag: u64 = words.number();
    cork(socket, 1)?;
    let mut sent = Vec::new();
    for (number, length) in lengths.into_iter().enumerate() {
        sent.push(send("send", socket, &[length], tag + number as u64, 0)?.to_string());
    }
    cork(socket, 0)?;
    Ok(sent.join("+"))
}

fn cork(socket: RawFd, on: c_int) -> Result<usize, Errno> {
    let value = (&raw const on).cast();
    let length = mem::size_of::<c_int>() as libc::socklen_t;
    call!(libc::setsockopt: socket, libc::IPPROTO_TCP, libc::TCP_CORK, value, length)
}

/// `zerocopy SLOT LENGTH TAG`: sends without a copy, and waits until the kernel has released the
/// bytes.
pub fn zerocopy(state: &State, words: &mut Words) -> Reply {
    let socket = words.descriptor(state);
    let length = words.number();
    let tag = words.number();
    let sent = send("send", socket, &[length], tag, libc::MSG_ZEROCOPY)?;
    let mut poll = libc::pollfd { fd: socket, events: 0, revents: 0 };
    let ready = call!(libc::poll: &raw mut poll, 1, 5000)?;
    let mut control = [0u64; 16];
    // SAFETY: zero is a valid value of this structure.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let received = call!(libc::recvmsg: socket, &raw mut message, libc::MSG_ERRQUEUE)?;
    Ok(format!("{sent} ready={ready} received={received} control={}", message.msg_controllen))
}
