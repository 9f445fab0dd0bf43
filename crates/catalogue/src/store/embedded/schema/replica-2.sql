-- Schema of replica.db, version 2.

-- The words of all changes up to the revision `indexed` are in the index `search`.
ALTER TABLE replica ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0 CHECK (indexed >= 0);
UPDATE replica SET indexed = (SELECT revision FROM store);

CREATE TRIGGER replica_index_only_grows BEFORE UPDATE OF indexed ON replica WHEN new.indexed < old.indexed
BEGIN SELECT raise(ABORT, 'the index of a replica only grows'); END;
