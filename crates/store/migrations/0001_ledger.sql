-- The ledger's tables. Plain SQL without advisory locks, triggers, sequences or extensions, so that databases which speak
-- PostgreSQL's protocol can keep them too. Times are the database's own; text that is compared by order stands in bytea.

-- One row: which ledger this is, and what the nodes count together.
CREATE TABLE placet.ledger (
  id            integer PRIMARY KEY CHECK (id = 1),
  store_id      text    NOT NULL,
  next_epoch    bigint  NOT NULL,
  policy_epoch  bigint  NOT NULL,
  policy_digest bytea,
  made_ms       bigint  NOT NULL
);

-- One row for each start of a node; an epoch is used once. Its log is called `log`, ends at (head_seq, head_hash) and has the Merkle root `root`.
CREATE TABLE placet.epochs (
  epoch         bigint PRIMARY KEY,
  log           text   NOT NULL UNIQUE,
  node          text   NOT NULL,
  started_ms    bigint NOT NULL,
  lease_until   timestamptz NOT NULL,
  fenced_by     bigint,
  fenced_ms     bigint,
  closed_ms     bigint,
  policy_epoch  bigint NOT NULL,
  policy_digest bytea,
  head_seq      bigint NOT NULL,
  head_hash     bytea  NOT NULL,
  head_at_ms    bigint NOT NULL,
  root          bytea  NOT NULL
) WITH (fillfactor = 50);

-- Effect records as they stand. `owner` is the epoch whose duty it is to settle a dispatched one.
CREATE TABLE placet.effects (
  record_id   bytea   PRIMARY KEY,
  tenant      text    NOT NULL,
  call_id     text    NOT NULL,
  state       text    NOT NULL,
  is_open     boolean NOT NULL,
  is_settled  boolean NOT NULL,
  owner       bigint,
  rev         bigint  NOT NULL,
  updated_ms  bigint  NOT NULL,
  epoch       bigint  NOT NULL,
  seq         bigint  NOT NULL,
  record      text    NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX effects_call ON placet.effects (call_id);
CREATE INDEX effects_tenant ON placet.effects (tenant, record_id);
CREATE INDEX effects_unsettled ON placet.effects (record_id) WHERE NOT is_settled;
CREATE INDEX effects_settled ON placet.effects (updated_ms) WHERE is_settled;

-- Approvals as they stand. `place` orders them: eight bytes of the time they were asked at, then the id.
CREATE TABLE placet.approvals (
  approval_id text   PRIMARY KEY,
  record_id   bytea  NOT NULL,
  call_id     text   NOT NULL,
  tenant      text   NOT NULL,
  state       text   NOT NULL,
  rev         bigint NOT NULL,
  place       bytea  NOT NULL,
  record      text   NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX approvals_call ON placet.approvals (call_id);
CREATE INDEX approvals_tenant ON placet.approvals (tenant, place);
CREATE INDEX approvals_state ON placet.approvals (state, place);

-- Runs and what they have used up. The key is the digest of the run's key.
CREATE TABLE placet.runs (
  run_key bytea PRIMARY KEY,
  record  text  NOT NULL
) WITH (fillfactor = 80);

-- Arguments, evidence and results by their digest; entries name them and outlive them.
CREATE TABLE placet.content (
  tenant text  NOT NULL,
  digest bytea NOT NULL,
  bytes  bytea NOT NULL,
  PRIMARY KEY (tenant, digest)
);

-- The audit chain: for each epoch one log of entries, each naming the hash of the one before it. An imported log may have been
-- written by several processes: `written_by` is the epoch of each entry's.
CREATE TABLE placet.entries (
  epoch       bigint   NOT NULL,
  seq         bigint   NOT NULL,
  written_by  bigint   NOT NULL,
  at_ms       bigint   NOT NULL,
  kind        smallint NOT NULL,
  durable_seq bigint   NOT NULL,
  prev        bytea    NOT NULL,
  hash        bytea    NOT NULL,
  payload     bytea    NOT NULL,
  PRIMARY KEY (epoch, seq)
);

-- The upper levels of the logs' Merkle trees, in tiles of 256 hashes (C2SP tlog-tiles); the lowest one is made of the entries.
CREATE TABLE placet.tiles (
  epoch bigint   NOT NULL,
  level smallint NOT NULL,
  place bigint   NOT NULL,
  hash  bytea    NOT NULL,
  PRIMARY KEY (epoch, level, place)
);

INSERT INTO placet.ledger (id, store_id, next_epoch, policy_epoch, policy_digest, made_ms)
VALUES (1, 'ledger_' || replace(gen_random_uuid()::text, '-', ''), 1, 0, NULL, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
