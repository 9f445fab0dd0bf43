-- Schema of replica.db, version 1, on top of catalogue.db's.

-- `log` names the log that this is a replica of; `applied` is its last record that is in this database, and `last` the SHA-256
-- of that record. `filled`: the replica once had all of the log.
CREATE TABLE replica (
    only    INTEGER PRIMARY KEY CHECK (only = 1),
    log     BLOB NOT NULL CHECK (length(log) = 16),
    applied INTEGER NOT NULL CHECK (applied >= 0),
    last    BLOB NOT NULL CHECK (length(last) = 32),
    filled  INTEGER NOT NULL CHECK (filled IN (0, 1))
) STRICT;

CREATE TRIGGER replica_only_grows BEFORE UPDATE ON replica
WHEN new.applied < old.applied OR new.filled < old.filled OR (new.log, new.only) IS NOT (old.log, old.only)
BEGIN SELECT raise(ABORT, 'a replica only grows'); END;

-- Where the parts of a blob are: `record` is the last record of the log about it.
CREATE TABLE stored_blob (
    digest BLOB PRIMARY KEY REFERENCES blob (digest) ON DELETE CASCADE,
    record INTEGER NOT NULL CHECK (record > 0),
    upload BLOB NOT NULL CHECK (length(upload) = 16)
) STRICT, WITHOUT ROWID;
