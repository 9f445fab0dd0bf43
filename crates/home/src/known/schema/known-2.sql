-- Schema of known.db, version 2. Released: never changed, only followed by another.

-- Which sessions a statement keeps: their ids, 16 bytes each.
ALTER TABLE followed ADD COLUMN keep BLOB NOT NULL DEFAULT x'' CHECK (length(keep) % 16 = 0);
ALTER TABLE own_succession ADD COLUMN keep BLOB NOT NULL DEFAULT x'' CHECK (length(keep) % 16 = 0);

-- The highest version of the protocol that a node spoke when it was last connected to.
CREATE TABLE node_version (
    node    BLOB PRIMARY KEY CHECK (length(node) = 32),
    version INTEGER NOT NULL CHECK (version > 0)
) STRICT, WITHOUT ROWID;

-- When an address of a pinned key was noted, and when it led to that key last (0: never). What has led nowhere for a
-- while is dropped from the pin.
CREATE TABLE address (
    identity  BLOB NOT NULL CHECK (length(identity) = 32),
    address   TEXT NOT NULL,
    noted     INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    PRIMARY KEY (identity, address)
) STRICT, WITHOUT ROWID;
