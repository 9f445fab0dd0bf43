-- Schema of known.db, version 2. Released: never changed, only followed by another.

-- Which sessions a statement keeps: their ids, 16 bytes each.
ALTER TABLE followed ADD COLUMN keep BLOB NOT NULL DEFAULT x'' CHECK (length(keep) % 16 = 0);
ALTER TABLE own_succession ADD COLUMN keep BLOB NOT NULL DEFAULT x'' CHECK (length(keep) % 16 = 0);

-- The highest version of the protocol that a node spoke when it was last connected to.
CREATE TABLE node_version (
    node    BLOB PRIMARY KEY CHECK (length(node) = 32),
    version INTEGER NOT NULL CHECK (version > 0)
) STRICT, WITHOUT ROWID;
