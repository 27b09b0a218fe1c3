-- The approval desk: standing grants, break-glass records, freezes and handovers; and quicker lists of approvals.

-- Entries of the desk as they stand. `place` orders them: eight bytes of the time they were made at, then the id. Something may
-- still become of an entry until `open_until_ms`; null: it is over.
CREATE TABLE placet.desk (
  desk_id       text   PRIMARY KEY,
  tenant        text   NOT NULL,
  kind          text   NOT NULL,
  rev           bigint NOT NULL,
  open_until_ms bigint,
  place         bytea  NOT NULL,
  record        text   NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX desk_place ON placet.desk (place);
CREATE INDEX desk_tenant ON placet.desk (tenant, place);
CREATE INDEX desk_open ON placet.desk (open_until_ms);
CREATE INDEX desk_tenant_open ON placet.desk (tenant, open_until_ms);

-- An inbox of one tenant's pending approvals; and the past approvals of an operation, which stands in the record alone.
CREATE INDEX approvals_place ON placet.approvals (place);
CREATE INDEX approvals_tenant_state ON placet.approvals (tenant, state, place);
CREATE INDEX approvals_capability ON placet.approvals (tenant, ((record::json) ->> 'capability'), place);
