//! Reads what a process shows, without mapping its file: the process may change it at any time,
//! also its length.

use std::mem::offset_of;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::{Errno, pread, retry_on_intr};

use super::{
    Counters, HEADER, LENGTH, MAGIC, Mode, OfferName, REASONS, RECORDS, Reason, Record, STRIDE,
    Totals, address_of,
};
use crate::layout::{HALF, LARGE};

/// Bytes that are read at a time: whole records.
const CHUNK: usize = 64 << 10;
const _: () = assert!(CHUNK.is_multiple_of(STRIDE) && HEADER.is_multiple_of(STRIDE));

/// What a process shows at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Its closed connections.
    pub closed: Closed,
    /// Its open connections, in the order of their records.
    pub connections: Vec<Connection>,
}

/// The closed connections of a process, in sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Closed {
    /// What they have carried.
    pub traffic: Traffic,
    /// How many had a ring.
    pub upgraded: u64,
    /// The connections of them that the kernel did not know.
    pub direct: u64,
    /// How many ended for each reason, in the order of [`REASONS`].
    pub reasons: [u64; REASONS.len()],
}

/// An open connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// What carries its bytes.
    pub mode: Mode,
    /// Why it is on TCP to its end.
    pub reason: Reason,
    /// The address of this end, known from the offer on.
    pub local: Option<SocketAddr>,
    /// The address of the other end, known from the offer on.
    pub remote: Option<SocketAddr>,
    /// What it has carried.
    pub traffic: Traffic,
}

/// The values of [`Counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes received through rings.
    pub ring_in: u64,
    /// Bytes sent through rings.
    pub ring_out: u64,
    /// Bytes received through TCP.
    pub tcp_in: u64,
    /// Bytes sent through TCP.
    pub tcp_out: u64,
    /// Of the bytes through TCP, those after the trigger of the upgrade.
    pub tcp_late: u64,
    /// How often bytes were taken from a ring, or written to one.
    pub messages: u64,
    /// How often a call slept until the peer woke it.
    pub sleeps: u64,
    /// How often a call woke the peer.
    pub wakeups: u64,
}

/// The memory that a process has counted for its rings, in bytes, as its records say: 0 if they are
/// none.
pub fn memory(file: impl AsFd) -> u64 {
    let mut header = [0; size_of::<Totals>()];
    if read_exact(file.as_fd(), &mut header, 0).is_err()
        || word(&header, offset_of!(Totals, magic)) != MAGIC
    {
        return 0;
    }
    let count = |at: usize| word(&header, at).min(RECORDS as u64);
    count(offset_of!(Totals, rings)) * HALF + count(offset_of!(Totals, grown)) * LARGE
}

/// Returns true if the process still holds the offer with this name, as its records say.
pub fn holds(file: impl AsFd, name: u64) -> bool {
    let record = usize::from(OfferName::decode(name).record);
    let at = HEADER + record * STRIDE + offset_of!(Record, offer);
    let mut offer = [0; 8];
    read_exact(file.as_fd(), &mut offer, at as u64).is_ok() && u64::from_ne_bytes(offer) == name
}

