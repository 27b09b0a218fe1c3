//! Running cases against a bundle.
//!
//! Owns how a case becomes facts, and the comparison. Invariant: a case that cannot be evaluated (an unknown tool, arguments that do not
//! fit) fails; it is never skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placet_types::{
    approval::{ApproverGroup, Requirement, Vote},
    binding::RequestBinding,
    contract::{Capability, Contract},
    digest::Digest,
    directory::Directory,
    error::{ErrorCode, Problem},
    evidence::{EvidenceItem, EvidenceKind},
    ids::{
        ApprovalId, CapabilityId, DecisionId, DirectiveId, EnvironmentName, GroupId,
        IdempotencyKey, RecordId, ToolCallId,
    },
    json::canonical_digest,
    principal::{Principal, PrincipalChain, PrincipalKind},
};
use serde::Serialize;

use super::{
    CallCase, CaseApproval, CaseFile, CaseFileError, CasePrincipal, CaseVote, Expectation,
    ExpectedOutcome, ExpectedRequirement, SurfaceCase, WorldFile,
};
use crate::{
    bundle::BundleSource,
    explain::Explanation,
    facts::{ApprovalFacts, ApprovalScope, BreakGlassFacts, BudgetView, Facts},
    snapshot::Snapshot,
    verdict::Verdict,
};

mod names;
mod people;

/// What cases are about.
#[derive(Debug, Clone)]
pub struct World {
    /// The environment.
    pub environment: EnvironmentName,
    /// Who exists.
    pub directory: Directory,
    /// What can be called.
    pub contracts: Vec<Arc<Contract>>,
}

impl World {
    /// Checks a world made up for cases.
    ///
    /// # Errors
    /// [`CaseFileError::World`] when its directory or a contract breaks a rule.
    pub fn from_file(file: &WorldFile) -> Result<Self, CaseFileError> {
        file.directory.check().map_err(|error| CaseFileError::World(error.to_string()))?;
        let contracts = file
            .contracts
            .iter()
            .cloned()
            .map(|contract| Contract::from_file(contract).map(Arc::new));
        let contracts = contracts
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| CaseFileError::World(error.to_string()))?;
        Ok(Self {
            environment: file.environment.clone(),
            directory: file.directory.clone(),
            contracts,
        })
    }

    fn tools(&self) -> BTreeSet<CapabilityId> {
        let tools = self.contracts.iter().flat_map(|contract| contract.capabilities.values());
        tools.map(|tool| tool.id.clone()).collect()
    }

    /// This world with what policies may name and only `configured` has: tools, tenants, groups, classes and agents. What both have stays
    /// as it is here.
    #[must_use]
    fn completed(mut self, configured: &Self) -> Self {
        for contract in &configured.contracts {
            let mut rest = Contract::clone(contract);
            rest.capabilities.retain(|_, tool| self.find(&tool.id).is_none());
            if !rest.capabilities.is_empty() {
                self.contracts.push(Arc::new(rest));
            }
        }
        for (tenant, theirs) in &configured.directory.tenants {
            let Some(ours) = self.directory.tenants.get_mut(tenant) else {
                self.directory.tenants.insert(tenant.clone(), theirs.clone());
                continue;
            };
            for (group, entry) in &theirs.groups {
                ours.groups.entry(group.clone()).or_insert_with(|| entry.clone());
            }
            for (class, entry) in &theirs.classes {
                ours.classes.entry(class.clone()).or_insert_with(|| entry.clone());
            }
            for (agent, entry) in &theirs.agents {
                ours.agents.entry(agent.clone()).or_insert_with(|| entry.clone());
            }
        }
        self
    }

    fn find(&self, id: &CapabilityId) -> Option<(&Contract, &Capability)> {
        self.contracts.iter().filter(|contract| &contract.adapter == id.adapter()).find_map(
            |contract| {
                let capability = contract.capabilities.get(id.capability())?;
                Some((contract.as_ref(), capability))
            },
        )
    }
}

/// The result of one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseOutcome {
    /// The case.
    pub name: String,
    /// Where the decision differs from what was expected; none: the case passed.
    pub differences: Vec<String>,
    /// Why the decision is what it is, line by line.
    pub explanation: Vec<String>,
}

