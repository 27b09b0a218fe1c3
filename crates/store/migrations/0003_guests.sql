-- Approvals by the other tenants that they ask: a guest's inbox. `place` is the approval's; who is asked does not change.
CREATE TABLE placet.guests (
  tenant      text  NOT NULL,
  place       bytea NOT NULL,
  approval_id text  NOT NULL,
  PRIMARY KEY (tenant, place)
);
