-- Schema of node.db, version 1. Released: never changed, only followed by another.
-- Times are seconds since 1970; 9223372036854775807 stands for "never".

-- The highest time seen, so that a clock that goes back revives nothing.
CREATE TABLE clock (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    time INTEGER NOT NULL
) STRICT;

CREATE TABLE session (
    id        BLOB PRIMARY KEY CHECK (length(id) = 16),
    root      BLOB NOT NULL CHECK (length(root) = 32),
    service   TEXT NOT NULL CHECK (service <> ''),
    framing   TEXT NOT NULL,
    requester BLOB NOT NULL CHECK (length(requester) = 32),
    holder    BLOB NOT NULL CHECK (length(holder) = 32),  -- whom the first link names
    link      BLOB NOT NULL,                              -- the first link, encoded
    link_id   BLOB NOT NULL UNIQUE CHECK (length(link_id) = 32),
    expires   INTEGER NOT NULL,
    state     TEXT NOT NULL DEFAULT 'requested'
              CHECK (state IN ('requested', 'started', 'terminated', 'revoked', 'expired')),
    created   INTEGER NOT NULL,
    started   INTEGER,                                    -- the first start
    ended     INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX session_by_time ON session (created);
CREATE INDEX session_by_holder ON session (holder);
CREATE INDEX session_unstarted ON session (expires) WHERE state = 'requested';

CREATE TRIGGER session_stays_ended BEFORE UPDATE ON session
WHEN old.state IN ('terminated', 'revoked', 'expired') AND new.state IN ('requested', 'started')
BEGIN SELECT raise(ABORT, 'a session that has ended stays ended'); END;

CREATE TABLE link_use (
    link    BLOB PRIMARY KEY CHECK (length(link) = 32),
    session BLOB NOT NULL REFERENCES session (id),
    used    INTEGER NOT NULL CHECK (used > 0)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER link_use_only_grows BEFORE UPDATE ON link_use WHEN new.used < old.used
BEGIN SELECT raise(ABORT, 'a use is never given back'); END;
CREATE TRIGGER link_use_stays BEFORE DELETE ON link_use
BEGIN SELECT raise(ABORT, 'a use is never given back'); END;

CREATE TABLE revocation (
    link     BLOB PRIMARY KEY CHECK (length(link) = 32),
    session  BLOB NOT NULL REFERENCES session (id),
    identity BLOB NOT NULL CHECK (length(identity) = 32),
    time     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER revocation_stays BEFORE DELETE ON revocation
BEGIN SELECT raise(ABORT, 'a revocation is for ever'); END;

CREATE TABLE audit (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    time      INTEGER NOT NULL,
    identity  BLOB CHECK (length(identity) = 32),
    operation TEXT NOT NULL,
    service   TEXT,
    session   BLOB CHECK (length(session) = 16),
    link      BLOB CHECK (length(link) = 32),
    outcome   TEXT NOT NULL,
    text      TEXT NOT NULL
) STRICT;

CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = new.id)
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;

-- The secret itself is never kept. `used` is when it was redeemed or became void.
CREATE TABLE invitation (
    hash     BLOB PRIMARY KEY CHECK (length(hash) = 32),
    service  TEXT CHECK (service <> ''),                  -- NULL: every service
    expires  INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    used     INTEGER,
    identity BLOB CHECK (length(identity) = 32)           -- who redeemed it
) STRICT, WITHOUT ROWID;

CREATE TRIGGER invitation_stays_used BEFORE UPDATE ON invitation
WHEN old.used IS NOT NULL AND new.used IS NULL
BEGIN SELECT raise(ABORT, 'an invitation is used once'); END;

-- Who may request what.
CREATE TABLE allowed (
    identity BLOB NOT NULL CHECK (length(identity) = 32),
    service  TEXT CHECK (service <> ''),                  -- NULL: every service
    added    INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX allowed_once ON allowed (identity, ifnull(service, ''));

CREATE TABLE blocked (
    identity BLOB PRIMARY KEY CHECK (length(identity) = 32),
    added    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Keys that are dead, and what took their place: the statement signed by the old key.
CREATE TABLE succession (
    old       BLOB PRIMARY KEY CHECK (length(old) = 32),
    new       BLOB NOT NULL CHECK (length(new) = 32),
    time      INTEGER NOT NULL,
    signature BLOB NOT NULL CHECK (length(signature) = 64),
    added     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER succession_stays BEFORE DELETE ON succession
BEGIN SELECT raise(ABORT, 'a dead key stays dead'); END;