impl CaseOutcome {
    /// Whether the case passed.
    pub fn passed(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Runs every case of a file against a bundle: in the file's own world, completed with what policies name and only the configured one has,
/// or else in the configured one.
///
/// # Errors
/// [`CaseFileError`] when there is no case or no world, it is not valid, or the bundle does not compile for it.
pub fn run_cases(
    source: &BundleSource,
    configured: Option<&World>,
    file: &CaseFile,
) -> Result<Vec<CaseOutcome>, CaseFileError> {
    file.check()?;
    let own = file.world.as_ref().map(World::from_file).transpose()?;
    let own_tools = own.as_ref().map(World::tools);
    let made_up = match configured {
        Some(configured) => own.map(|own| own.completed(configured)),
        None => own,
    };
    let world = made_up.as_ref().or(configured).ok_or(CaseFileError::NoWorld)?;
    let snapshot =
        Snapshot::compile(source, &world.contracts, &world.directory, &world.environment, 1)
            .map_err(CaseFileError::Bundle)?;
    let runner = Runner { snapshot: &snapshot, world, own_tools: own_tools.as_ref() };
    let calls = file.cases.iter().map(|case| runner.call(case));
    let reviews = file.reviews.iter().map(|case| runner.review(case));
    let directives = file.directives.iter().map(|case| runner.directives(case));
    let surfaces = file.surfaces.iter().map(|case| runner.surface(case));
    Ok(calls.chain(reviews).chain(directives).chain(surfaces).collect())
}

/// Decides the call of one case, ignoring what is expected.
pub(crate) fn decide_case(
    snapshot: &Snapshot,
    world: &World,
    case: &CallCase,
) -> Result<Verdict, String> {
    Runner { snapshot, world, own_tools: None }.decide(case)
}

struct Runner<'a> {
    snapshot: &'a Snapshot,
    world: &'a World,
    /// The tools that the file's own world has; a surface is compared for these alone.
    own_tools: Option<&'a BTreeSet<CapabilityId>>,
}

impl Runner<'_> {
    fn call(&self, case: &CallCase) -> CaseOutcome {
        let verdict = match self.decide(case) {
            Ok(verdict) => verdict,
            Err(fault) => return failed(&case.name, fault),
        };
        let mut explanation = Explanation::of(self.snapshot, &verdict).lines;
        // The engine asks for the tool first, and decides nothing about one that does not exist for the caller.
        let chain = chain_of(&case.actor, case.user.as_ref());
        let is_offered = self.snapshot.offers(&chain, &case.user_groups, &case.tool);
        if !is_offered {
            let line = "the tool does not exist for this caller, who gets TOOL_NOT_FOUND; no decision is recorded, and nothing is told";
            explanation.insert(1, line.to_owned());
        }
        let code = match &verdict {
            Verdict::Deny(_) if !is_offered => Some(ErrorCode::ToolNotFound),
            Verdict::Deny(denial) => Some(denial.code),
            Verdict::Permit(_) | Verdict::Hold(_) => None,
        };
        let differences = differences(&case.expect, &verdict, code);
        CaseOutcome { name: case.name.clone(), differences, explanation }
    }

    fn decide(&self, case: &CallCase) -> Result<Verdict, String> {
        self.knows_call(case)?;
        let unknown = || format!("no contract has the tool `{}`", case.tool);
        let (contract, capability) = self.world.find(&case.tool).ok_or_else(unknown)?;
        let schema = capability
            .arguments
            .as_ref()
            .map_err(|error| format!("the tool is quarantined: {error}"))?;
        let args = schema.validate(&case.args).map_err(|problems| misfit(&problems))?;
        let mut chain = chain_of(&case.actor, case.user.as_ref());
        chain.via.clone_from(&case.via);
        let binding = RequestBinding {
            principal_chain: chain.clone(),
            capability: capability.id.clone(),
            contract_digest: contract.digest,
            effective_args_digest: canonical_digest(&args),
            target: contract.target(),
            credential: contract.credential_plan(&capability.id),
        };
        let key = IdempotencyKey::new("case").map_err(|error| error.to_string())?;
        let break_glass = case.break_glass.as_ref().map(|record| BreakGlassFacts {
            ticket: record.ticket.clone(),
            actor: record.by.clone(),
            until: case.now.plus_ms(record.ends_in_ms),
        });
        let proof = case.caller_proof();
        let evidence = case.evidence.iter().map(made_up_result).collect::<Result<Vec<_>, _>>()?;
        let mut facts = Facts {
            chain: &chain,
            user_groups: &case.user_groups,
            contract,
            capability,
            args: &args,
            binding: &binding,
            mode_requested: case.mode,
            safety_mode: self.world.directory.ceiling(
                chain.tenant(),
                &chain.actor.id,
                case.safety_mode,
            ),
            engine_mode: case.engine_mode,
            budget: self.budget_of(case, &chain),
            taint: &case.taint,
            history: &case.history,
            evidence: &evidence,
            now: case.now,
            approval: None,
            frozen: case.frozen,
            break_glass: break_glass.as_ref(),
            directives: placet_types::directive::DirectiveBasis::default(),
            proof: &proof,
            key: Some(RecordId::derive(&chain.key_scope(&capability.id), &key)),
        };
        let id = DecisionId::new("case").map_err(|error| error.to_string())?;
        let bare = self.snapshot.decide(&facts, id.clone());
        let Some(approval) = &case.approval else { return Ok(bare) };
        // The approval asked what this bundle asks; where the bundle asks nobody, it has an empty requirement.
        let requirement = match bare {
            Verdict::Hold(hold) => hold.requirement,
            Verdict::Permit(_) | Verdict::Deny(_) => Requirement::new([].into(), 1, 3_600_000),
        };
        let approval = self.approval_of(approval, &facts, requirement)?;
        facts.approval = Some(&approval);
        Ok(self.snapshot.decide(&facts, id))
    }

