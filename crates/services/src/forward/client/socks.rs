//! SOCKS 5 (RFC 1928) towards programs on this machine: CONNECT, without authentication.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::forward::{Address, Cause, Host, HostPort, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// How long a program may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a program may take to close after a failure reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
/// Maximum length of a request in bytes: version, command, a zero, type, length, name, port.
const MAX_REQUEST: usize = 4 + 1 + 255 + 2;

/// Replies (RFC 1928 section 6).
const SUCCEEDED: u8 = 0;
const GENERAL: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const NETWORK_UNREACHABLE: u8 = 3;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const EXPIRED: u8 = 6;
const COMMAND: u8 = 7;
const ADDRESS_TYPE: u8 = 8;

/// The state of a request after its first bytes.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    /// It is incomplete: at least this total number of bytes is required.
    More(usize),
    /// It requests a connection to this address.
    Connect(Address),
    /// It is valid and not supported: this reply must be sent.
    Refused(u8),
    /// It is malformed.
    Malformed,
}

/// Receives a request, and returns its target. `None` if it is not complete in time, malformed or
/// not supported; a reply has been sent where the protocol has one.
pub async fn accept(socket: &mut Socket) -> Option<Address> {
    timeout(REQUEST_TIMEOUT, async {
        negotiate_method(socket).await?;
        request(socket).await
    })
    .await
    .ok()?
}

/// Replies that the target is connected. `false` if the program has closed.
pub async fn send_success(socket: &mut Socket) -> bool {
    reply(socket, SUCCEEDED).await.is_some()
}

/// Replies that the target is not connected, with the cause.
pub async fn send_failure(socket: &mut Socket, cause: Cause) {
    let code = match cause {
        Cause::Refused => REFUSED,
        Cause::TimedOut => EXPIRED,
        Cause::Unreachable => NETWORK_UNREACHABLE,
        Cause::UnknownName => HOST_UNREACHABLE,
        Cause::NotAllowed => NOT_ALLOWED,
        Cause::Busy | Cause::Failed => GENERAL,
    };
    reply(socket, code).await;
}

/// Closes the connection after the reply. Further input of the program is read and discarded first:
/// closing a socket with unread input resets it, and the reply may be lost.
pub async fn close(mut socket: Socket) {
    let rest = async {
        socket.shutdown().await?;
        let mut rest = [0; 1024];
        while socket.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, rest).await;
    socket.end();
}

async fn negotiate_method(socket: &mut Socket) -> Option<()> {
    let mut head = [0; 2];
    socket.read_exact(&mut head).await.ok()?;
    let [VERSION, count] = head else { return None };
    let mut methods = vec![0; usize::from(count)];
    socket.read_exact(&mut methods).await.ok()?;
    let supported = methods.contains(&NO_AUTHENTICATION);
    let method = if supported { NO_AUTHENTICATION } else { NO_METHOD };
    socket.write_all(&[VERSION, method]).await.ok()?;
    supported.then_some(())
}

async fn request(socket: &mut Socket) -> Option<Address> {
    let mut bytes = [0; MAX_REQUEST];
    let mut length = 0;
    loop {
        match decode(&bytes[..length]) {
            Decoded::More(required) => {
                // No further byte is read: those after the request belong to the target.
                socket.read_exact(&mut bytes[length..required]).await.ok()?;
                length = required;
            }
            Decoded::Connect(address) => return Some(address),
            Decoded::Refused(code) => {
                reply(socket, code).await;
                return None;
            }
            Decoded::Malformed => return None,
        }
    }
}

fn decode(bytes: &[u8]) -> Decoded {
    let &[version, command, _, kind, first, ..] = bytes else { return Decoded::More(5) };
    if version != VERSION {
        return Decoded::Malformed;
    }
    let (start, length) = match kind {
        IPV4 => (4, 4),
        IPV6 => (4, 16),
        NAME => (5, usize::from(first)),
        _ => return Decoded::Refused(ADDRESS_TYPE),
    };
    let whole = start + length + 2;
    let Some((host, port)) = bytes.get(start..whole).and_then(|rest| rest.split_last_chunk::<2>())
    else {
        return Decoded::More(whole);
    };
    if command != CONNECT {
        return Decoded::Refused(COMMAND);
    }
    let host = match host_of(kind, host) {
        Some(host) => host,
        None => return Decoded::Refused(GENERAL),
    };
    Decoded::Connect(Address::Tcp(HostPort { host, port: u16::from_be_bytes(*port) }))
}

fn host_of(kind: u8, bytes: &[u8]) -> Option<Host> {
    match kind {
        IPV4 => Some(Host::Address(Ipv4Addr::from(*bytes.first_chunk()?).into())),
        IPV6 => {
            let address = IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?));
            Some(Host::Address(address.to_canonical()))
        }
        _ => {
            // Some programs send a typed address as a name, without brackets.
            let text = str::from_utf8(bytes).ok()?;
            text.parse().or_else(|_| format!("[{text}]").parse()).ok()
        }
    }
}

/// Sends a reply. Its address is zero, because the socket that it describes is at the node.
async fn reply(socket: &mut Socket, code: u8) -> Option<()> {
    let reply = [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0];
    timeout(REQUEST_TIMEOUT, socket.write_all(&reply)).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_requests_never_panic_and_ask_for_a_bounded_length() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| match decode(bytes) {
            Decoded::More(length) => assert!(length > bytes.len() && length <= MAX_REQUEST),
            Decoded::Connect(address) => {
                assert_eq!(address.to_string().parse(), Ok(address));
            }
            Decoded::Refused(_) | Decoded::Malformed => {}
        });
    }

    #[test]
    fn decodes_requests() {
        let connect = |rest: &[u8]| decode(&[&[5, 1, 0], rest].concat());
        let to = |text: &str| Decoded::Connect(text.parse().unwrap());
        assert_eq!(connect(&[1, 192, 0, 2, 1, 1, 187]), to("192.0.2.1:443"));
        let v6 = [&[4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 80]].concat();
        assert_eq!(connect(&v6), to("[::1]:80"));
        assert_eq!(connect(b"\x03\x0cwww.example.\x00\x50"), to("www.example:80"));
        assert_eq!(connect(b"\x03\x09192.0.2.1\x00\x50"), to("192.0.2.1:80"));
        assert_eq!(connect(b"\x03\x03::1\x00\x50"), to("[::1]:80"));
        assert_eq!(connect(b"\x03\x03a:1\x00\x50"), Decoded::Refused(GENERAL));
        assert_eq!(connect(b"\x03\x00\x00\x50"), Decoded::Refused(GENERAL));
        assert_eq!(connect(b"\x02\x00\x00\x50"), Decoded::Refused(ADDRESS_TYPE));
        assert_eq!(decode(&[5, 2, 0, 1, 1, 1, 1, 1, 0, 1]), Decoded::Refused(COMMAND));
        assert_eq!(decode(&[4, 1, 0, 80, 1, 1, 1, 1, 0]), Decoded::Malformed);
        assert_eq!(decode(b""), Decoded::More(5));
        assert_eq!(connect(&[3, 255]), Decoded::More(MAX_REQUEST));
    }
}
