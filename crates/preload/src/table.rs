//! Which connection a descriptor of this process is.

use std::sync::atomic::{AtomicU32, Ordering};

use levada_ring::records::RECORDS;

use crate::arena;
use crate::connection::Connection;

/// Descriptors from here on are never fast.
pub const DESCRIPTORS: usize = 1 << 16;

/// For each descriptor the number of its connection, plus 1.
static NUMBERS: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
/// For each connection, the descriptors of this process that it has.
static DUPLICATES: [AtomicU32; RECORDS] = [const { AtomicU32::new(0) }; RECORDS];
/// No descriptor from here on is in the table.
static END: AtomicU32 = AtomicU32::new(0);

/// A connection that a descriptor stands for.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The descriptor.
    pub fd: i32,
    /// The number of its record.
    pub number: u32,
    /// Its state.
    pub connection: &'static Connection,
}

fn cell(fd: i32) -> Option<&'static AtomicU32> {
    usize::try_from(fd).ok().and_then(|fd| NUMBERS.get(fd))
}

/// The connection of a descriptor, if it is one that can be fast.
pub fn find(fd: i32) -> Option<Entry> {
    let number = cell(fd)?.load(Ordering::Acquire).checked_sub(1)?;
    arena::connection(number).map(|connection| Entry { fd, number, connection })
}

/// Notes one more descriptor of a connection.
pub fn insert(fd: i32, number: u32) {
    let (Some(cell), Some(duplicates)) = (cell(fd), DUPLICATES.get(number as usize)) else {
        return;
    };
    duplicates.fetch_add(1, Ordering::Relaxed);
    cell.store(number + 1, Ordering::Release);
    END.fetch_max(fd.unsigned_abs() + 1, Ordering::Relaxed);
}

/// Removes a descriptor. The entry that it had, and whether it was the connection's last one in
/// this process.
pub fn remove(fd: i32) -> Option<(Entry, bool)> {
    let entry = find(fd)?;
    cell(fd)?.store(0, Ordering::Release);
    let last = DUPLICATES.get(entry.number as usize)?.fetch_sub(1, Ordering::AcqRel) == 1;
    Some((entry, last))
}

/// Whether this process has more than one descriptor of a connection.
pub fn has_duplicates(entry: Entry) -> bool {
    DUPLICATES.get(entry.number as usize).is_some_and(|count| count.load(Ordering::Relaxed) > 1)
}

/// Forgets how many descriptors a connection has, as the process ends. `true` for the first one of
/// it.
pub fn forget(entry: Entry) -> bool {
    DUPLICATES.get(entry.number as usize).is_some_and(|count| count.swap(0, Ordering::AcqRel) > 0)
}

/// All descriptors that are connections.
pub fn entries() -> impl Iterator<Item = Entry> {
    (0..END.load(Ordering::Relaxed)).filter_map(|fd| i32::try_from(fd).ok().and_then(find))
}

/// The numbers of the connections that `is_wanted` accepts, each once.
pub fn numbers(is_wanted: impl Fn(&Entry) -> bool) -> Vec<u32> {
    let mut numbers: Vec<u32> = entries().filter(is_wanted).map(|entry| entry.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// A fork follows: each connection has one holder more.
pub fn before_fork() {
    for (number, duplicates) in DUPLICATES.iter().enumerate().take(arena::used()) {
        if duplicates.load(Ordering::Relaxed) > 0
            && let Some(connection) = u32::try_from(number).ok().and_then(arena::connection)
        {
            connection.holders.fetch_add(1, Ordering::Relaxed);
        }
    }
}
