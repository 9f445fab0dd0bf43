-- Schema of known.db, version 3. Released: never changed, only followed by another.

-- When an address of a pinned key was noted, and when it led to that key last (0: never). What has led nowhere for a
-- while is dropped from the pin.
CREATE TABLE address (
    identity  BLOB NOT NULL CHECK (length(identity) = 32),
    address   TEXT NOT NULL,
    noted     INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    PRIMARY KEY (identity, address)
) STRICT, WITHOUT ROWID;
