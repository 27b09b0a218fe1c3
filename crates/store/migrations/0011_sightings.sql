-- Leases that stand still, and for how long they were watched: a node that starts goes on from there, where that was noted just now.
CREATE TABLE placet.sightings (
  epoch    bigint      PRIMARY KEY,
  until_us bigint      NOT NULL,
  still_ms bigint      NOT NULL,
  noted_at timestamptz NOT NULL
) WITH (fillfactor = 50);
