-- Schema of known.db, version 1. Released: never changed, only followed by another.
-- Times are seconds since 1970; 9223372036854775807 stands for "never".

-- Which key stands behind a nickname. `addresses` is a JSON array of strings.
CREATE TABLE pin (
    name      TEXT PRIMARY KEY CHECK (name <> ''),
    identity  BLOB NOT NULL CHECK (length(identity) = 32),
    addresses TEXT NOT NULL,
    added     INTEGER NOT NULL
) STRICT;

CREATE INDEX pin_by_identity ON pin (identity);

-- Capabilities that passed through this home; never their secrets. `link` is the last link's id.
CREATE TABLE capability (
    link    BLOB PRIMARY KEY CHECK (length(link) = 32),
    node    BLOB NOT NULL CHECK (length(node) = 32),
    holder  BLOB NOT NULL CHECK (length(holder) = 32),
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Keys of others that are dead, and what took their place: the statement signed by the old key.
CREATE TABLE followed (
    old       BLOB PRIMARY KEY CHECK (length(old) = 32),
    new       BLOB NOT NULL CHECK (length(new) = 32),
    time      INTEGER NOT NULL,
    signature BLOB NOT NULL CHECK (length(signature) = 64)
) STRICT, WITHOUT ROWID;

-- The same for the keys of this home, in the order in which they were rotated.
CREATE TABLE own_succession (
    position  INTEGER PRIMARY KEY AUTOINCREMENT,
    old       BLOB NOT NULL UNIQUE CHECK (length(old) = 32),
    new       BLOB NOT NULL UNIQUE CHECK (length(new) = 32),
    time      INTEGER NOT NULL,
    signature BLOB NOT NULL CHECK (length(signature) = 64)
) STRICT;

-- Which node has been told that `new` is the key of this home.
CREATE TABLE acknowledged (
    node BLOB NOT NULL CHECK (length(node) = 32),
    new  BLOB NOT NULL CHECK (length(new) = 32),
    PRIMARY KEY (node, new)
) STRICT, WITHOUT ROWID;
