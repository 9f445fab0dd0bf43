//! Every way to receive.

use std::ffi::{c_int, c_void};
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use crate::call::{Errno, Reply, call};
use crate::flags;
use crate::pattern::{self, describe};
use crate::send::{message, pipe, vectors};
use crate::state::{State, Words};

unsafe extern "C" {
    // What the fortified headers of glibc call.
    fn __read_chk(fd: c_int, buffer: *mut c_void, length: usize, size: usize) -> isize;
    fn __recv_chk(
        fd: c_int,
        buffer: *mut c_void,
        length: usize,
        size: usize,
        flags: c_int,
    ) -> isize;
    fn __recvfrom_chk(
        fd: c_int,
        buffer: *mut c_void,
        length: usize,
        size: usize,
        flags: c_int,
        address: *mut libc::sockaddr,
        address_length: *mut libc::socklen_t,
    ) -> isize;
}

/// What no call may change: the bytes behind those that it returned.
const UNTOUCHED: u8 = 0xee;

/// `in FORM SLOT LENGTHS FLAGS`: lengths that are joined by `+` are buffers of one call, or the
/// messages of `recvmmsg`.
pub fn run(state: &State, words: &mut Words) -> Reply {
    let form = words.text();
    let socket = words.descriptor(state);
    let lengths = words.lengths();
    let flags = flags::parse(flags::MESSAGE, words.text());
    match form {
        "recvmsg" => return receive_message(socket, &lengths, flags),
        "recvmmsg" => return receive_messages(socket, &lengths, flags),
        _ => {}
    }
    let mut buffer = vec![UNTOUCHED; lengths.iter().sum::<usize>() + 16];
    let received = receive(form, socket, &mut buffer, &lengths, flags)?;
    // With MSG_TRUNC, the bytes are counted and discarded.
    let written = if flags & libc::MSG_TRUNC == 0 { received } else { 0 };
    let changed = buffer[written..].iter().any(|byte| *byte != UNTOUCHED);
    let changed = if changed { " and wrote behind them" } else { "" };
    Ok(format!("{received} {}{changed}", describe(&buffer[..written])))
}

fn receive(
    form: &str,
    socket: RawFd,
    buffer: &mut [u8],
    lengths: &[usize],
    flags: c_int,
) -> Result<usize, Errno> {
    let length = lengths.iter().sum();
    let size = buffer.len();
    let vectors = vectors(buffer.as_mut_ptr(), lengths);
    let data = buffer.as_mut_ptr().cast::<c_void>();
    let count = vectors.len() as c_int;
    let null = ptr::null_mut;
    match form {
        "read" => call!(libc::read: socket, data, length),
        "recv" => call!(libc::recv: socket, data, length, flags),
        "recvfrom" => {
            // SAFETY: zero is a valid value of this structure.
            let mut address: libc::sockaddr_storage = unsafe { mem::zeroed() };
            let mut space = size_of_val(&address) as libc::socklen_t;
            let place = (&raw mut address).cast();
            let received =
                call!(libc::recvfrom: socket, data, length, flags, place, &raw mut space);
            // A connection has no address for each message.
            assert!(received.is_err() || space == 0, "recvfrom wrote an address");
            received
        }
        "readv" => call!(libc::readv: socket, vectors.as_ptr(), count),
        "preadv2" => call!(libc::preadv2: socket, vectors.as_ptr(), count, -1, 0),
        "read_chk" => call!(__read_chk: socket, data, length, size),
        "recv_chk" => call!(__recv_chk: socket, data, length, size, flags),
        "recvfrom_chk" => {
            call!(__recvfrom_chk: socket, data, length, size, flags, null(), ptr::null_mut())
        }
        "splice" => splice(socket, &mut buffer[..length]),
        "syscall" => {
            let null = ptr::null::<c_void>();
            call!(libc::syscall: libc::SYS_recvfrom, socket, data, length, flags, null, null)
        }
        // The offset, which is -1, takes two arguments.
        "syscall-preadv2" => {
            call!(libc::syscall: libc::SYS_preadv2, socket, vectors.as_ptr(), count, -1_i64, -1_i64, 0)
        }
        _ => panic!("no form `{form}`"),
    }
}

/// Through a pipe, which takes 64 KiB.
fn splice(socket: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let [from, to] = pipe()?;
    let null = ptr::null_mut();
    let moved = call!(libc::splice: socket, null, to.as_raw_fd(), null, buffer.len(), 0)?;
    drop(to);
    let read = call!(libc::read: from.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len())?;
    assert_eq!(read, moved);
    Ok(moved)
}

/// With space for an address and for control messages, of which a connection has none unless an
/// option asks for them.
fn receive_message(socket: RawFd, lengths: &[usize], flags: c_int) -> Reply {
    let mut buffer = vec![UNTOUCHED; lengths.iter().sum()];
    let vectors = vectors(buffer.as_mut_ptr(), lengths);
    let mut control = [0u64; 16];
    // SAFETY: zero is a valid value of this structure.
    let mut address: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut message = message(&vectors);
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = size_of_val(&address) as libc::socklen_t;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let received = call!(libc::recvmsg: socket, &raw mut message, flags)?;
    Ok(format!("{received} {}", described(&message, &buffer, received)))
}

fn described(message: &libc::msghdr, buffer: &[u8], received: usize) -> String {
    let flags = flags::format(flags::MESSAGE, message.msg_flags);
    let written = if flags.contains("trunc") { 0 } else { received };
    let name = message.msg_namelen;
    let control = message.msg_controllen;
    format!("{} flags={flags} name={name} control={control}", describe(&buffer[..written]))
}

/// The answer has the number of messages, and each of them.
fn receive_messages(socket: RawFd, lengths: &[usize], flags: c_int) -> Reply {
    let mut buffers: Vec<_> = lengths.iter().map(|length| vec![UNTOUCHED; *length]).collect();
    let whole = |buffer: &mut Vec<u8>| vectors(buffer.as_mut_ptr(), &[buffer.len()]);
    let vectors: Vec<_> = buffers.iter_mut().map(whole).collect();
    let header = |vectors: &Vec<_>| libc::mmsghdr { msg_hdr: message(vectors), msg_len: 0 };
    let mut messages: Vec<_> = vectors.iter().map(header).collect();
    let pointer = messages.as_mut_ptr();
    let count = messages.len() as u32;
    let received = call!(libc::recvmmsg: socket, pointer, count, flags as _, ptr::null_mut())?;
    let one = |(message, buffer): (&libc::mmsghdr, &Vec<u8>)| {
        let length = message.msg_len as usize;
        format!("{length} {}", described(&message.msg_hdr, buffer, length))
    };
    let all: Vec<_> = messages[..received].iter().zip(&buffers).map(one).collect();
    Ok(format!("{received}: {}", all.join(", ")))
}

/// `drain SLOT`: everything that is there, and why there is no more.
pub fn drain(state: &State, words: &mut Words) -> Reply {
    let socket = words.descriptor(state);
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let end = loop {
        let data = buffer.as_mut_ptr().cast();
        match call!(libc::recv: socket, data, buffer.len(), libc::MSG_DONTWAIT) {
            Ok(0) => break "end".to_owned(),
            Ok(length) => all.extend_from_slice(&buffer[..length]),
            Err(errno) => break errno.to_string(),
        }
        assert!(all.len() < pattern::LONGEST, "more than was sent");
    };
    Ok(format!("{} {} then {end}", all.len(), describe(&all)))
}