/// Why a file cannot be read as records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Its length or its content is not that of records.
    #[error("the file has no records of this version: {0}")]
    NotRecords(&'static str),
    /// A system call failed.
    #[error("the records cannot be read: {0}")]
    System(#[from] Errno),
}

impl Snapshot {
    /// Reads the file. The offset of the open file changes, its content does not.
    ///
    /// # Errors
    /// [`SnapshotError::NotRecords`] if the file has another length, other first bytes, or numbers
    /// that are not in use.
    pub fn read(file: impl AsFd) -> Result<Self, SnapshotError> {
        let file = file.as_fd();
        if u64::try_from(fstat(file)?.st_size) != Ok(LENGTH as u64) {
            return Err(SnapshotError::NotRecords("another length"));
        }
        let mut header = [0; size_of::<Totals>()];
        read_exact(file, &mut header, 0)?;
        let closed = Closed::decode(&header)?;
        let mut connections = Vec::new();
        let mut chunk = vec![0; CHUNK];
        let mut at = HEADER as u64;
        while let Some(start) = next_data(file, at)? {
            let length = CHUNK.min(LENGTH - usize::try_from(start).unwrap_or(LENGTH));
            read_exact(file, &mut chunk[..length], start)?;
            for record in chunk[..length].chunks_exact(STRIDE) {
                connections.extend(Connection::decode(record)?);
            }
            at = start + length as u64;
        }
        Ok(Self { closed, connections })
    }

    /// What all its connections have carried, open and closed.
    pub fn traffic(&self) -> Traffic {
        let mut sum = self.closed.traffic;
        self.connections.iter().for_each(|connection| sum += connection.traffic);
        sum
    }
}

impl Closed {
    fn decode(bytes: &[u8; size_of::<Totals>()]) -> Result<Self, SnapshotError> {
        if word(bytes, offset_of!(Totals, magic)) != MAGIC {
            return Err(SnapshotError::NotRecords("other first bytes"));
        }
        Ok(Self {
            traffic: Traffic::decode(&bytes[offset_of!(Totals, counters)..]),
            upgraded: word(bytes, offset_of!(Totals, upgraded)),
            direct: word(bytes, offset_of!(Totals, direct)),
            reasons: std::array::from_fn(|reason| {
                word(bytes, offset_of!(Totals, reasons) + 8 * reason)
            }),
        })
    }
}

impl Connection {
    /// `bytes` has at least the length of a [`Record`]. `None` if the record is free.
    fn decode(bytes: &[u8]) -> Result<Option<Self>, SnapshotError> {
        let mode = number(bytes, offset_of!(Record, mode));
        let reason = number(bytes, offset_of!(Record, reason));
        let mode = match mode {
            0 => return Ok(None),
            1 => Mode::Tcp,
            2 => Mode::Offered,
            3 => Mode::Ring,
            4 => Mode::Kernel,
            _ => return Err(SnapshotError::NotRecords("an unknown mode")),
        };
        let reason = usize::try_from(reason).ok().and_then(|reason| REASONS.get(reason));
        let reason = *reason.ok_or(SnapshotError::NotRecords("an unknown reason"))?;
        let address = |at: usize| {
            let words = std::array::from_fn(|index| word(bytes, at + 8 * index));
            (words != [0; 3]).then(|| address_of(words))
        };
        Ok(Some(Self {
            mode,
            reason,
            local: address(offset_of!(Record, local)),
            remote: address(offset_of!(Record, remote)),
            traffic: Traffic::decode(&bytes[offset_of!(Record, counters)..]),
        }))
    }
}

impl Traffic {
    /// The bytes that went through rings.
    pub fn ring(&self) -> u64 {
        self.ring_in.saturating_add(self.ring_out)
    }

    /// The bytes that went through TCP.
    pub fn tcp(&self) -> u64 {
        self.tcp_in.saturating_add(self.tcp_out)
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            ring_in: word(bytes, offset_of!(Counters, ring_in)),
            ring_out: word(bytes, offset_of!(Counters, ring_out)),
            tcp_in: word(bytes, offset_of!(Counters, tcp_in)),
            tcp_out: word(bytes, offset_of!(Counters, tcp_out)),
            tcp_late: word(bytes, offset_of!(Counters, tcp_late)),
            messages: word(bytes, offset_of!(Counters, taken))
                .saturating_add(word(bytes, offset_of!(Counters, written))),
            sleeps: word(bytes, offset_of!(Counters, sleeps)),
            wakeups: word(bytes, offset_of!(Counters, wakeups)),
        }
    }
}

impl AddAssign for Traffic {
    /// Numbers of a process that writes anything do not overflow.
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.ring_in, other.ring_in);
        add(&mut self.ring_out, other.ring_out);
        add(&mut self.tcp_in, other.tcp_in);
        add(&mut self.tcp_out, other.tcp_out);
        add(&mut self.tcp_late, other.tcp_late);
        add(&mut self.messages, other.messages);
        add(&mut self.sleeps, other.sleeps);
        add(&mut self.wakeups, other.wakeups);
    }
}

/// A number of eight bytes, as the processor of this machine writes it.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn read_exact(
    file: BorrowedFd<'_>,
    mut bytes: &mut [u8],
    mut at: u64,
) -> Result<(), SnapshotError> {
    while !bytes.is_empty() {
        let length = retry_on_intr(|| pread(file, &mut *bytes, at))?;
        if length == 0 {
            return Err(SnapshotError::NotRecords("it was shortened"));
        }
        bytes = &mut bytes[length..];
        at += length as u64;
    }
    Ok(())
}

/// The start of the first record, from that at `at` on, that is not in a hole of the sparse file.
fn next_data(file: BorrowedFd<'_>, at: u64) -> Result<Option<u64>, SnapshotError> {
    let found = match seek(file, SeekFrom::Data(at)) {
        Ok(found) => found,
        // Nothing but a hole follows.
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not report holes.
        Err(Errno::INVAL) => at,
        Err(error) => return Err(error.into()),
    };
    let start = (found - found % STRIDE as u64).max(at);
    Ok((start < LENGTH as u64).then_some(start))
}

#[cfg(test)]
mod tests;
