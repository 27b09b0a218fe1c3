-- What people decided of an operation before: found however many of its approvals wait.
CREATE INDEX approvals_decided ON placet.approvals (tenant, ((record::json) ->> 'capability'), place) WHERE state <> 'pending';
