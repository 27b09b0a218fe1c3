//! A tenant with one adapter, one agent and one person, and a bundle that permits every call.

mod made;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use placet_policy::{
    bundle::{BundleSource, PolicyFile},
    facts::{ApprovalFacts, ApprovalScope, BudgetView, Facts},
    permit::Permit,
    snapshot::Snapshot,
    verdict::Verdict,
};
use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    binding::RequestBinding,
    clock::Timestamp,
    contract::{Capability, Contract, Dedup, credential::CredentialPlan},
    digest::Digest,
    envelope::{
        call::{CallVersion, ToolCallEnvelope},
        proposal::{Evidence, ProposalVersion, ToolProposalEnvelope},
        result::{Cost, Latency, ResultStatus, ResultVersion, ToolResultEnvelope},
    },
    ids::{
        ApprovalId, CapabilityId, DecisionId, EnvironmentName, GroupId, IdempotencyKey,
        PrincipalId, RecordId, RunId, TenantId, ToolCallId,
    },
    json::canonical_digest,
    mode::{ApprovalMode, EngineMode},
    principal::{Principal, PrincipalChain, PrincipalKind},
    proof::CallerProof,
    run_context::{RunAgent, RunBudget, RunContext},
};
use serde_json::{Map, Value, json};

use crate::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    directive::Directive,
    dispatch::{DispatchGuard, Intent},
    ledger::{Ledger, LedgerError},
    parked::ParkedCall,
    policies::PolicyState,
    record::{EffectRecord, EffectState, RECORD_VERSION},
    reservation::Reservation,
    run::{RunKey, RunRecord},
    store::{ClaimAnswer, Store, StoreError},
    testing::{MemoryStore, policy_digests, ready},
};

pub(super) const EPOCH: u64 = 7;
const NOW: Timestamp = Timestamp::from_ms(1_000_000);
const EXPIRES_IN_MS: i64 = 60_000;
const CALLS_MAX: u32 = 3;

pub(super) struct World {
    pub(super) store: Arc<MemoryStore>,
    pub(super) ledger: Ledger,
    contract: Arc<Contract>,
    snapshot: Snapshot,
}

/// Compiled once: that takes longer than a test.
static COMPILED: LazyLock<(Arc<Contract>, Snapshot)> = LazyLock::new(|| {
    let contract = Arc::new(made::contract());
    let environment = EnvironmentName::new("dev").unwrap();
    let text = made::POLICIES.to_owned();
    let bundle = BundleSource::new([PolicyFile { name: "all.cedar".to_owned(), text }]);
    let snapshot = Snapshot::compile(
        &bundle,
        &[Arc::clone(&contract)],
        &made::directory(),
        &environment,
        EPOCH,
    )
    .unwrap();
    (contract, snapshot)
});

impl World {
    pub(super) fn new() -> Self {
        Self::with_calls(CALLS_MAX)
    }

    /// A world whose run may make this many calls.
    pub(super) fn with_calls(calls_max: u32) -> Self {
        let (contract, snapshot) = COMPILED.clone();
        let store = Arc::new(MemoryStore::new(NOW));
        let kept: Arc<dyn Store> = Arc::<MemoryStore>::clone(&store);
        let ledger = Ledger::new(kept);
        store.set_policy(PolicyState { epoch: EPOCH, digests: policy_digests("policies") });
        let budget = RunBudget { calls_max, ..run().budget };
        ready(ledger.open_run(RunRecord { budget, ..run() })).unwrap();
        Self { store, ledger, contract, snapshot }
    }

