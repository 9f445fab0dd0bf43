//! Fills `node.db` with the records of a year.

use std::path::Path;

use levada_core::Identity;
use rusqlite::Connection;

/// The identities of the records.
const PEOPLE: u32 = 100;
/// The sessions that can still be started.
const READY: u32 = 1000;
/// Entries of each session: its request, its start, its end.
const ENTRIES: u32 = 3;
const YEAR: u64 = 365 * 86_400;

/// Adds sessions until `now`, and `entries` entries of the audit log, and returns one of the
/// identities. The database has one session, which is copied.
pub fn fill(database: &Path, entries: u32, now: u64) -> anyhow::Result<String> {
    let connection = Connection::open(database)?;
    let count = entries / ENTRIES;
    connection.execute_batch(&format!(
        "BEGIN;
         CREATE TEMP TABLE person AS
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {PEOPLE})
             SELECT i, randomblob(32) AS identity FROM n;
         INSERT INTO allowed (identity, service, added, source)
             SELECT identity, 'clock', {now}, 'owner' FROM person;
         CREATE TEMP TABLE template AS SELECT * FROM session LIMIT 1;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO session (id, root, service, framing, requester, holder, link, link_id, expires,
                              state, created, started, used_up)
             SELECT randomblob(16), randomblob(32), iif(n.i % 7 = 0, 'echo', 'clock'), framing,
                    person.identity, person.identity, link, randomblob(32),
                    {now} - ({count} - n.i) * {YEAR} / {count} + iif(n.i > {count} - {READY}, 2592000, 3600),
                    iif(n.i > {count} - {READY}, 'requested', 'started'),
                    {now} - ({count} - n.i) * {YEAR} / {count},
                    {now} - ({count} - n.i) * {YEAR} / {count},
                    iif(n.i > {count} - {READY}, 0, 1)
             FROM n JOIN template JOIN person ON person.i = n.i % {PEOPLE};
         INSERT INTO link_use (link, session, used, identity)
             SELECT link_id, id, 9, holder FROM session WHERE used_up = 1;
         INSERT INTO audit (time, identity, operation, service, session, link, outcome, text)
             SELECT created, requester, word.operation, service, id, link_id, word.outcome, ''
             FROM session JOIN (SELECT 1 AS place, 'request' AS operation, 'granted' AS outcome
                                UNION ALL SELECT 2, 'connect', 'started'
                                UNION ALL SELECT 3, 'end', 'ended') AS word
             ORDER BY created, session.id, place;
         COMMIT;"
    ))?;
    let person: [u8; 32] =
        connection.query_row("SELECT identity FROM person WHERE i = 1", [], |row| row.get(0))?;
    Ok(Identity::from_bytes(person).to_string())
}
