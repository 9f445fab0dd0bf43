//! The records of connections that the monitor hands out: see [`levada_ring::records`].

use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;

use levada_ring::records::{Record, Records, Totals};
use rustix::io::Errno;

use crate::private;

/// The file; -1 before [`create`].
static FILE: AtomicI32 = AtomicI32::new(-1);
static RECORDS: OnceLock<Records> = OnceLock::new();
/// Stands for all before [`create`].
static NONE: Record = Record::new();

/// Makes the file.
///
/// # Errors
/// Those of [`Records::create`]. All connections then stay on TCP.
pub fn create() -> Result<(), Errno> {
    let (file, records) = Records::create()?;
    private::keep_in(&FILE, file)?;
    let _ = RECORDS.set(records);
    Ok(())
}

/// The home of the file, for the monitor.
pub fn file() -> &'static AtomicI32 {
    &FILE
}

/// The sums over closed connections.
pub fn totals() -> Option<&'static Totals> {
    RECORDS.get().map(Records::totals)
}

/// The record with this number, which may be from memory that another process can write.
#[inline]
pub fn record(number: u32) -> &'static Record {
    RECORDS.get().map_or(&NONE, |records| records.record(number))
}

/// Takes a free record; returns its number. `None` if all are in use.
pub fn allocate() -> Option<u32> {
    RECORDS.get()?.allocate()
}

/// Gives a record back.
pub fn release(number: u32) {
    if let Some(records) = RECORDS.get() {
        records.release(number);
    }
}
