//! What a client has sent, checked: each message has exactly the descriptors that belong to it.

use std::os::fd::OwnedFd;

use levada_ring::records;
use levada_ring::wire::{Refusal, Request, VERSION, WAKING};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::identity::Endpoints;
use crate::packet::{Packet, show_senders};

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
        let Packet { bytes, mut descriptors, user } = packet;
        let expected = |count: usize| (descriptors.len() == count).then_some(());
        // A process that has given up its user may have inherited a connection: it sees nothing of the others.
        let is_own = || (user == Some(rustix::process::geteuid().as_raw())).then_some(());
        match Request::decode(&bytes).ok()? {
            Request::Hello { version, run, pid } => {
                expected(1 + WAKING)?;
                let waking = descriptors.split_off(1).try_into().ok()?;
                let records = descriptors.pop()?;
                let is_right = version == VERSION && records::is_sealed(&records);
                is_right.then_some(Self::Hello(Hello { run, pid, records, waking }))
            }
            Request::Adopt => {
                expected(1)?;
                let socket = descriptors.pop().filter(is_packet_socket)?;
                show_senders(&socket).ok().map(|()| Self::Adopt(socket))
            }
            Request::Offer { connection } => {
                expected(1)?;
                let endpoints = Endpoints::of(descriptors.pop()?);
                Some(Self::Offer { connection, endpoints })
            }
            Request::Withdraw { connection } => expected(0).map(|()| Self::Withdraw { connection }),
            Request::List { run } => {
                expected(0).and_then(|()| is_own()).map(|()| Self::List { run })
            }
            Request::Watch { run } => {
                expected(0).and_then(|()| is_own()).map(|()| Self::Watch { run })
            }
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

    fn sealed() -> OwnedFd {
        records::Records::create().unwrap().0
    }

    fn own_user() -> Option<u32> {
        Some(rustix::process::geteuid().as_raw())
    }

    fn read(request: Request, count: usize) -> Option<Received> {
        let mut descriptors = descriptors(count);
        if let (Request::Hello { .. }, Some(first)) = (request, descriptors.first_mut()) {
            *first = sealed();
        }
        Received::read(Packet { bytes: request.encode(), descriptors, user: own_user() })
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
    fn records_that_others_could_write_are_refused() {
        let hello = Request::Hello { version: VERSION, run: 1, pid: 2 };
        let mut descriptors = descriptors(1 + WAKING);
        descriptors[0] = std::fs::File::open("/dev/null").unwrap().into();
        let packet = Packet { bytes: hello.encode(), descriptors, user: own_user() };
        assert!(Received::read(packet).is_none());
    }

    #[test]
    fn only_processes_of_the_own_user_see_others() {
        let other = own_user().map(|user| user + 1);
        for request in [Request::List { run: 0 }, Request::Watch { run: 1 }] {
            for (user, is_read) in [(own_user(), true), (other, false), (None, false)] {
                let packet = Packet { bytes: request.encode(), descriptors: Vec::new(), user };
                assert_eq!(Received::read(packet).is_some(), is_read, "{request:?} {user:?}");
            }
        }
    }

    #[test]
    fn only_packet_sockets_are_adopted() {
        assert!(read(Request::Adopt, 1).is_none());
        let adopted = |socket: OwnedFd| {
            let bytes = Request::Adopt.encode();
            Received::read(Packet { bytes, descriptors: vec![socket], user: None }).is_some()
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
                Received::read(Packet { bytes, descriptors, user: own_user() })
            {
                assert_eq!(has, 0);
            }
        });
    }
}
