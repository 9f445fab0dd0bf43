//! What a process shows of its connections: one record each, in a memfd that the monitor hands to `levada fast top`.
//!
//! The process writes, everyone else only reads. A reader may see a record while it changes: its numbers are for people.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

mod snapshot;

pub use snapshot::{Closed, Connection, Snapshot, SnapshotError, Traffic, memory};

/// How many connections of a process can be fast at a time. More stay on TCP.
pub const RECORDS: usize = 16_384;
/// Bytes from one record to the next. What follows a [`Record`] is the process's own.
pub const STRIDE: usize = 1024;
/// Bytes before the first record: [`Totals`].
pub const HEADER: usize = 4096;
/// The length of the file, in bytes. It is sparse.
pub const LENGTH: usize = HEADER + RECORDS * STRIDE;
/// The first eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lvrecs\0\x02");

/// What carries the bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mode {
    /// The record is not in use.
    Free = 0,
    /// TCP; an upgrade may follow.
    Tcp = 1,
    /// TCP; the connection was offered to the monitor.
    Offered = 2,
    /// A ring, in at least one direction.
    Ring = 3,
    /// TCP to the end, for a [`Reason`].
    Kernel = 4,
}

/// Why a connection is on TCP to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
pub enum Reason {
    /// It is not, or not yet.
    None = 0,
    /// It was closed before its second exchange.
    Short = 1,
    /// The program at the other end is not fast.
    NoPeer = 2,
    /// The monitor was not there, or refused.
    Monitor = 3,
    /// Too many connections, or no memory.
    Exhausted = 4,
    /// The program used it in a way that rings do not have.
    Unsupported = 5,
    /// More than one process has it.
    Forked = 6,
    /// It was handed to another program, by exec or in a message.
    Handed = 7,
    /// The peer asked for TCP.
    Peer = 8,
    /// The peer wrote what no correct peer writes into the shared memory.
    Corrupt = 9,
}

/// All reasons, in the order of their numbers.
pub const REASONS: [Reason; 10] = [
    Reason::None,
    Reason::Short,
    Reason::NoPeer,
    Reason::Monitor,
    Reason::Exhausted,
    Reason::Unsupported,
    Reason::Forked,
    Reason::Handed,
    Reason::Peer,
    Reason::Corrupt,
];

/// Numbers of bytes, calls and sleeps.
#[repr(C)]
#[derive(Default)]
pub struct Counters {
    /// Bytes received and sent through rings.
    pub ring_in: AtomicU64,
    /// See `ring_in`.
    pub ring_out: AtomicU64,
    /// Bytes received and sent through TCP.
    pub tcp_in: AtomicU64,
    /// See `tcp_in`.
    pub tcp_out: AtomicU64,
    /// Of the bytes through TCP, those after the trigger of the upgrade.
    pub tcp_late: AtomicU64,
    /// How often bytes were taken from a ring, and written to one.
    pub taken: AtomicU64,
    /// See `taken`.
    pub written: AtomicU64,
    /// How often a call slept until the peer woke it.
    pub sleeps: AtomicU64,
    /// How often a call woke the peer.
    pub wakeups: AtomicU64,
}

/// One connection.
#[repr(C)]
#[derive(Default)]
pub struct Record {
    /// A [`Mode`].
    pub mode: AtomicU32,
    /// A [`Reason`].
    pub reason: AtomicU32,
    /// Both addresses, known from the offer on: 16 bytes as in IPv6, and the port.
    pub local: [AtomicU64; 3],
    /// See `local`.
    pub remote: [AtomicU64; 3],
    /// What the connection has carried.
    pub counters: Counters,
}

/// The connections of a process that are closed, and the memory of those that are open.
#[repr(C)]
#[derive(Default)]
pub struct Totals {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// What they have carried.
    pub counters: Counters,
    /// How many had a ring.
    pub upgraded: AtomicU64,
    /// How many ended for each reason, by its number.
    pub reasons: [AtomicU64; REASONS.len()],
    /// Open connections that have a segment.
    pub rings: AtomicU64,
    /// Those of them whose outbound ring has grown.
    pub grown: AtomicU64,
}

const _: () = assert!(size_of::<Record>() <= STRIDE && size_of::<Totals>() <= HEADER);

impl Record {
    /// Notes an address for people.
    pub fn set_address(words: &[AtomicU64; 3], address: SocketAddr) {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let bits = ip.to_bits();
        words[0].store((bits >> 64) as u64, Ordering::Relaxed);
        words[1].store(bits as u64, Ordering::Relaxed);
        words[2].store(address.port().into(), Ordering::Relaxed);
    }

    /// The address that was noted.
    pub fn address(words: &[AtomicU64; 3]) -> SocketAddr {
        address_of(words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}

/// The address that the words stand for.
fn address_of([high, low, port]: [u64; 3]) -> SocketAddr {
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    SocketAddr::new(ip.to_canonical(), port as u16)
}
