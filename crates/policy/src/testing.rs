//! What the tests of this crate share: the shipped bundle, small worlds, and one call to vary.

use std::{collections::BTreeSet, sync::Arc};

use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    binding::RequestBinding,
    clock::Timestamp,
    contract::{Capability, Contract},
    digest::Digest,
    evidence::{EvidenceItem, EvidenceKind},
    ids::{ApprovalId, CapabilityId, DecisionId, GroupId, IdempotencyKey, RecordId},
    json::canonical_digest,
    mode::{ApprovalMode, EngineMode},
    principal::{Principal, PrincipalChain, PrincipalKind},
    proof::CallerProof,
    taint::Taint,
};
use serde_json::{Value, json};

use crate::{
    bundle::{BundleProblem, BundleSource, PolicyFile},
    cases::{CaseFile, run::World},
    facts::{ApprovalFacts, ApprovalScope, BreakGlassFacts, BudgetView, Facts},
    snapshot::Snapshot,
    verdict::Verdict,
};

pub(crate) const NOW: Timestamp = Timestamp::from_ms(1_767_225_600_000);

/// The files of `policies/`, as the binary embeds them.
pub(crate) fn shipped() -> BundleSource {
    let files = [
        ("10-permits-agents.cedar", include_str!("../../../policies/10-permits-agents.cedar")),
        ("11-permits-users.cedar", include_str!("../../../policies/11-permits-users.cedar")),
        ("12-permits-machines.cedar", include_str!("../../../policies/12-permits-machines.cedar")),
        ("20-gates.cedar", include_str!("../../../policies/20-gates.cedar")),
        ("30-guards.cedar", include_str!("../../../policies/30-guards.cedar")),
        ("40-review.cedar", include_str!("../../../policies/40-review.cedar")),
        ("50-directives.cedar", include_str!("../../../policies/50-directives.cedar")),
    ];
    BundleSource::new(
        files.map(|(name, text)| PolicyFile { name: name.to_owned(), text: text.to_owned() }),
    )
}

pub(crate) fn bundle(text: &str) -> BundleSource {
    BundleSource::new([PolicyFile { name: "test.cedar".to_owned(), text: text.to_owned() }])
}

/// A world in the format of case files.
pub(crate) fn world_of(yaml: &str) -> World {
    World::from_file(CaseFile::parse(yaml).unwrap().world.as_ref().unwrap()).unwrap()
}

/// The world that most tests share: tenant `acme` and a contract `ops` with a tool of each mode.
pub(crate) fn world() -> World {
    world_of(include_str!("testing_world.yaml"))
}

pub(crate) fn compile(
    source: &BundleSource,
    world: &World,
) -> Result<Snapshot, Vec<BundleProblem>> {
    Snapshot::compile(source, &world.contracts, &world.directory, &world.environment, 7)
}

pub(crate) fn principal(kind: PrincipalKind, id: &str) -> Principal {
    Principal { kind, id: id.parse().unwrap(), tenant_id: "acme".parse().unwrap(), display: None }
}

pub(crate) fn agent(id: &str) -> PrincipalChain {
    PrincipalChain {
        actor: principal(PrincipalKind::Agent, id),
        on_behalf_of: None,
        via: Vec::new(),
    }
}

pub(crate) fn agent_for(id: &str, user: &str) -> PrincipalChain {
    PrincipalChain { on_behalf_of: Some(principal(PrincipalKind::User, user)), ..agent(id) }
}

/// A vote of somebody whose token names these groups.
pub(crate) fn vote(by: &str, groups: &[&str]) -> Vote {
    let groups: BTreeSet<GroupId> = groups.iter().map(|group| group.parse().unwrap()).collect();
    Vote {
        approver: by.parse().unwrap(),
        tenant: None,
        part_digest: None,
        client: None,
        token_ref: None,
        stands_for: None,
        authenticated_at: None,
        claimed: groups.clone(),
        groups,
        groups_as_of: NOW,
        choice: VoteChoice::Approve,
        reason: "fine".to_owned(),
        at: NOW.plus_ms(-60_000),
        shown_digest: Digest::of(b"shown"),
    }
}

/// One call, to be varied and decided.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) contract: Arc<Contract>,
    pub(crate) tool: CapabilityId,
    pub(crate) chain: PrincipalChain,
    pub(crate) user_groups: Vec<String>,
    pub(crate) args: Value,
    pub(crate) mode: Option<ApprovalMode>,
    pub(crate) safety_mode: ApprovalMode,
    pub(crate) engine_mode: EngineMode,
    pub(crate) budget: BudgetView,
    pub(crate) taint: BTreeSet<Taint>,
    pub(crate) evidence: Vec<EvidenceItem>,
    pub(crate) votes: Option<Vec<Vote>>,
    pub(crate) approved_digest: Option<Digest>,
    pub(crate) approval_ends: Timestamp,
    pub(crate) requirement: Requirement,
    pub(crate) escalated: u32,
    pub(crate) standing: bool,
    pub(crate) args_edited: bool,
    pub(crate) frozen: bool,
    pub(crate) break_glass: Option<BreakGlassFacts>,
    pub(crate) attested: bool,
    pub(crate) proof: Option<CallerProof>,
    pub(crate) key: bool,
}

/// The result of an earlier call of the tool.
pub(crate) fn evidence(tool: &str) -> EvidenceItem {
    EvidenceItem {
        kind: EvidenceKind::Result,
        call_id: "call_1".parse().unwrap(),
        capability_id: tool.parse().unwrap(),
        digest: Digest::of(tool.as_bytes()),
    }
}

