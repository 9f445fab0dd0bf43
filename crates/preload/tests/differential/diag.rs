//! What the kernel says about a connection (`NETLINK_SOCK_DIAG`): whether all that was sent has
//! arrived. Steps of a script follow each other faster than acknowledgements, Nagle's algorithm and
//! pacing; the processes themselves cannot wait without calls that would be part of the test.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// How long a connection may need until nothing is under way.
const TIMEOUT: Duration = Duration::from_secs(1);

/// `SOCK_DIAG_BY_FAMILY`, and the attribute with the kernel's `tcp_info`.
const BY_FAMILY: u16 = 20;
const INFO: u16 = 2;
const REQUEST: u16 = 1;
const HEADER: usize = 16;
const MESSAGE: usize = 72;

/// States of TCP in the kernel's numbers.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const TIME_WAIT: u8 = 6;
/// A segment of this end is not acknowledged, or the handshake goes on: SYN-RECEIVED, FIN-WAIT-1,
/// LAST-ACK, CLOSING, and the kernel's own name for a connection that is not accepted.
const UNDER_WAY: [u8; 6] = [SYN_SENT, 3, 4, 9, 11, 12];

/// One end of a connection.
#[derive(Debug)]
struct End {
    state: u8,
    /// Bytes that were sent once, those that were not sent, and those that arrived; not for
    /// TIME-WAIT.
    counts: Option<(u64, u32, u64)>,
}

pub struct Diag(OwnedFd);

impl Diag {
    pub fn new() -> Self {
        let kind = Some(netlink::SOCK_DIAG);
        let flags = SocketFlags::CLOEXEC;
        let family = AddressFamily::NETLINK;
        let raw = SocketType::RAW;
        let socket = socket_with(family, raw, flags, kind).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(5))).unwrap();
        Self(socket)
    }

    /// Waits until nothing is under way on any of these connections, each by its two addresses.
    pub fn settle(&self, connections: &[(SocketAddr, SocketAddr)]) {
        self.settle_within(TIMEOUT, connections);
    }

    /// As [`settle`](Self::settle). Whether all has arrived in time.
    fn settle_within(&self, time: Duration, connections: &[(SocketAddr, SocketAddr)]) -> bool {
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        while !connections.iter().all(|(from, to)| self.is_settled(*from, *to)) {
            if start.elapsed() > time {
                return false;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        true
    }

    fn is_settled(&self, from: SocketAddr, to: SocketAddr) -> bool {
        match (self.end(from, to), self.end(to, from)) {
            (Some(one), Some(other)) => {
                let ends = [&one, &other];
                ends.iter().all(|end| !UNDER_WAY.contains(&end.state))
                    && arrived(&one, &other)
                    && arrived(&other, &one)
            }
            // The reset of the end that is gone has not arrived.
            (Some(end), None) | (None, Some(end)) => end.state == TIME_WAIT,
            (None, None) => true,
        }
    }

    fn end(&self, local: SocketAddr, remote: SocketAddr) -> Option<End> {
        send(&self.0, &request(local, remote), SendFlags::empty()).unwrap();
        let mut buffer = [0u8; 4096];
        let (length, _) = recv(&self.0, &mut buffer, RecvFlags::empty()).unwrap();
        parse(&buffer[..length], remote.port())
    }
}

fn arrived(sender: &End, receiver: &End) -> bool {
    match (sender.counts, receiver.counts) {
        // The end of the stream counts as a byte of those that arrived.
        (Some((sent, unsent, _)), Some((.., received))) => unsent == 0 && received >= sent,
        _ => true,
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`, for one connection.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = Vec::with_capacity(HEADER + 56);
    bytes.extend((HEADER as u32 + 56).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    let tcp = 6;
    bytes.extend([family.as_raw() as u8, tcp, 1 << (INFO - 1), 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        match address {
            IpAddr::V4(address) => {
                bytes.extend(address.octets());
                bytes.extend([0; 12]);
            }
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend([0; 4]);
    // No cookie.
    bytes.extend([0xff; 8]);
    bytes
}

/// The end in an answer. A listening socket on the same port is not the connection.
fn parse(bytes: &[u8], remote_port: u16) -> Option<End> {
    let u16_at = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
    if u16_at(4) != BY_FAMILY || bytes[HEADER + 6..HEADER + 8] != remote_port.to_be_bytes() {
        return None;
    }
    let state = bytes[HEADER + 1];
    let mut at = HEADER + MESSAGE;
    while at + 4 <= bytes.len() {
        let length = usize::from(u16_at(at));
        if u16_at(at + 2) == INFO && state != TIME_WAIT {
            return Some(End { state, counts: counts(&bytes[at + 4..at + length]) });
        }
        at += length.next_multiple_of(4).max(4);
    }
    Some(End { state, counts: None })
}

/// From `struct tcp_info`.
fn counts(info: &[u8]) -> Option<(u64, u32, u64)> {
    let u64_at = |at: usize| Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?));
    let unsent = u32::from_ne_bytes(info.get(144..148)?.try_into().ok()?);
    let received = u64_at(128)?;
    let sent = u64_at(200)? - u64_at(208)?;
    Some((sent, unsent, received))
}

#[test]
fn knows_what_has_arrived() {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (to, _) = listener.accept().unwrap();
    let ends = (from.local_addr().unwrap(), to.local_addr().unwrap());
    let diag = Diag::new();
    // On a busy machine, another thread of the kernel may receive what was sent.
    let settles = || diag.settle_within(Duration::from_secs(30), &[ends]);
    from.write_all(&[0; 1000]).unwrap();
    assert!(settles());
    let (sent, unsent, _) = diag.end(ends.0, ends.1).unwrap().counts.unwrap();
    let receiver = diag.end(ends.1, ends.0).unwrap();
    assert_eq!((sent, unsent, receiver.counts.unwrap().2), (1000, 0, 1000));
    assert_eq!(receiver.state, ESTABLISHED);
    drop((from, to));
    assert!(settles());
}
