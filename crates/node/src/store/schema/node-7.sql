-- Schema of node.db, version 7. Released: never changed, only followed by another.

-- Groups of the owner, as `levada group` changes them.
CREATE TABLE local_group (
    name  TEXT PRIMARY KEY CHECK (name <> ''),
    added INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A member is an identity, or all members of another group.
CREATE TABLE group_member (
    name     TEXT NOT NULL REFERENCES local_group (name) ON DELETE CASCADE,
    identity BLOB CHECK (length(identity) = 32),
    subgroup TEXT CHECK (subgroup <> ''),
    added    INTEGER NOT NULL,
    CHECK ((identity IS NULL) <> (subgroup IS NULL))
) STRICT;

CREATE UNIQUE INDEX group_member_once ON group_member (name, ifnull(identity, x''), ifnull(subgroup, ''));

-- Rights of the members of a group; the group may be one of the configuration or of another node.
CREATE TABLE group_right (
    name    TEXT NOT NULL CHECK (name <> ''),
    service TEXT CHECK (service <> ''),                   -- NULL: every service
    added   INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX group_right_once ON group_right (name, ifnull(service, ''));

-- The group by which a session was requested: it is started only while a right of its requester exists.
ALTER TABLE session ADD COLUMN by_group TEXT CHECK (by_group <> '');

-- The newest set of groups of each signer and name. Its version never goes back.
CREATE TABLE group_set (
    signer  BLOB NOT NULL CHECK (length(signer) = 32),
    name    TEXT NOT NULL CHECK (name <> ''),
    version INTEGER NOT NULL CHECK (version > 0),
    hash    BLOB NOT NULL CHECK (length(hash) = 32),
    text    TEXT NOT NULL,
    added   INTEGER NOT NULL,
    PRIMARY KEY (signer, name)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER group_set_never_goes_back BEFORE UPDATE ON group_set
WHEN new.version < old.version OR new.version = old.version AND new.hash <> old.hash
BEGIN SELECT raise(ABORT, 'a version of a group set is never replaced by another one of it'); END;
CREATE TRIGGER group_set_stays BEFORE DELETE ON group_set
BEGIN SELECT raise(ABORT, 'the version of a group set is kept'); END;

-- The sets that this node signs: their last version, and the content of the next.
CREATE TABLE group_export (
    name     TEXT PRIMARY KEY CHECK (name <> ''),
    version  INTEGER NOT NULL CHECK (version > 0),
    content  TEXT NOT NULL,                               -- a JSON array of names
    lifetime INTEGER NOT NULL CHECK (lifetime > 0),       -- seconds
    text     TEXT NOT NULL,
    signed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER group_export_only_grows BEFORE UPDATE ON group_export WHEN new.version <= old.version
BEGIN SELECT raise(ABORT, 'each group set has a version of its own'); END;
CREATE TRIGGER group_export_stays BEFORE DELETE ON group_export
BEGIN SELECT raise(ABORT, 'the version of a group set is kept'); END;
