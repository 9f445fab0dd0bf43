-- Schema of node.db, version 4. Released: never changed, only followed by another.

-- A share is content, names and options. A capability names it by its id, one of an earlier version by the root of the content.
DROP INDEX share_by_root;
CREATE INDEX share_by_root ON share (root) WHERE stopped IS NULL;
