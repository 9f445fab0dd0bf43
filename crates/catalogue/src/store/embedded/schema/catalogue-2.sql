-- Schema of catalogue.db, version 2. Released: never changed, only followed by another.

-- The hash tree of a blob by BLAKE3, for transfers in parts that are verified one by one: its root, the length of a
-- part, and the value of each part in order. It follows from the blob; what is signed and checked is `digest`.
CREATE TABLE outboard (
    digest BLOB PRIMARY KEY REFERENCES blob (digest) ON DELETE CASCADE,
    root   BLOB NOT NULL CHECK (length(root) = 32),
    part   INTEGER NOT NULL CHECK (part > 0),
    hashes BLOB NOT NULL CHECK (length(hashes) % 32 = 0)
) STRICT;
