-- Schema of catalogue.db, version 1. Released: never changed, only followed by another.
-- Times are seconds since 1970; 9223372036854775807 stands for "never".

-- `revision` is that of the last change; changes up to `compacted` are not kept.
CREATE TABLE store (
    only      INTEGER PRIMARY KEY CHECK (only = 1),
    revision  INTEGER NOT NULL CHECK (revision >= 0),
    compacted INTEGER NOT NULL CHECK (compacted BETWEEN 0 AND revision)
) STRICT;

INSERT INTO store VALUES (1, 0, 0);

CREATE TRIGGER store_only_grows BEFORE UPDATE ON store
WHEN new.revision < old.revision OR new.compacted < old.compacted OR new.only <> old.only
BEGIN SELECT raise(ABORT, 'a revision is never used twice'); END;
CREATE TRIGGER store_stays BEFORE DELETE ON store
BEGIN SELECT raise(ABORT, 'a revision is never used twice'); END;
CREATE TRIGGER store_no_replace BEFORE INSERT ON store
BEGIN SELECT raise(ABORT, 'a revision is never used twice'); END;

-- What lies in `blobs`, whole and on disk.
CREATE TABLE blob (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    length INTEGER NOT NULL CHECK (length >= 0),
    stored INTEGER NOT NULL                               -- when it was uploaded last
) STRICT, WITHOUT ROWID;

-- `shown` is the newest version that is not yanked; NULL if there is none.
CREATE TABLE object (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    kind  TEXT NOT NULL CHECK (kind <> ''),
    name  TEXT NOT NULL CHECK (name <> ''),
    shown INTEGER REFERENCES version (id),
    UNIQUE (kind, name)
) STRICT;

CREATE TRIGGER object_is_immutable BEFORE UPDATE ON object
WHEN (new.id, new.kind, new.name) IS NOT (old.id, old.kind, old.name)
BEGIN SELECT raise(ABORT, 'an object never changes its name'); END;
CREATE TRIGGER object_stays BEFORE DELETE ON object
BEGIN SELECT raise(ABORT, 'an object stays'); END;
CREATE TRIGGER object_no_replace BEFORE INSERT ON object
WHEN EXISTS (SELECT 1 FROM object WHERE id = new.id OR (kind = new.kind AND name = new.name))
BEGIN SELECT raise(ABORT, 'an object stays'); END;

-- The order of `id` is that of first publication. What is long stands last, so that the rest is read without it.
CREATE TABLE version (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    object       INTEGER NOT NULL REFERENCES object (id),
    version      TEXT NOT NULL CHECK (version <> ''),
    yanked       INTEGER NOT NULL DEFAULT 0 CHECK (yanked IN (0, 1)),
    revision     INTEGER NOT NULL UNIQUE CHECK (revision > 0),
    published    INTEGER NOT NULL,
    publisher    BLOB CHECK (length(publisher) = 32),     -- NULL: the store's owner
    digest       BLOB NOT NULL CHECK (length(digest) = 32),
    package      BLOB REFERENCES blob (digest),
    package_type TEXT CHECK ((package_type IS NULL) = (package IS NULL)),
    signatures   BLOB NOT NULL CHECK (length(signatures) % 96 = 0),  -- identity and signature of each
    package_description BLOB CHECK ((package_description IS NULL) = (package IS NULL)),
    descriptor   BLOB NOT NULL,
    UNIQUE (object, version)
) STRICT;

CREATE INDEX version_by_package ON version (package) WHERE package IS NOT NULL;

CREATE TRIGGER version_is_immutable BEFORE UPDATE ON version
WHEN (new.id, new.object, new.version, new.published, new.publisher, new.digest, new.package,
      new.package_type, new.signatures, new.package_description, new.descriptor)
     IS NOT
     (old.id, old.object, old.version, old.published, old.publisher, old.digest, old.package,
      old.package_type, old.signatures, old.package_description, old.descriptor)
BEGIN SELECT raise(ABORT, 'a published version never changes'); END;
CREATE TRIGGER version_revision_grows BEFORE UPDATE ON version
WHEN new.revision <= old.revision OR EXISTS (SELECT 1 FROM version WHERE revision = new.revision)
BEGIN SELECT raise(ABORT, 'a revision is never used twice'); END;
CREATE TRIGGER version_stays BEFORE DELETE ON version
BEGIN SELECT raise(ABORT, 'a published version stays'); END;
CREATE TRIGGER version_no_replace BEFORE INSERT ON version
WHEN EXISTS (SELECT 1 FROM version WHERE id = new.id OR revision = new.revision
             OR (object = new.object AND version = new.version))
BEGIN SELECT raise(ABORT, 'a published version never changes'); END;

-- The changes that are kept for those who follow.
CREATE TABLE change (
    revision INTEGER PRIMARY KEY CHECK (revision > 0),
    version  INTEGER NOT NULL REFERENCES version (id),
    event    TEXT NOT NULL CHECK (event IN ('published', 'yanked', 'unyanked'))
) STRICT;

CREATE TRIGGER change_no_update BEFORE UPDATE ON change
BEGIN SELECT raise(ABORT, 'what has changed has changed'); END;
CREATE TRIGGER change_no_delete BEFORE DELETE ON change
WHEN old.revision > (SELECT compacted FROM store)
BEGIN SELECT raise(ABORT, 'what has changed has changed'); END;
CREATE TRIGGER change_no_replace BEFORE INSERT ON change
WHEN EXISTS (SELECT 1 FROM change WHERE revision = new.revision)
BEGIN SELECT raise(ABORT, 'what has changed has changed'); END;

CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    time     INTEGER NOT NULL,
    identity BLOB CHECK (length(identity) = 32),          -- NULL: the store's owner
    action   TEXT NOT NULL,
    key      TEXT,
    version  TEXT,
    outcome  TEXT NOT NULL,
    text     TEXT NOT NULL
) STRICT;

CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = new.id)
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;

-- The words of the version that an object shows; its row is the object's id. `embedded/words.rs` makes them.
-- They come as words, so the simplest tokenizer will do; neither text nor positions are kept. A beginning
-- that has an index of its length is read hit by hit, as a word is. For one that has none FTS5 would first
-- gather all that begins so, which is slow where it is half of everything: so there are many.
CREATE VIRTUAL TABLE search USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii',
    prefix = '2 3 4 5 6 7 8 9 10 11 12 13 14 15 16'
);
