-- Schema of node.db, version 3. Released: never changed, only followed by another.

-- Content that this node offers to many peers. Ids are not reused.
CREATE TABLE share (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    name     TEXT NOT NULL CHECK (name <> ''),            -- for lists
    paths    TEXT NOT NULL,                               -- a JSON array of absolute paths
    root     BLOB NOT NULL CHECK (length(root) = 32),     -- BLAKE3 of the content
    length   INTEGER NOT NULL CHECK (length >= 0),        -- of the content, in bytes
    settings TEXT NOT NULL,                               -- a JSON object: how the coordinator serves it
    created  INTEGER NOT NULL,
    stopped  INTEGER
) STRICT;

-- A capability names its share by the root.
CREATE UNIQUE INDEX share_by_root ON share (root) WHERE stopped IS NULL;

CREATE TRIGGER share_stays_stopped BEFORE UPDATE ON share
WHEN old.stopped IS NOT NULL AND new.stopped IS NULL
BEGIN SELECT raise(ABORT, 'a share that was stopped stays stopped'); END;

-- The secret itself is never kept.
CREATE TABLE ticket (
    hash    BLOB PRIMARY KEY CHECK (length(hash) = 32),
    share   INTEGER NOT NULL REFERENCES share (id),
    expires INTEGER NOT NULL,
    peers   INTEGER NOT NULL CHECK (peers > 0),           -- how many identities may exchange it
    bound   BLOB CHECK (length(bound) = 32),              -- NULL: each bearer may exchange it
    created INTEGER NOT NULL,
    revoked INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX ticket_by_share ON ticket (share);

CREATE TRIGGER ticket_stays_revoked BEFORE UPDATE ON ticket
WHEN old.revoked IS NOT NULL AND new.revoked IS NULL
BEGIN SELECT raise(ABORT, 'a ticket that was revoked stays revoked'); END;

-- The identities that have exchanged a ticket, and the session that each received.
CREATE TABLE ticket_peer (
    hash     BLOB NOT NULL REFERENCES ticket (hash),
    identity BLOB NOT NULL CHECK (length(identity) = 32),
    session  BLOB NOT NULL UNIQUE REFERENCES session (id),
    PRIMARY KEY (hash, identity)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER ticket_peer_stays BEFORE DELETE ON ticket_peer
BEGIN SELECT raise(ABORT, 'an exchange is counted for ever'); END;
