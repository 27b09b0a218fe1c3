-- How often what is in force has become stricter: a freeze or a revocation that was made, a break-glass record that was
-- ended. Every node that lives has the number in its own row too, which it locks for each transaction, so that no dispatch overtakes it.
ALTER TABLE placet.ledger ADD COLUMN directives_rev bigint NOT NULL DEFAULT 0;
ALTER TABLE placet.epochs ADD COLUMN directives_rev bigint NOT NULL DEFAULT 0;
