-- A guest's list by how its approvals stand: what waits is found among thousands that are over.
ALTER TABLE placet.guests ADD COLUMN state text NOT NULL DEFAULT 'pending';
UPDATE placet.guests AS g SET state = a.state FROM placet.approvals AS a WHERE a.approval_id = g.approval_id;
CREATE INDEX guests_state ON placet.guests (tenant, state, place);
