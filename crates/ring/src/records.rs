//! The connections of a process, for `levada fast top`: one record each, in a memfd that the
//! monitor hands out.
//!
//! The process and its forked children write; the file is sealed, so that all others can only read
//! it. A reader may see a record while it changes: its numbers are for people. Nothing in it is an
//! address of memory, and no process acts on it, with one exception: the monitor compares
//! [`Record::offer`] with an offer that it has.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

mod snapshot;
mod written;

pub use snapshot::{Closed, Connection, Snapshot, SnapshotError, Traffic, holds, memory};
pub use written::Records;

/// How many connections of a process can be fast at a time. More stay on TCP.
pub const RECORDS: usize = 16_384;
/// Bytes from one record to the next.
pub const STRIDE: usize = 256;
/// Bytes before the first record: [`Totals`].
pub const HEADER: usize = 4096;
/// The length of the file, in bytes. It is sparse.
pub const LENGTH: usize = HEADER + RECORDS * STRIDE;
/// The first eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lvrecs\0\x03");

/// No process can map it for writing any more, write to it, or change its length. Mappings that
/// exist stay, also in children of a fork.
const SEALS: SealFlags = SealFlags::FUTURE_WRITE.union(crate::sealed::SEALS);

/// Returns true if a process that receives the file can only read it.
pub fn is_sealed(file: impl AsFd) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
}

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

impl Counters {
    /// All of them, in a fixed order.
    pub fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        let bytes = [&self.ring_in, &self.ring_out, &self.tcp_in, &self.tcp_out, &self.tcp_late];
        let calls = [&self.taken, &self.written, &self.sleeps, &self.wakeups];
        bytes.into_iter().chain(calls)
    }
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
    /// The name of the offer to the monitor that holds; 0 without one. Closing the connection ends
    /// the offer by this word, without a message to the monitor.
    pub offer: AtomicU64,
}

/// The name of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfferName {
    /// Different for each offer of a process.
    pub serial: u64,
    /// The number that the process has for the connection.
    pub connection: u16,
    /// The number of its record.
    pub record: u16,
}

impl OfferName {
    const BITS: u32 = RECORDS.ilog2();
    const MASK: u64 = RECORDS as u64 - 1;

    /// The name as a number, which is not 0.
    pub fn encode(self) -> u64 {
        let Self { serial, connection, record } = self;
        let serial = serial % (1 << (63 - 2 * Self::BITS));
        1 << 63
            | serial << (2 * Self::BITS)
            | u64::from(connection) << Self::BITS
            | u64::from(record)
    }

    /// The name that this number stands for. Each number stands for one: both other numbers are
    /// less than [`RECORDS`].
    pub fn decode(number: u64) -> Self {
        Self {
            serial: number >> (2 * Self::BITS) & (u64::MAX >> (2 * Self::BITS + 1)),
            connection: (number >> Self::BITS & Self::MASK) as u16,
            record: (number & Self::MASK) as u16,
        }
    }
}

impl Record {
    /// A record that shows nothing.
    pub const fn new() -> Self {
        let counters = Counters {
            ring_in: AtomicU64::new(0),
            ring_out: AtomicU64::new(0),
            tcp_in: AtomicU64::new(0),
            tcp_out: AtomicU64::new(0),
            tcp_late: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            written: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
        };
        Self {
            mode: AtomicU32::new(0),
            reason: AtomicU32::new(0),
            local: [const { AtomicU64::new(0) }; 3],
            remote: [const { AtomicU64::new(0) }; 3],
            counters,
            offer: AtomicU64::new(0),
        }
    }
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
    /// Closed connections that the kernel did not know.
    pub direct: AtomicU64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_offers_are_read_as_they_were_written() {
        for serial in [0, 1, (1 << 35) - 1] {
            for (connection, record) in [(0, 0), (1, 2), (RECORDS as u16 - 1, RECORDS as u16 - 1)] {
                let name = OfferName { serial, connection, record };
                assert_ne!(name.encode(), 0);
                assert_eq!(OfferName::decode(name.encode()), name);
            }
        }
        bolero::check!().with_type::<u64>().for_each(|number| {
            let OfferName { connection, record, .. } = OfferName::decode(*number);
            assert!(usize::from(connection) < RECORDS && usize::from(record) < RECORDS);
        });
    }
}
