-- Schema of node.db, version 8. Released: never changed, only followed by another.

-- Sessions that a rule of the configuration has given: the entity that approved the session (32
-- bytes), or no bytes if the rule asks none. NULL for all other sessions.
ALTER TABLE session ADD COLUMN rule BLOB CHECK (length(rule) IN (0, 32));
