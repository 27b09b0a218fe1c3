-- How long the lease of each node is, in milliseconds: who watches a node waits for as long as that one was promised, not for a lease of
-- its own. Of nodes of an earlier build it is not known, so they are given the longest that there is.
ALTER TABLE placet.epochs ADD COLUMN lease_ms bigint NOT NULL DEFAULT 600000 CHECK (lease_ms > 0);
