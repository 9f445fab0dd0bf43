//! Descriptors that pass between processes (`SCM_RIGHTS`), over a datagram socket in the folder of
//! the run.

use std::ffi::c_int;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use crate::call::{Errno, Reply, call};
use crate::control::move_up;
use crate::send::{message, vectors};
use crate::sockets::keep;
use crate::state::{State, Words};

pub fn run(state: &State, verb: &str, words: &mut Words) -> Reply {
    match verb {
        "mailbox" => {
            let slot = words.text();
            let name = words.text();
            let socket = UnixDatagram::bind(state.folder.join(name)).unwrap();
            // No step may get the number in between.
            let moved = move_up(OwnedFd::from(socket));
            state.put(slot, moved.as_raw_fd());
            mem::forget(moved);
            Ok(String::new())
        }
        "pass" => {
            let descriptor = words.descriptor(state);
            let name = words.text();
            let socket = UnixDatagram::unbound().unwrap();
            socket.connect(state.folder.join(name)).unwrap();
            Ok(pass(socket.as_raw_fd(), descriptor)?.to_string())
        }
        _ => {
            let mailbox = words.descriptor(state);
            let slot = words.text();
            Ok(keep(state, slot, take(mailbox)? as usize))
        }
    }
}

/// Space for the control message with one descriptor.
type Space = [u64; 4];

/// `pass SLOT NAME`: sends a descriptor to the process that has this mailbox.
fn pass(socket: RawFd, descriptor: RawFd) -> Result<usize, Errno> {
    let mut space: Space = [0; 4];
    let vectors = vectors(b"x".as_ptr().cast_mut(), &[1]);
    let mut message = message(&vectors);
    message.msg_control = space.as_mut_ptr().cast();
    // SAFETY: the macros of C compute lengths only.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as _;
    // SAFETY: the message has space for one header and its descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor);
    }
    call!(libc::sendmsg: socket, &raw const message, 0)
}

/// `take MAILBOX SLOT`
fn take(mailbox: RawFd) -> Result<RawFd, Errno> {
    let mut space: Space = [0; 4];
    let mut buffer = [0];
    let vectors = vectors(buffer.as_mut_ptr(), &[1]);
    let mut message = message(&vectors);
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&space) as _;
    call!(libc::recvmsg: mailbox, &raw mut message, 0)?;
    // SAFETY: the kernel wrote the headers.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    assert!(!header.is_null(), "no descriptor arrived");
    // SAFETY: the message has one header with one descriptor.
    Ok(unsafe { libc::CMSG_DATA(header).cast::<c_int>().read_unaligned() })
}
