//! What a client has sent, checked: each message has exactly the descriptors that belong to it.

use std::os::fd::{AsRawFd, OwnedFd};

use levada_ring::wire::{Refusal, Request, VERSION, WAKING};
use levada_ring::{Marks, records};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::closing::close;
use crate::identity::Endpoints;
use crate::liveness::{Identity, Kernel};
use crate::packet::{Packet, show_senders};
use crate::routes::Listening;

/// A request with what its descriptors stand for.
#[derive(Debug)]
pub enum Received {
    /// The process introduces itself.
    Hello(Hello),
    /// A Unix socket, which becomes a client.
    Adopt(OwnedFd),
    /// A socket was offered.
    Offer { connection: u64, offered: Offered },
    /// As [`Request::Withdraw`].
    Withdraw { connection: u64 },
    /// As [`Request::List`].
    List { run: u64 },
    /// As [`Request::Watch`].
    Watch { run: u64 },
    /// A socket listens, and takes connections by queues.
    Listen { question: u32, listening: Option<Listening> },
    /// The addresses of a connection to a listener that is asked for.
    Find { question: u32, endpoints: Option<Endpoints>, again: bool },
    /// As [`Request::Shut`].
    Shut { listener: u32 },
}

/// The addresses of an offered socket and what identifies it, or why it is refused.
pub type Offered = Result<(Endpoints, Identity), Refusal>;

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
    /// `None` if the packet is no request of this version, or its descriptors are not those of the
    /// request. They are closed then.
    pub fn read(packet: Packet, kernel: &Kernel) -> Option<Self> {
        let Packet { bytes, mut descriptors, user } = packet;
        let request = Request::decode(&bytes).ok();
        let received =
            request.and_then(|request| Self::take(request, &mut descriptors, user, kernel));
        descriptors.into_iter().for_each(close);
        received
    }

    /// Takes the descriptors that belong to the request.
    fn take(
        request: Request,
        descriptors: &mut Vec<OwnedFd>,
        user: Option<u32>,
        kernel: &Kernel,
    ) -> Option<Self> {
        let count = match request {
            Request::Hello { .. } => 1 + WAKING,
            Request::Adopt
            | Request::Offer { .. }
            | Request::Listen { .. }
            | Request::Find { .. } => 1,
            Request::Withdraw { .. }
            | Request::List { .. }
            | Request::Watch { .. }
            | Request::Shut { .. } => 0,
        };
        if descriptors.len() != count {
            return None;
        }
        // A process that has given up its user may have inherited a connection: it sees nothing of
        // the others.
        let is_own = user == Some(rustix::process::geteuid().as_raw());
        match request {
            Request::Hello { version, run, pid } => {
                let is_right = version == VERSION
                    && descriptors.first().is_some_and(records::is_sealed)
                    && descriptors.get(1..).is_some_and(can_wake);
                let waking = descriptors.split_off(if is_right { 1 } else { count });
                let waking = waking.try_into().ok()?;
                Some(Self::Hello(Hello { run, pid, records: descriptors.pop()?, waking }))
            }
            Request::Adopt => {
                let socket = descriptors
                    .pop_if(|socket| is_packet_socket(socket) && show_senders(socket).is_ok())?;
                Some(Self::Adopt(socket))
            }
            Request::Offer { connection } => {
                let offered = match Endpoints::of(descriptors.first()?) {
                    Ok(endpoints) => {
                        Ok((endpoints, kernel.identify(descriptors.pop()?, &endpoints)))
                    }
                    Err(refusal) => Err(refusal),
                };
                Some(Self::Offer { connection, offered })
            }
            Request::Withdraw { connection } => Some(Self::Withdraw { connection }),
            Request::Shut { listener } => Some(Self::Shut { listener }),
            Request::List { run } => is_own.then_some(Self::List { run }),
            Request::Watch { run } => is_own.then_some(Self::Watch { run }),
            // A process that has given up its user gets no memory of others.
            Request::Listen { question, listener } => {
                let socket = descriptors.first().filter(|_| is_own);
                let listening = socket.and_then(|socket| Listening::of(socket, listener));
                Some(Self::Listen { question, listening })
            }
            Request::Find { question, again } => {
                let socket = descriptors.first().filter(|_| is_own);
                let endpoints = socket.and_then(|socket| Endpoints::of(socket).ok());
                Some(Self::Find { question, endpoints, again })
            }
        }
    }
}

/// Returns true if these are eventfds and a page. Peers write to them, and close them: a write to a
/// pipe can end a process, and a close of a socket can block (SO_LINGER).
fn can_wake(waking: &[OwnedFd]) -> bool {
    let [eventfds @ .., page] = waking else { return false };
    eventfds.iter().all(is_eventfd) && Marks::open(page).is_ok()
}

fn is_eventfd(file: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.is_ok_and(|kind| kind.as_os_str() == "anon_inode:[eventfd]")
}

