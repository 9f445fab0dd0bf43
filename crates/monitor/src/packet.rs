//! Packets with descriptors on a Unix socket (SOCK_SEQPACKET). No call blocks unless its flags say
//! so.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use levada_ring::wire::{LENGTH, WAKING};
use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use uapi::c::{
    EAGAIN, EINTR, MSG_CTRUNC, MSG_TRUNC, SCM_CREDENTIALS, SCM_RIGHTS, SO_PASSCRED, SOL_SOCKET,
    c_int, ucred,
};
use uapi::{Errno, MsghdrMut, cmsg_space, sockaddr_none_mut};

/// Descriptors of one packet at most: a pool, a line, and what wakes the peer.
pub const DESCRIPTORS: usize = 2 + WAKING;

/// A packet with its descriptors.
#[derive(Debug)]
pub struct Packet {
    /// The message.
    pub bytes: [u8; LENGTH],
    /// They are closed in this process on exec.
    pub descriptors: Vec<OwnedFd>,
    /// The real user of the process that has sent it, if the socket [shows senders](show_senders).
    pub user: Option<u32>,
}

/// Why there is no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPacket {
    /// None is there yet, or the timeout of the socket is over.
    Yet,
    /// The other end has closed the socket, or sent what is no message.
    Ever,
}

/// Bytes of the control data of one packet: descriptors, and the credentials of the sender.
const CONTROL: usize =
    cmsg_space(DESCRIPTORS * size_of::<c_int>()) + cmsg_space(size_of::<ucred>());

/// Receives one packet. Descriptors that do not fit are closed by the kernel, and the packet counts
/// as no message.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Packet, NoPacket> {
    // One more byte shows a packet that is too long.
    let mut bytes = [0_u8; LENGTH + 1];
    let mut control = [0_u64; CONTROL.div_ceil(size_of::<u64>())];
    let flags = (flags | RecvFlags::CMSG_CLOEXEC).bits().cast_signed();
    let (length, control, flags) = loop {
        let mut header = MsghdrMut {
            iov: &mut [&mut bytes[..]][..],
            control: Some(&mut control),
            name: sockaddr_none_mut(),
            flags: 0,
        };
        match uapi::recvmsg(socket.as_fd().as_raw_fd(), &mut header, flags) {
            Ok((received, _, control)) => break (received.len(), control, header.flags),
            Err(Errno(EINTR)) => {}
            Err(Errno(EAGAIN)) => return Err(NoPacket::Yet),
            Err(_) => return Err(NoPacket::Ever),
        }
    };
    let (descriptors, user) = read_control(control);
    // At the limit of open files, descriptors are missing.
    if flags & (MSG_CTRUNC | MSG_TRUNC) != 0 {
        return Err(NoPacket::Ever);
    }
    match bytes.first_chunk() {
        Some(bytes) if length == LENGTH => Ok(Packet { bytes: *bytes, descriptors, user }),
        _ => Err(NoPacket::Ever),
    }
}

/// The descriptors of a packet, and its sender. The kernel has made new descriptors for this
/// process: each is owned here.
fn read_control(mut control: &[u8]) -> (Vec<OwnedFd>, Option<u32>) {
    let mut descriptors = Vec::new();
    let mut user = None;
    while let Ok((_, header, data)) = uapi::cmsg_read(&mut control) {
        match (header.cmsg_level, header.cmsg_type) {
            (SOL_SOCKET, SCM_RIGHTS) => {
                let numbers =
                    data.chunks_exact(size_of::<c_int>()).filter_map(|bytes| bytes.first_chunk());
                let numbers = numbers.map(|bytes| c_int::from_ne_bytes(*bytes));
                descriptors.extend(numbers.map(|number| OwnedFd::from(uapi::OwnedFd::new(number))));
            }
            // Process, user and group. A process of another namespace has the number 0.
            (SOL_SOCKET, SCM_CREDENTIALS) => {
                let bytes = data.get(size_of::<u32>()..).and_then(|rest| rest.first_chunk());
                user = bytes.map(|bytes| u32::from_ne_bytes(*bytes));
            }
            _ => {}
        }
    }
    (descriptors, user)
}

/// Lets the kernel say with each packet which user has sent it, at the time when it was sent.
/// Sockets that a listening one accepts do the same.
///
/// # Errors
/// Those of setsockopt(2).
pub fn show_senders(socket: impl AsFd) -> std::io::Result<()> {
    uapi::setsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, SO_PASSCRED, &1_i32)?;
    Ok(())
}

/// Sends one packet, with at most [`DESCRIPTORS`].
///
/// # Errors
/// Those of sendmsg(2): `AGAIN` if it does not fit into the buffer of the socket.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8; LENGTH],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(rustix::io::Errno::INVAL);
    }
    let flags = flags | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags)).map(drop)
}

/// The user at the other end of a Unix socket, from the time when it was connected.
pub fn user_of(socket: impl AsFd) -> std::io::Result<u32> {
    // Process, user and group. A process of another namespace has the number 0, which rustix's type
    // does not permit.
    let mut credentials = [0_u32; 3];
    let level = uapi::c::SOL_SOCKET;
    let option = uapi::c::SO_PEERCRED;
    uapi::getsockopt(socket.as_fd().as_raw_fd(), level, option, &mut credentials)?;
    Ok(credentials[1])
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn receive_now(socket: &OwnedFd) -> Result<Packet, NoPacket> {
        receive(socket, RecvFlags::DONTWAIT)
    }

    #[test]
    fn a_packet_arrives_with_its_descriptors() {
        let (near, far) = pair();
        assert_eq!(receive_now(&far).unwrap_err(), NoPacket::Yet);
        let descriptors = [near.as_fd(); DESCRIPTORS];
        for count in 0..=DESCRIPTORS {
            send(&near, &[count as u8; LENGTH], &descriptors[..count], SendFlags::DONTWAIT)
                .unwrap();
        }
        for count in 0..=DESCRIPTORS {
            let packet = receive_now(&far).unwrap();
            assert_eq!((packet.bytes, packet.descriptors.len()), ([count as u8; LENGTH], count));
            for descriptor in &packet.descriptors {
                let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            }
        }
        drop(near);
        assert_eq!(receive_now(&far).unwrap_err(), NoPacket::Ever);
    }

    #[test]
    fn other_packets_are_no_messages() {
        let (near, far) = pair();
        for length in [0, 1, LENGTH - 1, LENGTH + 1, 100_000] {
            rustix::net::send(&near, &vec![0; length], SendFlags::DONTWAIT).unwrap();
            assert_eq!(receive_now(&far).unwrap_err(), NoPacket::Ever, "{length}");
        }
        let many = [near.as_fd(); 100];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(100))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        let bytes = [IoSlice::new(&[0; LENGTH])];
        sendmsg(&near, &bytes, &mut control, SendFlags::DONTWAIT).unwrap();
        assert_eq!(receive_now(&far).unwrap_err(), NoPacket::Ever);
    }

    #[test]
    fn the_user_of_a_socket_is_that_of_the_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        assert_eq!(user_of(&near).unwrap(), rustix::process::geteuid().as_raw());
    }
}
