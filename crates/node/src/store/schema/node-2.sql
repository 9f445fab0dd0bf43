-- Schema of node.db, version 2. Released: never changed, only followed by another.

-- Sessions that an identity requested: those for others end with its key.
CREATE INDEX session_by_requester ON session (requester);

-- Identities of chains by which a session was started. A succession is kept only for keys that are known here, so
-- that peers without a right cannot fill the disk.
CREATE TABLE known_identity (
    identity BLOB PRIMARY KEY CHECK (length(identity) = 32)
) STRICT, WITHOUT ROWID;

INSERT INTO known_identity (identity)
SELECT DISTINCT identity FROM audit WHERE operation = 'connect' AND identity IS NOT NULL;

-- Which sessions the statement keeps: their ids, 16 bytes each.
ALTER TABLE succession ADD COLUMN keep BLOB NOT NULL DEFAULT x'' CHECK (length(keep) % 16 = 0);

-- The name under which this home is to know the guest that redeems the invitation.
ALTER TABLE invitation ADD COLUMN name TEXT CHECK (name <> '');