fn is_packet_socket(socket: &OwnedFd) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
}

#[cfg(test)]
mod tests {
    use levada_ring::wire::LENGTH;
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| std::io::pipe().unwrap().0.into()).collect()
    }

    fn sealed() -> OwnedFd {
        records::Records::create().unwrap().0
    }

    /// The descriptors that wake a process.
    fn waking() -> Vec<OwnedFd> {
        let eventfd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let page = Marks::create().unwrap().0;
        (1..WAKING).map(|_| eventfd()).chain([page]).collect()
    }

    fn own_user() -> Option<u32> {
        Some(rustix::process::geteuid().as_raw())
    }

    fn read(request: Request, count: usize) -> Option<Received> {
        let mut descriptors = descriptors(count);
        if let (Request::Hello { .. }, Some(first)) = (request, descriptors.first_mut()) {
            *first = sealed();
            descriptors.splice(1.., waking().into_iter().take(count - 1));
        }
        Received::read(
            Packet { bytes: request.encode(), descriptors, user: own_user() },
            &Kernel::new(),
        )
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
            (Request::Listen { question: 1, listener: 2 }, 1),
            (Request::Find { question: 1, again: false }, 1),
            (Request::Shut { listener: 1 }, 0),
        ] {
            for given in 0..=1 + WAKING {
                assert_eq!(read(request, given).is_some(), given == count, "{request:?}, {given}");
            }
        }
        assert!(read(hello(VERSION + 1), 1 + WAKING).is_none());
        assert!(matches!(
            read(Request::Offer { connection: 3 }, 1),
            Some(Received::Offer { connection: 3, offered: Err(Refusal::NotTcp) })
        ));
    }

    #[test]
    fn records_that_others_could_write_are_refused() {
        let hello = Request::Hello { version: VERSION, run: 1, pid: 2 };
        let mut descriptors = descriptors(1 + WAKING);
        descriptors[0] = std::fs::File::open("/dev/null").unwrap().into();
        let packet = Packet { bytes: hello.encode(), descriptors, user: own_user() };
        assert!(Received::read(packet, &Kernel::new()).is_none());
    }

    #[test]
    fn what_could_end_or_block_a_peer_is_refused() {
        let hello = Request::Hello { version: VERSION, run: 1, pid: 2 };
        let others: [fn() -> OwnedFd; 4] = [
            || std::io::pipe().unwrap().1.into(),
            || std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
            || std::fs::File::open("/dev/null").unwrap().into(),
            || Marks::create().unwrap().0,
        ];
        for at in 0..WAKING {
            for other in others.iter().take(if at + 1 < WAKING { 4 } else { 3 }) {
                let mut descriptors = vec![sealed()];
                descriptors.extend(waking());
                descriptors[1 + at] = other();
                let packet = Packet { bytes: hello.encode(), descriptors, user: own_user() };
                assert!(Received::read(packet, &Kernel::new()).is_none(), "{at}");
            }
        }
    }

    #[test]
    fn only_processes_of_the_own_user_see_others() {
        let other = own_user().map(|user| user + 1);
        for request in [Request::List { run: 0 }, Request::Watch { run: 1 }] {
            for (user, is_read) in [(own_user(), true), (other, false), (None, false)] {
                let packet = Packet { bytes: request.encode(), descriptors: Vec::new(), user };
                assert_eq!(
                    Received::read(packet, &Kernel::new()).is_some(),
                    is_read,
                    "{request:?} {user:?}"
                );
            }
        }
    }

    #[test]
    fn a_process_of_another_user_gets_no_route() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = own_user().map(|user| user + 1);
        for (user, is_found) in [(own_user(), true), (other, false), (None, false)] {
            let read = |request: Request, descriptors| {
                let bytes = request.encode();
                Received::read(Packet { bytes, descriptors, user }, &Kernel::new())
            };
            let descriptors = vec![listener.try_clone().unwrap().into()];
            let Some(Received::Listen { listening, .. }) =
                read(Request::Listen { question: 1, listener: 2 }, descriptors)
            else {
                panic!("it is a request")
            };
            assert_eq!(listening.is_some(), is_found, "{user:?}");
            let descriptors = vec![near.try_clone().unwrap().into()];
            let Some(Received::Find { endpoints, .. }) =
                read(Request::Find { question: 1, again: false }, descriptors)
            else {
                panic!("it is a request")
            };
            assert_eq!(endpoints.is_some(), is_found, "{user:?}");
        }
    }

    #[test]
    fn only_packet_sockets_are_adopted() {
        assert!(read(Request::Adopt, 1).is_none());
        let adopted = |socket: OwnedFd| {
            let bytes = Request::Adopt.encode();
            Received::read(Packet { bytes, descriptors: vec![socket], user: None }, &Kernel::new())
                .is_some()
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
                Received::read(Packet { bytes, descriptors, user: own_user() }, &Kernel::new())
            {
                assert_eq!(has, 0);
            }
        });
    }
}
