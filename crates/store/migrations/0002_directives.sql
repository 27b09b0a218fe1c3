-- The approval service: standing grants, break-glass records, freezes and handovers; and quicker lists of approvals.

-- Directives as they stand. `place` orders them: eight bytes of the time they were made at, then the id. Something may
-- still become of an entry until `open_until_ms`; null: it is over.
CREATE TABLE placet.directives (
  directive_id       text   PRIMARY KEY,
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

-- An inbox of one tenant's pending approvals; and the past approvals of an operation, which stands in the record alone.
CREATE INDEX approvals_place ON placet.approvals (place);
CREATE INDEX approvals_tenant_state ON placet.approvals (tenant, state, place);
CREATE INDEX approvals_capability ON placet.approvals (tenant, ((record::json) ->> 'capability'), place);
