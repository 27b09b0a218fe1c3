-- Policies that were active and were replaced: a node that starts with them does not bring them back. Those that are active stand in
-- `placet.ledger`. Written only under the lock of its row.
CREATE TABLE placet.replaced_policies (
  digest      bytea  PRIMARY KEY,
  replaced_ms bigint NOT NULL,
  replaced_by bytea  NOT NULL
);