    /// The same records, as another process sees them.
    pub(super) fn over(&self, store: MemoryStore) -> Self {
        let store = Arc::new(store);
        let kept: Arc<dyn Store> = Arc::<MemoryStore>::clone(&store);
        let (contract, snapshot) = COMPILED.clone();
        Self { store, ledger: Ledger::new(kept), contract, snapshot }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn capability(&self, name: &str) -> &Capability {
        self.contract
            .capabilities
            .values()
            .find(|capability| capability.id.capability().as_str() == name)
            .unwrap()
    }

    /// The call of `name` with one argument, under the key `key`.
    pub(super) fn call(&self, name: &str, note: &str, key: &str) -> Call {
        let capability = self.capability(name);
        let args = json!({ "note": note }).as_object().unwrap().clone();
        let binding = RequestBinding {
            principal_chain: chain(),
            capability: capability.id.clone(),
            contract_digest: self.contract.digest,
            effective_args_digest: canonical_digest(&Value::Object(args.clone())),
            target: self.contract.target(),
            credential: CredentialPlan::default(),
        };
        let key = IdempotencyKey::new(key).unwrap();
        let record_id = RecordId::derive(&chain().key_scope(&capability.id), &key);
        let call_id = ToolCallId::new(format!("call-{}-{name}", key.as_str())).unwrap();
        Call { name: name.to_owned(), args, binding, key, record_id, call_id }
    }

    /// The bundle's permit for a call.
    pub(super) fn permit(&self, call: &Call, approval: Option<&ApprovalRecord>) -> Permit {
        let facts = approval.map(|approval| ApprovalFacts {
            approval_id: Some(approval.approval_id.clone()),
            scope: ApprovalScope::Once,
            request_digest: approval.request_digest,
            shown_digest: approval.proposal,
            expires_at: approval.expires_at,
            requirement: approval.requirement.clone(),
            escalated: approval.escalated,
            args_edited: !approval.edits.is_empty(),
            votes: approval.votes.clone(),
        });
        self.permit_with(call, facts)
    }

    /// A freeze of all adapters that is in force.
    pub(super) fn freeze(&self) -> Directive {
        serde_json::from_value(json!({
            "version": 1, "directive_id": "dir_1", "tenant": "acme", "by": "dora", "reason": "year end",
            "created_at": self.now(), "starts_at": self.now(), "expires_at": self.now().plus_ms(60_000),
            "body": { "kind": "freeze", "name": "year end" },
            "requirement": { "groups": {}, "quorum": 0, "expires_in_ms": 1_000, "reasons": [] },
            "rev": 1, "votes": [], "state": { "state": "active" },
        }))
        .unwrap()
    }

    /// The permit of a call that a grant covers, as if enough people had agreed to it: whether they have, the ledger knows.
    pub(super) fn permit_under(&self, call: &Call, grant: &Directive) -> Permit {
        let agreed = ["eve", "gus"].map(|who| Vote {
            groups: BTreeSet::from([GroupId::new("leads").unwrap()]),
            claimed: BTreeSet::from([GroupId::new("leads").unwrap()]),
            groups_as_of: self.now(),
            ..vote_on(grant.terms(), who, VoteChoice::Approve)
        });
        let facts = ApprovalFacts {
            approval_id: None,
            scope: ApprovalScope::Standing(grant.directive_id.clone()),
            request_digest: call.binding.digest(),
            shown_digest: grant.terms(),
            expires_at: self.now().plus_ms(1_000_000),
            requirement: grant.requirement.clone(),
            escalated: 0,
            args_edited: false,
            votes: agreed.into(),
        };
        self.permit_with(call, Some(facts))
    }

    fn permit_with(&self, call: &Call, facts: Option<ApprovalFacts>) -> Permit {
        let verdict = self.snapshot.decide(
            &Facts {
                chain: &chain(),
                user_groups: &BTreeSet::new(),
                contract: &self.contract,
                capability: self.capability(&call.name),
                args: &Value::Object(call.args.clone()),
                binding: &call.binding,
                mode_requested: Some(ApprovalMode::Destructive),
                safety_mode: ApprovalMode::Destructive,
                engine_mode: EngineMode::Enforce,
                budget: BudgetView {
                    calls_left: CALLS_MAX,
                    cents_left: 0,
                    window_ends: NOW.plus_ms(1_000_000),
                },
                taint: &BTreeSet::new(),
                history: &placet_types::run_history::RunHistory::default(),
                evidence: &[],
                now: NOW,
                approval: facts.as_ref(),
                frozen: false,
                break_glass: None,
                directives: placet_types::directive::DirectiveBasis::default(),
                proof: &CallerProof::of_development(&chain()),
                key: Some(call.record_id),
            },
            DecisionId::new("dec_1").unwrap(),
        );
        match verdict {
            Verdict::Permit(permit) => permit,
            Verdict::Hold(hold) => panic!("held: {:?}", hold.decision),
            Verdict::Deny(denial) => panic!("denied: {:?}", denial.decision),
        }
    }

    pub(super) fn intent(&self, call: &Call) -> Intent {
        Intent {
            call_id: call.call_id.clone(),
            args: call.args.clone(),
            binding: call.binding.clone(),
            deadline_at: self.now().plus_ms(30_000),
            reserve: Reservation::of(run().key, 0),
            audit: AuditEvent::new(AuditKind::Dispatched),
        }
    }

    pub(super) fn dedup(&self, call: &Call) -> &Dedup {
        &self.capability(&call.name).dedup
    }

    pub(super) fn claim(&self, call: &Call) -> EffectRecord {
        let record = EffectRecord {
            version: RECORD_VERSION,
            record_id: call.record_id,
            scope: chain().key_scope(&call.binding.capability),
            key: call.key.clone(),
            call_id: call.call_id.clone(),
            run_id: run().key.run_id,
            requested_digest: call.binding.effective_args_digest,
            parked: Digest::of(b"not parked yet"),
            created_at: self.now(),
            updated_at: self.now(),
            rev: 0,
            arm: 1,
            attempts: 0,
            unknown: None,
            state: EffectState::Claimed { epoch: self.store.epoch() },
        };
        assert_eq!(ready(self.ledger.claim(record.clone())).unwrap(), ClaimAnswer::Claimed);
        record
    }

    /// Claims, holds and gets the call approved by one person.
    pub(super) fn approved(&self, call: &Call) -> (EffectRecord, ApprovalRecord) {
        let held = self.held(call, 1);
        let approval = ready(self.ledger.vote(&held, yes(&held, "ann"), event())).unwrap();
        assert_eq!(approval.state, ApprovalState::Approved);
        (self.record(call), approval)
    }

    pub(super) fn held(&self, call: &Call, quorum: u32) -> ApprovalRecord {
        let claimed = self.claim(call);
        let proposal = self.proposal(call, quorum);
        ready(self.ledger.hold(&claimed, &self.parked(call), &proposal, event())).unwrap()
    }

    pub(super) fn dispatch(
        &self,
        call: &Call,
        record: &EffectRecord,
        approval: Option<&ApprovalRecord>,
    ) -> Result<DispatchGuard, LedgerError> {
        let permit = self.permit(call, approval);
        ready(self.ledger.dispatch(permit, self.intent(call), record, None, self.dedup(call)))
    }

    pub(super) fn record(&self, call: &Call) -> EffectRecord {
        ready(self.store.effect(call.record_id)).unwrap().unwrap()
    }

    pub(super) fn is_absent(&self, call: &Call) -> bool {
        ready(self.store.effect(call.record_id)).unwrap().is_none()
    }

    pub(super) fn approval(&self, approval: &ApprovalRecord) -> ApprovalRecord {
        ready(self.store.approval(&approval.approval_id)).unwrap().unwrap()
    }

    pub(super) fn calls_used(&self) -> u32 {
        ready(self.store.run(&run().key)).unwrap().unwrap().calls_used
    }

    pub(super) fn parked(&self, call: &Call) -> ParkedCall {
        ParkedCall {
            envelope: envelope(call),
            run: RunContext {
                run_id: run().key.run_id,
                trace_id: "0".repeat(32),
                tenant_id: chain().actor.tenant_id,
                user: None,
                agent: RunAgent {
                    agent_id: chain().actor.id,
                    agent_urn: "urn:scribe".to_owned(),
                    workload_identity: None,
                    role: None,
                    token_ref: "t1".to_owned(),
                    lifecycle: "active".to_owned(),
                },
                safety_mode: ApprovalMode::Destructive,
                run_budget: RunBudget::default(),
                taint: BTreeSet::new(),
                history: placet_types::run_history::RunHistory::default(),
            },
            step_id: None,
            request_id: None,
            callback: None,
            binding: call.binding.clone(),
            edited: None,
            evidence: Vec::new(),
            requested_digest: call.binding.effective_args_digest,
            user_groups: BTreeSet::new(),
            proof: CallerProof::of_development(&chain()),
            groups_as_of: NOW,
            accepted_at: NOW,
            authority_until: NOW.plus_ms(1_000_000),
            bearers: Vec::new(),
            audiences: std::collections::BTreeMap::new(),
            traceparent: None,
        }
    }

    pub(super) fn proposal(&self, call: &Call, quorum: u32) -> ToolProposalEnvelope {
        ToolProposalEnvelope {
            envelope_version: ProposalVersion::V1,
            approval_id: ApprovalId::new(format!("apr-{}", call.key.as_str())).unwrap(),
            call: envelope(call),
            evidence: Evidence {
                request_digest: call.binding.digest(),
                effective_args_digest: call.binding.effective_args_digest,
                preview: Value::Object(call.args.clone()),
                preview_masked: BTreeSet::new(),
                preview_digest: call.binding.effective_args_digest,
                contract_digest: call.binding.contract_digest,
                target: call.binding.target.clone(),
                credential: CredentialPlan::default(),
                bundle_digest: self.snapshot.digest(),
                calls_left_after: 1,
                cents_left_after: 0,
                taint: BTreeSet::new(),
                caller: None,
                refs: Vec::new(),
                description: String::new(),
                similar: Vec::new(),
                edited: None,
                sent_before: None,
            },
            requirement: Requirement::new(BTreeMap::new(), quorum, EXPIRES_IN_MS.unsigned_abs()),
            expires_at: self.now().plus_ms(EXPIRES_IN_MS),
        }
    }
}

impl Call {
    /// The short name of its operation.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// One call as the gate sees it.
#[derive(Clone)]
pub(super) struct Call {
    name: String,
    pub(super) args: Map<String, Value>,
    pub(super) binding: RequestBinding,
    pub(super) key: IdempotencyKey,
    pub(super) record_id: RecordId,
    pub(super) call_id: ToolCallId,
}

pub(super) fn event() -> AuditEvent {
    AuditEvent::new(AuditKind::Voted)
}

pub(super) fn vote(approval: &ApprovalRecord, approver: &str, choice: VoteChoice) -> Vote {
    vote_on(approval.proposal, approver, choice)
}

fn vote_on(shown_digest: Digest, approver: &str, choice: VoteChoice) -> Vote {
    Vote {
        approver: PrincipalId::new(approver).unwrap(),
        tenant: None,
        part_digest: None,
        stands_for: None,
        authenticated_at: None,
        groups: BTreeSet::new(),
        groups_as_of: NOW,
        claimed: BTreeSet::new(),
        choice,
        reason: "looked at it".to_owned(),
        at: NOW,
        shown_digest,
        client: None,
        token_ref: None,
    }
}

pub(super) fn yes(approval: &ApprovalRecord, approver: &str) -> Vote {
    vote(approval, approver, VoteChoice::Approve)
}

pub(super) fn result(call: &Call, status: ResultStatus) -> ToolResultEnvelope {
    ToolResultEnvelope {
        envelope_version: ResultVersion::V1,
        tool_call_id: call.call_id.clone(),
        run_id: Some(run().key.run_id),
        trace_id: "0".repeat(32),
        session_id: None,
        capability_id: Some(call.binding.capability.clone()),
        idempotency_key: Some(call.key.clone()),
        status,
        output: json!({ "erased": true }),
        citations: Vec::new(),
        mutations: Vec::new(),
        policy_decision_id: None,
        approval_id: None,
        pending_approval: None,
        latency: Latency::default(),
        retries: 0,
        cost: Cost::default(),
        replayed: false,
        error: None,
        trace_context: None,
        edited_args: None,
        edited_masked: BTreeSet::new(),
    }
}

/// The error with which a store refused a verb.
pub(super) fn store_error<T>(outcome: Result<T, LedgerError>) -> StoreError {
    match outcome {
        Err(LedgerError::Store(error)) => error,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it was done"),
    }
}

fn envelope(call: &Call) -> ToolCallEnvelope {
    ToolCallEnvelope {
        envelope_version: CallVersion::V1,
        tool_call_id: call.call_id.clone(),
        run_id: run().key.run_id,
        trace_id: "0".repeat(32),
        session_id: None,
        capability_id: call.binding.capability.clone(),
        args: call.args.clone(),
        principal_chain: chain(),
        approval_mode_requested: ApprovalMode::Destructive,
        approval_mode_effective: ApprovalMode::Destructive,
        approval_mode_highest: ApprovalMode::Destructive,
        policy_decision_id: None,
        evidence_refs: Vec::new(),
        idempotency_key: Some(call.key.clone()),
        auth_ref: None,
        metadata: None,
    }
}

pub(super) fn chain() -> PrincipalChain {
    PrincipalChain {
        actor: Principal {
            kind: PrincipalKind::Agent,
            id: PrincipalId::new("scribe").unwrap(),
            tenant_id: TenantId::new("acme").unwrap(),
            display: None,
        },
        on_behalf_of: None,
        via: Vec::new(),
    }
}

fn run() -> RunRecord {
    RunRecord {
        key: RunKey {
            tenant: chain().actor.tenant_id,
            agent: chain().actor.id,
            on_behalf_of: None,
            run_id: RunId::new("run_1").unwrap(),
        },
        safety_mode: ApprovalMode::Destructive,
        budget: RunBudget { calls_max: CALLS_MAX, cost_cents_max: 0, tool_latency_ms_max: 1_000 },
        opened_at: NOW,
        calls_used: 0,
        cents_used: 0,
        taint: BTreeSet::new(),
    }
}

/// The capability of the adapter by its short name.
pub(super) fn capability_id(name: &str) -> CapabilityId {
    CapabilityId::from_tool_name(&format!("notes__{name}")).unwrap()
}
