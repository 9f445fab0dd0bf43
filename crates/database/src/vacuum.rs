//! Returns the pages of removed rows to the file system.

use rusqlite::Connection;

/// The value of `PRAGMA auto_vacuum` for incremental vacuum.
const INCREMENTAL: u32 = 2;
/// The largest file that is rewritten, in bytes: SQLite holds the copy in memory, because
/// `temp_store` keeps temporary tables out of /tmp.
const MAX_REWRITTEN: u64 = 256 << 20;

/// Lets a new file shrink later. Must precede the first write, even of the journal mode.
pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)
}

/// Rewrites a file of an earlier version, so that it can shrink. A file that is too large, or for
/// which the disk has no space, stays as it is: its free pages are used again.
pub(crate) fn enable(connection: &Connection) -> rusqlite::Result<()> {
    let mode = number(connection, "auto_vacuum")?;
    let bytes = u64::from(number(connection, "page_count")?)
        .saturating_mul(number(connection, "page_size")?.into());
    if mode == INCREMENTAL || bytes > MAX_REWRITTEN {
        return Ok(());
    }
    prepare(connection)?;
    match connection.execute_batch("VACUUM") {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => checkpoint(connection),
    }
}

/// Returns at most `pages` free pages to the file system. Returns true if more are free and can be
/// returned by a further call.
pub(crate) fn release(connection: &Connection, pages: u32) -> rusqlite::Result<bool> {
    let before = number(connection, "freelist_count")?;
    if before == 0 || number(connection, "auto_vacuum")? != INCREMENTAL {
        return Ok(false);
    }
    let mut release = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    // Each step releases one page.
    let mut steps = release.query([])?;
    while steps.next()?.is_some() {}
    drop(steps);
    let left = number(connection, "freelist_count")?;
    let more = left > 0 && left < before;
    if !more {
        checkpoint(connection)?;
    }
    Ok(more)
}

/// Copies the write-ahead log into the file, which then has its new length, and empties the log.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn number(connection: &Connection, name: &str) -> rusqlite::Result<u32> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}