    fn budget_of(&self, case: &CallCase, chain: &PrincipalChain) -> BudgetView {
        let classes = self.world.directory.classes_of(chain.tenant(), &chain.actor.id);
        let budget = classes.fold(case.budget, |budget, class| budget.at_most(class));
        BudgetView {
            calls_left: budget.calls_left,
            cents_left: budget.cents_left,
            window_ends: case.now.plus_ms(86_400_000),
        }
    }

    fn approval_of(
        &self,
        case: &CaseApproval,
        facts: &Facts<'_>,
        requirement: Requirement,
    ) -> Result<ApprovalFacts, String> {
        let shown = Digest::of(b"what would run");
        let word = |error: placet_types::ids::IdError| error.to_string();
        let (approval_id, scope) = if case.standing {
            (None, ApprovalScope::Standing(DirectiveId::new("case").map_err(word)?))
        } else {
            (Some(ApprovalId::new("case").map_err(word)?), ApprovalScope::Once)
        };
        let request = facts.binding.digest();
        Ok(ApprovalFacts {
            approval_id,
            scope,
            request_digest: if case.changed { Digest::of(b"something else") } else { request },
            shown_digest: shown,
            expires_at: facts.now.plus_ms(case.expires_in_ms),
            requirement,
            escalated: case.escalated,
            args_edited: case.args_edited,
            votes: case.votes.iter().map(|vote| self.vote_of(vote, case, facts, shown)).collect(),
        })
    }

    /// A vote as it was recorded: with the groups of the directory in addition to those of the claims.
    fn vote_of(
        &self,
        vote: &CaseVote,
        approval: &CaseApproval,
        facts: &Facts<'_>,
        shown: Digest,
    ) -> Vote {
        let tenant = facts.chain.tenant();
        let member = vote.stands_for.as_ref().unwrap_or(&vote.by);
        let external = vote.tenant.as_ref().filter(|external| *external != tenant);
        let listed = self.world.directory.user(external.unwrap_or(tenant), member);
        let listed: BTreeSet<GroupId> = listed.map(|user| user.groups.clone()).unwrap_or_default();
        let at = facts.now.plus_ms(approval.expires_in_ms.min(0).saturating_sub(1_000));
        Vote {
            approver: vote.by.clone(),
            tenant: external.cloned(),
            part_digest: None,
            client: None,
            token_ref: None,
            stands_for: vote.stands_for.clone(),
            authenticated_at: vote.authenticated_ago_ms.map(|ago| at.plus_ms(ago.saturating_neg())),
            groups: listed.union(&vote.groups).cloned().collect(),
            claimed: vote.groups.difference(&listed).cloned().collect(),
            groups_as_of: facts.now.plus_ms(vote.groups_age_ms.saturating_neg()),
            choice: vote.choice,
            reason: String::new(),
            at,
            shown_digest: if vote.shown_other { Digest::of(b"something else") } else { shown },
        }
    }

    fn surface(&self, case: &SurfaceCase) -> CaseOutcome {
        if let Err(unknown) = self.knows_caller(&case.actor, case.user.as_ref(), &case.user_groups)
        {
            return failed(&case.name, unknown);
        }
        let chain = chain_of(&case.actor, case.user.as_ref());
        let mut tools = self.snapshot.surface(&chain, &case.user_groups);
        tools.retain(|tool| self.own_tools.is_none_or(|own| own.contains(tool)));
        let missing = case
            .tools
            .difference(&tools)
            .map(|tool| format!("`{tool}` is hidden, expected to be there"));
        let extra = tools
            .difference(&case.tools)
            .map(|tool| format!("`{tool}` is there, expected to be hidden"));
        CaseOutcome {
            name: case.name.clone(),
            differences: missing.chain(extra).collect(),
            explanation: vec![],
        }
    }
}

