//! What a client has sent, checked: each message has exactly the descriptors that belong to it.

use std::os::fd::OwnedFd;

use levada_ring::wire::{Refusal, Request, VERSION, WAKING};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::identity::Endpoints;
use crate::packet::Packet;

/// A request with what its descriptors stand for.
#[derive(Debug)]
pub enum Received {
    /// The process introduces itself.
    Hello(Hello),
    /// A Unix socket, which becomes a client.
    Adopt(OwnedFd),
    /// A socket was offered. Its descriptor is closed already.
    Offer { connection: u64, endpoints: Result<Endpoints, Refusal> },
    /// As [`Request::Withdraw`].
    Withdraw { connection: u64 },
    /// As [`Request::List`].
    List { run: u64 },
    /// As [`Request::Watch`].
    Watch { run: u64 },
}

/// How a process introduces itself.
#[derive(Debug)]
pub struct Hello {
    /// As in [`Request::Hello`].
    pub run: u64,
    /// As in [`Request::Hello`].
    pub pid: u32,
    /// The file of its records.
    pub records: OwnedFd,
    /// What wakes it.
    pub waking: [OwnedFd; WAKING],
}

impl Received {
    /// `None` if the packet is no request of this version, or its descriptors are not those of the request. They are closed
    /// then.
    pub fn read(packet: Packet) -> Option<Self> {
        let Packet { bytes, mut descriptors } = packet;
        let expected = |count: usize| (descriptors.len() == count).then_some(());
        match Request::decode(&bytes).ok()? {
            Request::Hello { version, run, pid } => {
                expected(1 + WAKING)?;
                let waking = descriptors.split_off(1).try_into().ok()?;
                let records = descriptors.pop()?;
                (version == VERSION).then_some(Self::Hello(Hello { run, pid, records, waking }))
            }
            Request::Adopt => {
                expected(1)?;
                descriptors.pop().filter(is_packet_socket).map(Self::Adopt)
            }
            Request::Offer { connection } => {
                expected(1)?;
                let endpoints = Endpoints::of(descriptors.pop()?);
                Some(Self::Offer { connection, endpoints })
            }
            Request::Withdraw { connection } => expected(0).map(|()| Self::Withdraw { connection }),
            Request::List { run } => expected(0).map(|()| Self::List { run }),
            Request::Watch { run } => expected(0).map(|()| Self::Watch { run }),
        }
    }
}

fn is_packet_socket(socket: &OwnedFd) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
}

#[cfg(test)]
mod tests {
    use levada_ring::wire::LENGTH;

    use super::*;

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| std::io::pipe().unwrap().0.into()).collect()
    }

    fn read(request: Request, count: usize) -> Option<Received> {
        Received::read(Packet { bytes: request.encode(), descriptors: descriptors(count) })
    }

    #[test]
    fn each_request_has_its_descriptors() {
        let hello = |version| Request::Hello { version, run: 1, pid: 2 };
        for (request, count) in [
            (hello(VERSION), 1 + WAKING),
            (Request::Offer { connection: 3 }, 1),
            (Request::Withdraw { connection: 3 }, 0),
            (Request::List { run: 0 }, 0),
            (Request::Watch { run: 1 }, 0),
        ] {
            for given in 0..=1 + WAKING {
                assert_eq!(read(request, given).is_some(), given == count, "{request:?}, {given}");
            }
        }
        assert!(read(hello(VERSION + 1), 1 + WAKING).is_none());
        assert!(matches!(
            read(Request::Offer { connection: 3 }, 1),
            Some(Received::Offer { connection: 3, endpoints: Err(Refusal::NotTcp) })
        ));
    }

    #[test]
    fn only_packet_sockets_are_adopted() {
        assert!(read(Request::Adopt, 1).is_none());
        let adopted = |socket: OwnedFd| {
            let bytes = Request::Adopt.encode();
            Received::read(Packet { bytes, descriptors: vec![socket] }).is_some()
        };
        let pair = |kind| {
            rustix::net::socketpair(
                AddressFamily::UNIX,
                kind,
                rustix::net::SocketFlags::CLOEXEC,
                None,
            )
        };
        assert!(adopted(pair(SocketType::SEQPACKET).unwrap().0));
        assert!(!adopted(pair(SocketType::STREAM).unwrap().0));
        assert!(!adopted(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into()));
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        bolero::check!().with_type::<([u8; LENGTH], u8)>().for_each(|&(bytes, count)| {
            let descriptors = descriptors(usize::from(count % 8));
            let has = descriptors.len();
            if let Some(Received::List { .. } | Received::Watch { .. }) =
                Received::read(Packet { bytes, descriptors })
            {
                assert_eq!(has, 0);
            }
        });
    }
}
