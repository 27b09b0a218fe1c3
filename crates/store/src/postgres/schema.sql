-- The ledger's tables. Plain SQL without advisory locks, triggers, sequences or extensions, so that databases which speak
-- PostgreSQL's protocol can keep them too. Times are the database's own; text that is compared by order stands in bytea.

-- One row: what the nodes count together.
CREATE TABLE placet.ledger (
  id            integer PRIMARY KEY CHECK (id = 1),
  next_epoch    bigint  NOT NULL,
  policy_epoch  bigint  NOT NULL,
  policy_digests bytea[],
  -- How often what is in force has become stricter: a freeze or a revocation that was made, a break-glass record that was ended.
  directives_rev bigint NOT NULL DEFAULT 0,
  made_ms       bigint  NOT NULL,
  -- Of this file, as it was when the tables were made.
  schema_digest bytea   NOT NULL DEFAULT ''
);

-- One row for each start of a node; an epoch is used once. Its log is called `log`, ends at (head_seq, head_hash) and has the Merkle
-- root `root`. Every node locks its own row for each transaction: it holds `directives_rev` too, so that no dispatch overtakes what
-- has become stricter. `lease_ms` is how long its lease is.
CREATE TABLE placet.epochs (
  epoch         bigint PRIMARY KEY,
  log           text   NOT NULL UNIQUE,
  node          text   NOT NULL,
  started_ms    bigint NOT NULL,
  lease_until   timestamptz NOT NULL,
  lease_ms      bigint NOT NULL CHECK (lease_ms > 0),
  fenced_by     bigint,
  fenced_ms     bigint,
  closed_ms     bigint,
  policy_epoch  bigint NOT NULL,
  policy_digests bytea[],
  directives_rev bigint NOT NULL DEFAULT 0,
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
CREATE INDEX effects_tenant ON placet.effects (tenant, updated_ms, record_id);
CREATE INDEX effects_unsettled ON placet.effects (updated_ms, record_id) WHERE NOT is_settled;
CREATE INDEX effects_settled ON placet.effects (updated_ms, record_id) WHERE is_settled;

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
CREATE INDEX approvals_place ON placet.approvals (place);
CREATE INDEX approvals_tenant_state ON placet.approvals (tenant, state, place);
-- The approvals of an operation, which stands in the record alone; and what people decided of it, however many wait.
CREATE INDEX approvals_capability ON placet.approvals (tenant, ((record::json) ->> 'capability'), place);
CREATE INDEX approvals_decided ON placet.approvals (tenant, ((record::json) ->> 'capability'), place) WHERE state <> 'pending';

-- Approvals by the other tenants that they ask. `place` and `state` are the approval's; who is asked does not change.
CREATE TABLE placet.external_approvals (
  tenant      text  NOT NULL,
  place       bytea NOT NULL,
  approval_id text  NOT NULL,
  state       text  NOT NULL,
  PRIMARY KEY (tenant, place)
);
CREATE INDEX external_approvals_state ON placet.external_approvals (tenant, state, place);

-- Standing grants, break-glass records, freezes, delegations and revocations as they stand. `place` orders them: eight bytes of the
-- time they were made at, then the id. Something may still become of one until `open_until_ms`; null: it is over.
CREATE TABLE placet.directives (
  directive_id  text   PRIMARY KEY,
  tenant        text   NOT NULL,
  kind          text   NOT NULL,
  rev           bigint NOT NULL,
  open_until_ms bigint,
  place         bytea  NOT NULL,
  record        text   NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX directive_place ON placet.directives (place);
CREATE INDEX directive_tenant ON placet.directives (tenant, place);
CREATE INDEX directive_open ON placet.directives (open_until_ms);
CREATE INDEX directive_tenant_open ON placet.directives (tenant, open_until_ms);

-- Runs and what they have used up. The key is the digest of the run's key.
CREATE TABLE placet.runs (
  run_key bytea PRIMARY KEY,
  record  text  NOT NULL
) WITH (fillfactor = 80);

-- Arguments, evidence and results by their digest; entries name them and outlive them. `kept_again` counts how often one was kept while it
-- was there: a deletion that saw another number finds that a record names it from then on.
CREATE TABLE placet.content (
  tenant     text   NOT NULL,
  digest     bytea  NOT NULL,
  bytes      bytea  NOT NULL,
  kept_again bigint NOT NULL DEFAULT 0,
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

-- The entries with events about a call, or about an approval: the timeline of a call is read by them, however old it is.
CREATE TABLE placet.subjects (
  subject text   NOT NULL,
  epoch   bigint NOT NULL,
  seq     bigint NOT NULL,
  PRIMARY KEY (subject, epoch, seq)
);

-- Messages that people are to be sent; a row goes once its message is sent or given up. One row says how far the logs were read for them.
CREATE TABLE placet.outbox (
  channel text NOT NULL,
  about   text NOT NULL,
  record  text NOT NULL,
  PRIMARY KEY (channel, about)
) WITH (fillfactor = 80);
CREATE TABLE placet.outbox_read (
  id     integer PRIMARY KEY CHECK (id = 1),
  record text    NOT NULL
) WITH (fillfactor = 50);

-- People who are signed in at the console. `key` is the digest of what their browser holds, `person` one of whose session it is, and
-- `sealed` what it was begun with, which nobody can read without the browser. Rows go when a session ends or its time is over.
CREATE TABLE placet.console_sessions (
  key      bytea  PRIMARY KEY,
  person   bytea  NOT NULL,
  began_ms bigint NOT NULL,
  used_ms  bigint NOT NULL,
  sealed   bytea  NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX console_sessions_person ON placet.console_sessions (person, began_ms);

-- Policies, contracts, directories and issuers that were active and were replaced, each by itself and all together: a node that starts with
-- them does not bring them back. Those that are active stand in `placet.ledger`. Written only under the lock of its row.
CREATE TABLE placet.replaced_policies (
  digest      bytea  PRIMARY KEY,
  replaced_ms bigint NOT NULL,
  replaced_by bytea  NOT NULL
);

-- One row that is written for itself alone: a node that connects to read writes it, so that the synchronous standbys have to tell what
-- they have. No transaction holds it beyond its own statement.
CREATE TABLE placet.confirmations (
  id    integer PRIMARY KEY CHECK (id = 1),
  times bigint  NOT NULL
) WITH (fillfactor = 50);
INSERT INTO placet.confirmations (id, times) VALUES (1, 0);

INSERT INTO placet.ledger (id, next_epoch, policy_epoch, policy_digests, made_ms)
VALUES (1, 1, 0, NULL, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