/// Facts of another call, put in place of the draft's own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Swap<'a> {
    pub(crate) chain: Option<&'a PrincipalChain>,
    pub(crate) contract: Option<&'a Contract>,
    pub(crate) binding: Option<&'a RequestBinding>,
}

impl Draft {
    pub(crate) fn new(world: &World, tool: &str) -> Self {
        let tool: CapabilityId = tool.parse().unwrap();
        let contract =
            world.contracts.iter().find(|contract| &contract.adapter == tool.adapter()).unwrap();
        Self {
            contract: Arc::clone(contract),
            tool,
            chain: agent("bot"),
            user_groups: vec![],
            args: json!({}),
            mode: None,
            safety_mode: ApprovalMode::Destructive,
            engine_mode: EngineMode::Enforce,
            budget: BudgetView {
                calls_left: 10,
                cents_left: 10_000,
                window_ends: NOW.plus_ms(86_400_000),
            },
            taint: BTreeSet::new(),
            evidence: vec![evidence("ops/look")],
            votes: None,
            approved_digest: None,
            approval_ends: NOW.plus_ms(3_600_000),
            requirement: Requirement::new([].into(), 1, 3_600_000),
            escalated: 0,
            standing: false,
            args_edited: false,
            frozen: false,
            break_glass: None,
            attested: true,
            proof: None,
            key: true,
        }
    }

    pub(crate) fn capability(&self) -> &Capability {
        &self.contract.capabilities[self.tool.capability()]
    }

    pub(crate) fn binding(&self) -> RequestBinding {
        RequestBinding {
            principal_chain: self.chain.clone(),
            capability: self.tool.clone(),
            contract_digest: self.contract.digest,
            effective_args_digest: canonical_digest(&self.args),
            target: self.contract.target(),
            credential: self.contract.credential_plan(&self.tool),
        }
    }

    pub(crate) fn decide(&self, snapshot: &Snapshot) -> Verdict {
        self.decide_with(snapshot, Swap::default())
    }

    pub(crate) fn decide_with(&self, snapshot: &Snapshot, swap: Swap<'_>) -> Verdict {
        let id = DecisionId::new("dec_1").unwrap();
        self.with_facts(snapshot, swap, |facts| snapshot.decide(facts, id))
    }

    /// Passes the facts, as a decision gets them, to `ask`.
    pub(crate) fn with_facts<T>(
        &self,
        snapshot: &Snapshot,
        swap: Swap<'_>,
        ask: impl FnOnce(&Facts<'_>) -> T,
    ) -> T {
        let binding = self.binding();
        let approval = self.votes.clone().map(|votes| ApprovalFacts {
            approval_id: (!self.standing).then(|| ApprovalId::new("apr_1").unwrap()),
            scope: if self.standing {
                ApprovalScope::Standing("grant_1".parse().unwrap())
            } else {
                ApprovalScope::Once
            },
            requirement: self.requirement.clone(),
            escalated: self.escalated,
            args_edited: self.args_edited,
            request_digest: self.approved_digest.unwrap_or_else(|| binding.digest()),
            shown_digest: Digest::of(b"shown"),
            expires_at: self.approval_ends,
            votes: votes.into_iter().map(|vote| recorded(snapshot, vote)).collect(),
        });
        let user_groups = self.user_groups.iter().map(|group| group.parse().unwrap()).collect();
        let key = IdempotencyKey::new("k").unwrap();
        let chain = swap.chain.unwrap_or(&self.chain);
        let made_up = CallerProof { attested: self.attested, ..CallerProof::of_development(chain) };
        let facts = Facts {
            chain: swap.chain.unwrap_or(&self.chain),
            user_groups: &user_groups,
            contract: swap.contract.unwrap_or(&self.contract),
            capability: self.capability(),
            args: &self.args,
            binding: swap.binding.unwrap_or(&binding),
            mode_requested: self.mode,
            safety_mode: self.safety_mode,
            engine_mode: self.engine_mode,
            budget: self.budget,
            taint: &self.taint,
            history: &placet_types::run_history::RunHistory::default(),
            evidence: &self.evidence,
            now: NOW,
            approval: approval.as_ref(),
            frozen: self.frozen,
            break_glass: self.break_glass.as_ref(),
            directives: placet_types::directive::DirectiveBasis::default(),
            proof: self.proof.as_ref().unwrap_or(&made_up),
            key: self.key.then(|| RecordId::derive(&self.chain.key_scope(&self.tool), &key)),
        };
        ask(&facts)
    }
}

/// A vote as the ledger has it: with the groups of the directory at that time.
fn recorded(snapshot: &Snapshot, mut vote: Vote) -> Vote {
    let member = vote.stands_for.as_ref().unwrap_or(&vote.approver);
    let own = "acme".parse().unwrap();
    let listed = snapshot.directory.user(vote.tenant.as_ref().unwrap_or(&own), member);
    vote.groups.extend(listed.into_iter().flat_map(|user| user.groups.clone()));
    vote
}

/// A refund of five euros, by an agent for a user.
pub(crate) fn refund() -> Draft {
    Draft {
        chain: agent_for("fin-bot", "ada"),
        args: json!({ "order": "o1", "cents": 500 }),
        ..Draft::new(&world(), "ops/refund")
    }
}

/// A verdict in a word, for comparing.
pub(crate) fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Permit(_) => "allow",
        Verdict::Hold(_) => "hold",
        Verdict::Deny(denial) => denial.kind.as_str(),
    }
}

/// The ids of the policies that made the difference.
pub(crate) fn policies(verdict: &Verdict) -> Vec<&str> {
    verdict.decision().determining.iter().map(|one| one.policy.as_str()).collect()
}
