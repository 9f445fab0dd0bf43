//! Messages between a process whose sockets are fast and the monitor: one packet of a Unix socket
//! (SOCK_SEQPACKET) each.
//!
//! A message has [`LENGTH`] bytes, with numbers in little-endian order. Descriptors travel with it
//! (SCM_RIGHTS) in the order that its description gives.

use crate::Side;

/// Bytes of every message.
pub const LENGTH: usize = 24;
/// The version of these messages, which [`Request::Hello`] states.
pub const VERSION: u32 = 5;
/// The eventfds of a process that its peers may ring, see [`Waiter::Bell`](crate::Waiter::Bell).
pub const BELLS: usize = 4;
/// Descriptors that wake a process: its [`BELLS`] eventfds, and the file of its
/// [`Marks`](crate::Marks).
pub const WAKING: usize = BELLS + 1;

/// From a process to the monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// The first message of a process, with its records (a memfd, see [`records`](crate::records))
    /// and what wakes it ([`WAKING`]). `run` is the number of the `levada fast` that started it.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Chosen at random by `levada fast`.
        run: u64,
        /// The process, for people: nothing is decided by it.
        pid: u32,
    },
    /// The attached socket becomes a connection to the monitor. A forked child cannot use that of
    /// its parent, and may no longer be allowed to connect.
    Adopt,
    /// The attached TCP socket may be upgraded, if its other end is offered too. The offer holds
    /// for as long as the record of the connection has its name, see
    /// [`Record::offer`](crate::records::Record::offer).
    Offer {
        /// An [`OfferName`](crate::records::OfferName); it is returned in the response.
        connection: u64,
    },
    /// The offer no longer holds. There is no response: this message only frees memory of the
    /// monitor early.
    Withdraw {
        /// As in the offer.
        connection: u64,
    },
    /// Asks for all processes of a run, or of all runs if it is 0. From a connection without
    /// [`Request::Hello`] too.
    List {
        /// As in [`Request::Hello`].
        run: u64,
    },
    /// Keeps the records of processes of this run that have ended, until this connection closes.
    Watch {
        /// As in [`Request::Hello`].
        run: u64,
    },
    /// The attached socket listens, and takes connections by [`Queue`](crate::queue::Queue)s, too.
    /// [`Response::Listening`] answers. Processes that have the same socket take them together.
    Listen {
        /// It is returned in the response.
        question: u32,
        /// The name of the listener, which this process gives to no other one.
        listener: u32,
    },
    /// Asks for the listener that the attached socket is connected to. [`Response::Route`] or
    /// [`Response::NoRoute`] answers.
    Find {
        /// It is returned in the response.
        question: u32,
        /// This process has no pool of the listener any more, and needs another one.
        again: bool,
    },
    /// A listener has ended in this process. There is no response.
    Shut {
        /// As in [`Request::Listen`].
        listener: u32,
    },
}

/// From the monitor to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// Both ends of the connection were offered. The segment is attached and, if `bells`, what
    /// wakes the peer ([`WAKING`]), which is sent once for each pair of processes.
    Paired {
        /// As in the offer.
        connection: u64,
        /// Which end of the segment this process is.
        side: Side,
        /// The number of the other process; 0 if both ends are in this one.
        peer: u32,
        /// Whether what wakes the peer is attached.
        bells: bool,
    },
    /// The socket stays a kernel socket.
    Refused {
        /// As in the offer.
        connection: u64,
        /// Why.
        refusal: Refusal,
    },
    /// A process that had been a peer has ended: its eventfds are of no more use.
    Gone {
        /// Its number.
        peer: u32,
    },
    /// One process of the answer to [`Request::List`], with its records attached.
    Process {
        /// As in [`Request::Hello`].
        pid: u32,
        /// As in [`Request::Hello`].
        run: u64,
        /// Whether it still is connected.
        alive: bool,
    },
    /// The end of the answer to [`Request::List`].
    Listed,
    /// The answer to [`Request::Listen`].
    Listening {
        /// As in the request.
        question: u32,
        /// True if clients find it.
        is_known: bool,
    },
    /// A listener. Attached are, if `pool`, the file of the [`Pool`](crate::Pool) of this process and
    /// the listener, and this one's end of a Unix socketpair, whose other end a process that listens
    /// has; and, if `bells`, what wakes that ([`WAKING`]).
    Route {
        /// As in the request.
        question: u32,
        /// The number of the process that listens; of several, the first.
        peer: u32,
        /// The number of the listener.
        listener: u32,
        /// The slot of the process, see [`Queue`](crate::queue::Queue).
        slot: u8,
        /// The first of the ports that are bound for connections of this process, one for each
        /// segment.
        port: u16,
        /// True for the first route of this process to the listener. Else only the question, the
        /// listener and the port are stated.
        pool: bool,
        /// True if what wakes the peer is attached.
        bells: bool,
    },
    /// There is no such listener, or it cannot be used.
    NoRoute {
        /// As in the request.
        question: u32,
    },
    /// Another process has the listener of a [`Response::Route`], too. Attached are this process's
    /// end of a line to it and, if `bells`, what wakes it.
    Member {
        /// As in the route.
        listener: u32,
        /// The number of the process that listens.
        peer: u32,
        /// Its slot.
        slot: u8,
        /// True if what wakes it is attached.
        bells: bool,
    },
    /// A client has got its first route to a listener of this process. Attached as to
    /// [`Response::Route`].
    Pool {
        /// The number of the client.
        peer: u32,
        /// As in [`Request::Listen`].
        listener: u32,
        /// The slot of this process.
        slot: u8,
        /// The first of the ports of its connections.
        port: u16,
        /// True if what wakes the peer is attached.
        bells: bool,
    },
    /// The answer to [`Request::Hello`], with the [`Account`](crate::Account) and the
    /// [`History`](crate::History) of the user attached.
    Welcome,
}

