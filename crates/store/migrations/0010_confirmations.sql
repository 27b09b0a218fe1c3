-- One row that is written for itself alone: a node that connects to read writes it, so that the synchronous standbys have to tell what
-- they have. No transaction holds it beyond its own statement.
CREATE TABLE placet.confirmations (
  id    integer PRIMARY KEY CHECK (id = 1),
  times bigint  NOT NULL
) WITH (fillfactor = 50);
INSERT INTO placet.confirmations (id, times) VALUES (1, 0);
