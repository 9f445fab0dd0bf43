//! Packets with descriptors on a Unix socket (SOCK_SEQPACKET). No call blocks unless its flags say so.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use levada_ring::wire::{LENGTH, WAKING};
use rustix::cmsg_space;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors of one packet: those of a process that introduces itself, or of a segment with what wakes the peer.
pub const DESCRIPTORS: usize = 1 + WAKING;

/// A packet with its descriptors.
#[derive(Debug)]
pub struct Packet {
    /// The message.
    pub bytes: [u8; LENGTH],
    /// They are closed in this process on exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Why there is no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPacket {
    /// None is there yet, or the timeout of the socket is over.
    Yet,
    /// The other end has closed the socket, or sent what is no message.
    Ever,
}

/// Receives one packet. Descriptors that do not fit are closed by the kernel, and the packet counts as no message.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Packet, NoPacket> {
    // One more byte shows a packet that is too long.
    let mut bytes = [0; LENGTH + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received =
        retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags));
    let received = received.map_err(|error| match error {
        Errno::AGAIN => NoPacket::Yet,
        _ => NoPacket::Ever,
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    // At the limit of open files, descriptors are missing.
    if received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(NoPacket::Ever);
    }
    match bytes.first_chunk() {
        Some(bytes) if received.bytes == LENGTH => Ok(Packet { bytes: *bytes, descriptors }),
        _ => Err(NoPacket::Ever),
    }
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
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = flags | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags)).map(drop)
}

/// The user at the other end of a Unix socket, from the time when it was connected.
pub fn user_of(socket: impl AsFd) -> std::io::Result<u32> {
    // Process, user and group. A process of another namespace has the number 0, which rustix's type does not permit.
    let mut credentials = [0_u32; 3];
    let (level, option) = (uapi::c::SOL_SOCKET, uapi::c::SO_PEERCRED);
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
