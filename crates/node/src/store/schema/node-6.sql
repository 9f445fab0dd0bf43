-- Schema of node.db, version 6. Released: never changed, only followed by another.

-- The retention in effect, in seconds: of sessions after their expiry, and of entries of the audit
-- log; 9223372036854775807 stands for "for ever". Nothing is removed before the time `held_until`.
CREATE TABLE retention (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    sessions   INTEGER NOT NULL CHECK (sessions > 0),
    audit      INTEGER NOT NULL CHECK (audit > 0),
    held_until INTEGER NOT NULL
) STRICT;

INSERT INTO retention VALUES (1, 9223372036854775807, 9223372036854775807, 0);

-- The times up to which sessions that have expired, and entries of the audit log, may be removed.
-- They follow the stored time; without a row, nothing may be removed.
CREATE VIEW removable AS
SELECT time - retention.sessions AS sessions, time - retention.audit AS audit
FROM clock, retention WHERE time >= held_until;

CREATE TRIGGER session_expiry_stays BEFORE UPDATE OF id, expires ON session
WHEN new.id <> old.id OR new.expires <> old.expires
BEGIN SELECT raise(ABORT, 'the expiry of a session does not change'); END;

CREATE TRIGGER session_is_kept BEFORE DELETE ON session
WHEN NOT EXISTS (SELECT 1 FROM removable WHERE old.expires <= removable.sessions)
BEGIN SELECT raise(ABORT, 'a session is kept until its expiry and its retention have passed'); END;

-- A session is removed with its uses, its revocations and its exchange. A ticket whose exchange was
-- removed counts one peer too few, so it is void: it has expired with its sessions, and stays so if
-- the clock is set back.
CREATE TRIGGER session_is_removed AFTER DELETE ON session
BEGIN
    UPDATE ticket SET revoked = (SELECT time FROM clock)
    WHERE revoked IS NULL AND hash IN (SELECT hash FROM ticket_peer WHERE session = old.id);
    DELETE FROM ticket_peer WHERE session = old.id;
    DELETE FROM link_use WHERE session = old.id;
    DELETE FROM revocation WHERE session = old.id;
END;

DROP TRIGGER link_use_stays;
CREATE TRIGGER link_use_stays BEFORE DELETE ON link_use
WHEN EXISTS (SELECT 1 FROM session WHERE id = old.session)
BEGIN SELECT raise(ABORT, 'a use is never given back'); END;

DROP TRIGGER revocation_stays;
CREATE TRIGGER revocation_stays BEFORE DELETE ON revocation
WHEN EXISTS (SELECT 1 FROM session WHERE id = old.session)
BEGIN SELECT raise(ABORT, 'a revocation lasts as long as its session'); END;

DROP TRIGGER ticket_peer_stays;
CREATE TRIGGER ticket_peer_stays BEFORE DELETE ON ticket_peer
WHEN EXISTS (SELECT 1 FROM session WHERE id = old.session)
BEGIN SELECT raise(ABORT, 'an exchange is counted as long as its session'); END;

DROP TRIGGER audit_no_delete;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM removable WHERE old.time <= removable.audit)
BEGIN SELECT raise(ABORT, 'the audit log is append-only until the retention has passed'); END;

-- Set when the first link has no use left. Not known for sessions of earlier versions.
ALTER TABLE session ADD COLUMN used_up INTEGER NOT NULL DEFAULT 0 CHECK (used_up IN (0, 1));

-- Whether the link is another than the first one of its session.
ALTER TABLE link_use ADD COLUMN passed_on INTEGER NOT NULL DEFAULT 0 CHECK (passed_on IN (0, 1));
UPDATE link_use SET passed_on = 1 WHERE link NOT IN (SELECT link_id FROM session);

-- The sessions that can be started; the others grow in number with each request.
DROP INDEX session_open;
CREATE INDEX session_startable ON session (expires, created)
WHERE state IN ('requested', 'started') AND used_up = 0;
CREATE INDEX session_startable_by_requester ON session (requester, expires)
WHERE state IN ('requested', 'started') AND used_up = 0;
CREATE INDEX session_startable_by_holder ON session (holder, expires)
WHERE state IN ('requested', 'started') AND used_up = 0;

-- Lists of sessions, newest first.
DROP INDEX session_by_holder;
DROP INDEX session_by_requester;
CREATE INDEX session_by_holder ON session (holder, created);
CREATE INDEX session_by_requester ON session (requester, created);
CREATE INDEX session_by_service ON session (service, created);
DROP INDEX link_use_by_identity;
CREATE INDEX link_use_passed_on ON link_use (identity) WHERE passed_on = 1;

-- Lists of the audit log.
CREATE INDEX audit_by_identity ON audit (identity, id);
CREATE INDEX audit_by_service ON audit (service, id);

-- Removal.
CREATE INDEX session_by_expiry ON session (expires);
CREATE INDEX revocation_by_session ON revocation (session);
CREATE INDEX audit_by_time ON audit (time);
