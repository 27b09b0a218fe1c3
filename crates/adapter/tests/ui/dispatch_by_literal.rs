use placet_ledger::dispatch::{Dispatch, Intent};

fn forge(intent: Intent) -> Dispatch {
    Dispatch {
        call_id: intent.call_id,
        tenant: intent.binding.principal_chain.actor.tenant_id,
        capability: intent.binding.capability,
        contract_digest: intent.binding.contract_digest,
        args: intent.args,
        token: String::new(),
        attempt: 1,
        key: None,
        deadline_at: intent.deadline_at,
    }
}