/// The result of an earlier call of the tool.
fn made_up_result(tool: &CapabilityId) -> Result<EvidenceItem, String> {
    Ok(EvidenceItem {
        kind: EvidenceKind::Result,
        call_id: ToolCallId::new("case").map_err(|error| error.to_string())?,
        capability_id: tool.clone(),
        digest: Digest::of(tool.to_string().as_bytes()),
    })
}

fn misfit(problems: &[Problem]) -> String {
    let places: Vec<String> = problems.iter().map(Problem::to_string).collect();
    format!("the arguments do not fit the tool: {}", places.join("; "))
}

fn failed(name: &str, fault: String) -> CaseOutcome {
    CaseOutcome { name: name.to_owned(), differences: vec![fault], explanation: Vec::new() }
}

fn principal_of(case: &CasePrincipal, kind: PrincipalKind) -> Principal {
    let kind = case.kind.unwrap_or(kind);
    Principal { kind, id: case.id.clone(), tenant_id: case.tenant.clone(), display: None }
}

fn chain_of(actor: &CasePrincipal, user: Option<&CasePrincipal>) -> PrincipalChain {
    PrincipalChain {
        actor: principal_of(actor, PrincipalKind::Agent),
        on_behalf_of: user.map(|user| principal_of(user, PrincipalKind::User)),
        via: Vec::new(),
    }
}

fn differences(expect: &Expectation, verdict: &Verdict, code: Option<ErrorCode>) -> Vec<String> {
    let (outcome, kind, requirement) = match verdict {
        Verdict::Permit(_) => (ExpectedOutcome::Allow, None, None),
        Verdict::Hold(hold) => (ExpectedOutcome::Hold, None, Some(&hold.requirement)),
        Verdict::Deny(denial) => (ExpectedOutcome::Deny, Some(denial.kind), None),
    };
    let by_grant = matches!(verdict, Verdict::Permit(permit) if permit.grant().is_some());
    let decision = verdict.decision();
    let mut found = Vec::new();
    if outcome != expect.outcome {
        found.push(format!(
            "the outcome is {}, expected {}",
            outcome.as_str(),
            expect.outcome.as_str()
        ));
    }
    if let Some(wanted) = expect.code.filter(|wanted| code != Some(*wanted)) {
        let got = code.map_or("none", |code| code.as_str());
        found.push(format!("the code is {got}, expected {wanted}"));
    }
    if let Some(wanted) = expect.kind.filter(|wanted| kind != Some(*wanted)) {
        let got = kind.map_or("none", |kind| kind.as_str());
        found.push(format!("the kind is {got}, expected {wanted}"));
    }
    if let Some(wanted) = expect.mode.filter(|wanted| decision.mode_effective != *wanted) {
        found.push(format!("the mode is {}, expected {wanted}", decision.mode_effective));
    }
    if expect.by_grant.is_some_and(|wanted| wanted != by_grant) {
        let word =
            if by_grant { "a standing grant lets it run" } else { "no standing grant is used" };
        found.push(format!("{word}, expected otherwise"));
    }
    let got = decision.determining.iter().map(|one| one.policy.clone()).collect();
    found.extend(difference_of_policies(expect.policies.as_ref(), &got));
    if let Some(wanted) = &expect.requirement
        && !requirement.is_some_and(|got| is_as_expected(got, wanted))
    {
        let got = requirement.map_or_else(|| "none".to_owned(), crate::explain::requirement_line);
        found.push(format!("the requirement differs, it is: {got}"));
    }
    found
}

fn is_as_expected(got: &Requirement, wanted: &ExpectedRequirement) -> bool {
    let later: BTreeMap<ApproverGroup, u32> =
        got.escalations.iter().map(|one| (one.group.clone(), one.people)).collect();
    got.groups == wanted.groups
        && got.quorum == wanted.quorum
        && wanted.expires_in_ms.is_none_or(|ms| ms == got.expires_in_ms)
        && wanted.deny_threshold.is_none_or(|people| people == got.deny_threshold)
        && wanted.later.as_ref().is_none_or(|wanted| *wanted == later)
        && wanted.fresh_auth_ms.is_none_or(|ms| Some(ms) == got.fresh_auth_ms)
        && wanted.once_only.is_none_or(|once| once == got.once_only)
}

fn difference_of_policies(
    wanted: Option<&BTreeSet<String>>,
    got: &BTreeSet<String>,
) -> Option<String> {
    let wanted = wanted.filter(|wanted| *wanted != got)?;
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    Some(format!("decided by [{}], expected [{}]", list(got), list(wanted)))
}
