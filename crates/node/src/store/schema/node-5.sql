-- Schema of node.db, version 5. Released: never changed, only followed by another.

-- The origin of a right, its expiry, and the starts that it still permits (NULL: any number).
ALTER TABLE allowed ADD COLUMN source TEXT NOT NULL DEFAULT 'invitation'
    CHECK (source IN ('invitation', 'owner'));
ALTER TABLE allowed ADD COLUMN expires INTEGER NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE allowed ADD COLUMN uses INTEGER CHECK (uses >= 0);

-- The identity that a link names: what it has passed on is revoked with its links. NULL for links of
-- earlier versions that were not the last one of a start.
ALTER TABLE link_use ADD COLUMN identity BLOB CHECK (length(identity) = 32);
UPDATE link_use SET identity = start.identity
FROM (SELECT link, identity FROM audit WHERE operation = 'connect' GROUP BY link) AS start
WHERE start.link = link_use.link;
CREATE INDEX link_use_by_identity ON link_use (identity) WHERE identity IS NOT NULL;
CREATE INDEX link_use_by_session ON link_use (session);

-- The sessions that can still be started; the others grow in number with each request.
CREATE INDEX session_open ON session (expires) WHERE state IN ('requested', 'started');

-- The last use of a service by an identity.
CREATE INDEX audit_start_by_identity ON audit (identity, service, id)
WHERE operation = 'connect';