/// Why the monitor refuses an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The descriptor is no connected TCP socket, or its addresses do not say which connection it
    /// belongs to.
    NotTcp = 1,
    /// The other end was not offered in time: its program is not fast, or is on another host.
    NoPeer = 2,
    /// The monitor has no descriptors or memory left.
    Exhausted = 3,
    /// The process has too many open offers.
    TooMany = 4,
}

/// The bytes are no message of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message is none of this version")]
pub struct Unknown;

/// The fields that every message is made of.
#[derive(Default)]
struct Fields {
    kind: u8,
    small: u8,
    word: u32,
    first: u64,
    second: u64,
}

impl Fields {
    fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0] = self.kind;
        bytes[1] = self.small;
        bytes[4..8].copy_from_slice(&self.word.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..].copy_from_slice(&self.second.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Unknown> {
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| Unknown)?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if bytes[2..4] != [0, 0] {
            return Err(Unknown);
        }
        Ok(Self {
            kind: bytes[0],
            small: bytes[1],
            word: word(4),
            first: long(8),
            second: long(16),
        })
    }
}

impl Request {
    /// The bytes of this message.
    pub fn encode(self) -> [u8; LENGTH] {
        let fields = |kind, first| Fields { kind, first, ..Fields::default() };
        match self {
            Self::Hello { version, run, pid } => {
                Fields { word: pid, second: version.into(), ..fields(1, run) }
            }
            Self::Adopt => fields(2, 0),
            Self::Offer { connection } => fields(3, connection),
            Self::Withdraw { connection } => fields(4, connection),
            Self::List { run } => fields(5, run),
            Self::Watch { run } => fields(6, run),
            Self::Listen { question, listener } => {
                Fields { word: listener, ..fields(7, question.into()) }
            }
            Self::Find { question, again } => {
                Fields { small: again.into(), ..fields(8, question.into()) }
            }
            Self::Shut { listener } => Fields { word: listener, ..fields(9, 0) },
        }
        .encode()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Unknown`] for any other bytes than [`encode`](Self::encode) makes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unknown> {
        let Fields { kind, small, word, first, second } = Fields::decode(bytes)?;
        let request = match kind {
            1 => {
                let version = u32::try_from(second).map_err(|_| Unknown)?;
                Self::Hello { version, run: first, pid: word }
            }
            2 => Self::Adopt,
            3 => Self::Offer { connection: first },
            4 => Self::Withdraw { connection: first },
            5 => Self::List { run: first },
            6 => Self::Watch { run: first },
            7 => Self::Listen { question: first as u32, listener: word },
            8 => Self::Find { question: first as u32, again: small != 0 },
            9 => Self::Shut { listener: word },
            _ => return Err(Unknown),
        };
        if request.encode() == bytes { Ok(request) } else { Err(Unknown) }
    }
}

impl Response {
    /// The bytes of this message, which are those of no request: a monitor that was handed the
    /// other end of its own socket does not answer itself.
    pub fn encode(self) -> [u8; LENGTH] {
        match self {
            Self::Paired { connection, side, peer, bells } => Fields {
                kind: 17,
                small: u8::from(side == Side::Acceptor) | u8::from(bells) << 1,
                word: peer,
                first: connection,
                second: 0,
            },
            Self::Refused { connection, refusal } => {
                Fields { kind: 18, small: refusal as u8, first: connection, ..Fields::default() }
            }
            Self::Gone { peer } => Fields { kind: 19, word: peer, ..Fields::default() },
            Self::Process { pid, run, alive } => {
                Fields { kind: 20, small: alive.into(), word: pid, first: run, second: 0 }
            }
            Self::Listed => Fields { kind: 21, ..Fields::default() },
            Self::Welcome => Fields { kind: 22, ..Fields::default() },
            Self::Route { question, peer, listener, slot, port, pool, bells } => Fields {
                kind: 23,
                small: u8::from(pool) | u8::from(bells) << 1,
                word: peer,
                first: u64::from(question) << 32 | u64::from(listener),
                second: u64::from(slot) << 32 | u64::from(port),
            },
            Self::Pool { peer, listener, slot, port, bells } => Fields {
                kind: 24,
                small: bells.into(),
                word: peer,
                first: listener.into(),
                second: u64::from(slot) << 32 | u64::from(port),
            },
            Self::Member { listener, peer, slot, bells } => Fields {
                kind: 27,
                small: bells.into(),
                word: peer,
                first: listener.into(),
                second: u64::from(slot) << 32,
            },
            Self::NoRoute { question } => Fields { kind: 25, word: question, ..Fields::default() },
            Self::Listening { question, is_known } => {
                Fields { kind: 26, small: is_known.into(), word: question, ..Fields::default() }
            }
        }
        .encode()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// As [`Request::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Unknown> {
        let Fields { kind, small, word, first, second } = Fields::decode(bytes)?;
        let response = match kind {
            17 => {
                let side = if small & 1 == 0 { Side::Connector } else { Side::Acceptor };
                Self::Paired { connection: first, side, peer: word, bells: small & 2 != 0 }
            }
            18 => Self::Refused {
                connection: first,
                refusal: match small {
                    1 => Refusal::NotTcp,
                    2 => Refusal::NoPeer,
                    3 => Refusal::Exhausted,
                    4 => Refusal::TooMany,
                    _ => return Err(Unknown),
                },
            },
            19 => Self::Gone { peer: word },
            20 => Self::Process { pid: word, run: first, alive: small != 0 },
            21 => Self::Listed,
            22 => Self::Welcome,
            23 => Self::Route {
                question: (first >> 32) as u32,
                peer: word,
                listener: first as u32,
                slot: (second >> 32) as u8,
                port: second as u16,
                pool: small & 1 != 0,
                bells: small & 2 != 0,
            },
            24 => Self::Pool {
                peer: word,
                listener: first as u32,
                slot: (second >> 32) as u8,
                port: second as u16,
                bells: small != 0,
            },
            25 => Self::NoRoute { question: word },
            26 => Self::Listening { question: word, is_known: small != 0 },
            27 => Self::Member {
                listener: first as u32,
                peer: word,
                slot: (second >> 32) as u8,
                bells: small != 0,
            },
            _ => return Err(Unknown),
        };
        if response.encode() == bytes { Ok(response) } else { Err(Unknown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let requests = [
            Request::Hello { version: VERSION, run: u64::MAX, pid: 7 },
            Request::Adopt,
            Request::Offer { connection: 1 << 40 },
            Request::Withdraw { connection: 3 },
            Request::List { run: 0 },
            Request::Watch { run: 9 },
            Request::Listen { question: u32::MAX, listener: 3 },
            Request::Find { question: 11, again: false },
            Request::Find { question: 1 << 31, again: true },
            Request::Shut { listener: u32::MAX },
        ];
        for request in requests {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let mut responses = vec![
            Response::Gone { peer: 4 },
            Response::Process { pid: 5, run: 6, alive: true },
            Response::Process { pid: 5, run: 6, alive: false },
            Response::Listed,
            Response::Welcome,
            Response::NoRoute { question: u32::MAX },
        ];
        for flag in [false, true] {
            let listener = u32::MAX;
            let question = 1 << 31;
            responses.push(Response::Listening { question, is_known: flag });
            let slot = 127;
            let port = u16::MAX;
            let bells = !flag;
            responses.push(Response::Pool { peer: 3, listener, slot, port, bells });
            responses.push(Response::Member { listener, peer: 3, slot, bells });
            let pool = flag;
            responses.push(Response::Route {
                question,
                peer: 3,
                listener,
                slot,
                port,
                pool,
                bells,
            });
        }
        for side in [Side::Connector, Side::Acceptor] {
            for bells in [false, true] {
                responses.push(Response::Paired { connection: 1, side, peer: 2, bells });
            }
        }
        for refusal in [Refusal::NotTcp, Refusal::NoPeer, Refusal::Exhausted, Refusal::TooMany] {
            responses.push(Response::Refused { connection: 8, refusal });
        }
        for response in responses {
            assert_eq!(Response::decode(&response.encode()), Ok(response));
            assert_eq!(Request::decode(&response.encode()), Err(Unknown));
        }
    }

    #[test]
    fn other_bytes_are_no_message() {
        bolero::check!().for_each(|bytes| {
            for bytes in [bytes, &bytes[..bytes.len().min(LENGTH)]] {
                if let Ok(request) = Request::decode(bytes) {
                    assert_eq!(request.encode(), bytes);
                }
                if let Ok(response) = Response::decode(bytes) {
                    assert_eq!(response.encode(), bytes);
                    assert_eq!(Request::decode(bytes), Err(Unknown));
                }
            }
        });
    }
}
