//! The decision: modes, two evaluations, the counterfactual.
//!
//! Owns the order of questions and how answers merge: deny before hold before allow. Invariants: an error in any
//! evaluation, the counterfactual's included, denies (trap T1); a call is held only if people could make it allowed; the
//! floor denies whatever the bundle says.

use std::{collections::BTreeSet, sync::Arc};

use cedar_policy::{Entities, EntityUid, PolicySet};
use cedar_policy_core::ast::Value;
use placet_types::{
    approval::{ApproverGroup, Requirement, Vote},
    clock::Timestamp,
    digest::Digest,
    ids::DecisionId,
    mode::ApprovalMode,
    principal::{PrincipalChain, PrincipalKind},
};

use crate::{
    annotations::{ApprovalRule, PolicyMeta},
    approval::{self, ApprovalRecord, Counted},
    context::{self, Circumstance},
    decision::{Decision, DenialKind, Determining, Link, Outcome, PolicyEffect},
    entities,
    evaluate::{Evaluation, Question, evaluate},
    facts::{BudgetView, Facts},
    input,
    permit::Permit,
    route,
    snapshot::{Snapshot, ToolPlan},
    verdict::{Denial, Hold, Verdict},
};

mod counted;
pub(crate) mod floor;
pub(crate) mod impersonation;

/// A budget that stops nothing, far below where arithmetic with it would overflow.
const BUDGET_AMPLE: (u32, u64) = (u32::MAX, 1_000_000_000_000_000);

/// Why policies may not permit a call that they would permit to a verified workload.
const UNATTESTED: &str =
    "the caller is no verified workload (`attested` is false), which the policies may ask for";

impl Snapshot {
    /// Decides what happens to a call. This alone makes a [`crate::permit::Permit`].
    pub fn decide(&self, facts: &Facts<'_>, id: DecisionId) -> Verdict {
        impersonation::checked(self, facts, decide(self, facts, id))
    }

    /// The indices of the agreements among `votes` that no longer count as they were given, now that `requirement` is asked for: those of
    /// people who may no longer agree, and of groups whose membership nothing from the last day confirms. Those people may agree again.
    pub fn lapsed(
        &self,
        chain: &PrincipalChain,
        requirement: &Requirement,
        votes: &[Vote],
        now: Timestamp,
    ) -> BTreeSet<usize> {
        approval::lapsed(&self.directory, chain, requirement, votes, now)
    }
}

fn decide(snapshot: &Snapshot, facts: &Facts<'_>, id: DecisionId) -> Verdict {
    let request_digest = facts.binding.digest();
    let mut decision = Decision {
        id,
        bundle_digest: snapshot.digest,
        epoch: snapshot.epoch,
        capability: facts.capability.id.clone(),
        request_digest,
        mode_requested: facts.mode_requested.unwrap_or(facts.capability.mode_highest),
        mode_effective: facts.capability.mode_highest,
        mode_highest: facts.capability.mode_highest,
        lowered_by: Vec::new(),
        determining: Vec::new(),
        errors: Vec::new(),
        notes: Vec::new(),
        outcome: Outcome::Deny(DenialKind::Error),
    };
    let ruling = match Call::prepare(snapshot, facts, request_digest) {
        Ok(call) => call.rule(&mut decision),
        Err(fault) => Ruling::fault(fault),
    };
    conclude(snapshot, facts, decision, ruling)
}

/// A ruling, before the floor is applied.
#[derive(Debug)]
struct Ruling {
    outcome: Outcome,
    requirement: Option<Requirement>,
    determining: Vec<Determining>,
    errors: Vec<String>,
    notes: Vec<String>,
    /// Whether policy saw the call's approval.
    counted: bool,
}

impl Ruling {
    fn deny(kind: DenialKind, determining: Vec<Determining>, note: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Deny(kind),
            requirement: None,
            determining,
            errors: Vec::new(),
            notes: vec![note.into()],
            counted: false,
        }
    }

    fn fault(error: impl Into<String>) -> Self {
        Self::errors(vec![error.into()])
    }

    fn errors(errors: Vec<String>) -> Self {
        let outcome = Outcome::Deny(DenialKind::Error);
        Self {
            outcome,
            requirement: None,
            determining: Vec::new(),
            errors,
            notes: Vec::new(),
            counted: false,
        }
    }
}

fn conclude(
    snapshot: &Snapshot,
    facts: &Facts<'_>,
    mut decision: Decision,
    ruling: Ruling,
) -> Verdict {
    decision.determining = ruling.determining;
    decision.errors = ruling.errors;
    decision.notes.extend(ruling.notes);
    decision.outcome = ruling.outcome;
    if ruling.outcome != Outcome::Deny(DenialKind::Error)
        && let Some(obstacle) = floor::of(snapshot, facts)
    {
        decision.outcome = Outcome::Deny(obstacle.kind);
        decision.notes.push(obstacle.note.to_owned());
        // Permits made no difference to a denial.
        decision.determining.retain(|policy| policy.effect == PolicyEffect::Forbid);
    }
    let is_person = facts.chain.actor.kind == PrincipalKind::User;
    if decision.outcome == Outcome::Deny(DenialKind::Policy) && !facts.proof.attested && !is_person
    {
        decision.notes.push(UNATTESTED.to_owned());
    }
    match (decision.outcome, ruling.requirement) {
        (Outcome::Allow, _) => Verdict::Permit(Permit::of(facts, decision, ruling.counted)),
        (Outcome::Hold, Some(requirement)) => Verdict::Hold(Hold { requirement, decision }),
        (Outcome::Hold, None) => deny(DenialKind::Error, decision),
        (Outcome::Deny(kind), _) => deny(kind, decision),
    }
}

fn deny(kind: DenialKind, mut decision: Decision) -> Verdict {
    decision.outcome = Outcome::Deny(kind);
    Verdict::Deny(Denial { code: kind.code(), kind, decision })
}

/// A call, ready to be evaluated by policy.
#[derive(Debug)]
struct Call<'a> {
    snapshot: &'a Snapshot,
    facts: &'a Facts<'a>,
    plan: &'a ToolPlan,
    request_digest: Digest,
    input: Option<Value>,
    history: Value,
    links: Vec<(Link, EntityUid)>,
    known: Arc<Entities>,
    /// Groups of other tenants as policies write them, with the group that each means for this call.
    written: Vec<(String, ApproverGroup)>,
}

/// The terms under which a call is evaluated.
#[derive(Debug, Clone, Copy)]
struct Terms<'a> {
    mode: ApprovalMode,
    budget: BudgetView,
    record: Option<&'a ApprovalRecord>,
}

impl<'a> Call<'a> {
    fn prepare(
        snapshot: &'a Snapshot,
        facts: &'a Facts<'a>,
        request_digest: Digest,
    ) -> Result<Self, String> {
        if let Some(contradiction) = floor::contradiction(snapshot, facts) {
            return Err(contradiction.to_owned());
        }
        let plan = snapshot
            .tools
            .get(&facts.capability.id)
            .ok_or("the snapshot does not know the tool")?;
        let input = plan.input.as_ref().map(|of| input::value_of(of, facts.args)).transpose();
        let input = input.map_err(|error| error.to_string())?;
        let known = snapshot.known.of(facts, || {
            let mut known = entities::people(&snapshot.names, &snapshot.directory, facts)
                .map_err(|_unmade| "the principals cannot be put to policy")?;
            let tool = plan.entities.clone();
            known.extend([tool.tool, tool.adapter, tool.call, tool.lower]);
            Entities::from_entities(known, None)
                .map_err(|_unmade| "the facts cannot be put to policy")
        })?;
        let user = facts
            .chain
            .on_behalf_of
            .as_ref()
            .map(|user| (Link::User, snapshot.names.principal_uid(user)));
        let actor = (Link::Actor, snapshot.names.principal_uid(&facts.chain.actor));
        let links = std::iter::once(actor).chain(user).collect();
        let written = route::resolved(&plan.written, facts, &snapshot.directory);
        let history = snapshot.history.value(facts.history);
        Ok(Self { snapshot, facts, plan, request_digest, input, history, links, known, written })
    }

    fn rule(&self, decision: &mut Decision) -> Ruling {
        let mode = match self.lowered() {
            Ok(Some((mode, answers))) => {
                decision.lowered_by = self.determining(&answers);
                mode
            }
            Ok(None) => self.facts.capability.mode_highest,
            Err(errors) => return Ruling::errors(errors),
        };
        decision.mode_effective = mode;
        match self.facts.mode_requested {
            None => decision.mode_requested = mode,
            Some(requested) if requested < mode => {
                let note = format!("asked for as {requested}, the call is {mode}");
                return Ruling::deny(DenialKind::ModeUpgraded, vec![], note);
            }
            Some(_) => {}
        }
        if mode > self.facts.safety_mode {
            let note =
                format!("the call is {mode}, the run's ceiling is {}", self.facts.safety_mode);
            return Ruling::deny(DenialKind::Ceiling, vec![], note);
        }
        let counted = approval::count(self.facts, &self.snapshot.directory, self.request_digest);
        let ruling = self.judge(mode, self.facts.budget, &counted);
        if ruling.outcome == Outcome::Deny(DenialKind::Policy)
            && self.would_with_budget(mode, &counted)
        {
            let note = "with more of the run's budget the call would not be denied";
            return Ruling {
                outcome: Outcome::Deny(DenialKind::Budget),
                notes: vec![note.to_owned()],
                ..ruling
            };
        }
        ruling
    }

    /// The mode that the call has instead of its contract's, with the answers that lowered it: every link may lower it to the one requested;
    /// for a caller that named none, the weakest that it may be lowered to. An error ends the search.
    fn lowered(&self) -> Result<Option<(ApprovalMode, Vec<Evaluation>)>, Vec<String>> {
        let (tool, requested) = (self.facts.capability, self.facts.mode_requested);
        let highest = tool.mode_highest;
        if self.plan.lower_slice.is_empty() {
            return Ok(None);
        }
        let terms = Terms { mode: highest, budget: self.facts.budget, record: None };
        for target in ApprovalMode::ALL {
            let is_asked_for = match requested {
                Some(requested) => target == requested,
                None => target != ApprovalMode::ReadOnly || !tool.is_write_class(),
            };
            if target >= highest || !is_asked_for {
                continue;
            }
            let answers = self.put(&self.plan.lower, &self.plan.lower_slice, Some(target), terms);
            let errors = errors_of(&answers);
            if !errors.is_empty() {
                return Err(errors);
            }
            if all_allow(&answers) {
                return Ok(Some((target, answers)));
            }
        }
        Ok(None)
    }

    fn would_with_budget(&self, mode: ApprovalMode, counted: &Counted) -> bool {
        let (calls_left, cents_left) = BUDGET_AMPLE;
        let ample = BudgetView { calls_left, cents_left, ..self.facts.budget };
        !matches!(
            self.judge(mode, ample, counted).outcome,
            Outcome::Deny(DenialKind::Policy | DenialKind::Error)
        )
    }

    /// Whether the call is allowed as things are, could be with an approval, or neither. Where an approval allows it, the votes are counted
    /// again under what is asked now.
    fn judge(&self, mode: ApprovalMode, budget: BudgetView, counted: &Counted) -> Ruling {
        let ruling = self.judge_by(mode, budget, counted);
        if ruling.outcome != Outcome::Allow || !ruling.counted {
            return ruling;
        }
        match self.recounted(Terms { mode, budget, record: None }) {
            Ok(None) => ruling,
            Ok(Some(recounted)) => self.judge_by(mode, budget, &recounted),
            Err(errors) => Ruling::errors(errors),
        }
    }

    fn judge_by(&self, mode: ApprovalMode, budget: BudgetView, counted: &Counted) -> Ruling {
        let mut terms = Terms { mode, budget, record: counted.record.as_ref() };
        match self.grant_is_of_use(terms) {
            Ok(true) => {}
            Ok(false) => terms.record = None,
            Err(errors) => return Ruling::errors(errors),
        }
        let answers = self.call(terms);
        let errors = errors_of(&answers);
        if !errors.is_empty() {
            return Ruling::errors(errors);
        }
        let determining = self.determining(&answers);
        if all_allow(&answers) {
            return Ruling {
                outcome: Outcome::Allow,
                requirement: None,
                determining,
                errors: vec![],
                notes: vec![],
                counted: terms.record.is_some(),
            };
        }
        if let Some(final_denial) = self.denies_for_good(&answers, &determining) {
            return final_denial;
        }
        // What the call needs is determined without the votes it already has, so that the requirement is complete.
        let bare = if terms.record.is_some() {
            self.call(Terms { record: None, ..terms })
        } else {
            answers
        };
        let errors = errors_of(&bare);
        if !errors.is_empty() {
            return Ruling::errors(errors);
        }
        if let Some(final_denial) = self.denies_for_good(&bare, &determining) {
            return final_denial;
        }
        self.counterfactual(terms, &bare, determining, counted.flaw)
    }

    /// A denial that no approval changes: by a policy that cannot be set aside, or because nothing permits the call.
    fn denies_for_good(
        &self,
        answers: &[Evaluation],
        determining: &[Determining],
    ) -> Option<Ruling> {
        let for_good = answers.iter().filter(|answer| !answer.allowed).find_map(|answer| {
            if answer.determining.is_empty() {
                return Some(format!("no policy permits the call to {}", answer.link.as_str()));
            }
            let fixed = answer.determining.iter().find(|id| !self.can_be_set_aside(id));
            fixed.map(|id| format!("policy `{id}` cannot be set aside by an approval"))
        });
        for_good.map(|note| Ruling::deny(DenialKind::Policy, determining.to_vec(), note))
    }

    fn can_be_set_aside(&self, id: &str) -> bool {
        let policy = self.snapshot.policies.get(id);
        policy.is_some_and(|policy| matches!(policy.rule, ApprovalRule::Required(_)))
    }

    /// Would the best approval help? Only then are people asked.
    fn counterfactual(
        &self,
        terms: Terms<'_>,
        bare: &[Evaluation],
        determining: Vec<Determining>,
        flaw: Option<DenialKind>,
    ) -> Ruling {
        let requirement = match self.requirement(bare) {
            Ok(Some(requirement)) => requirement,
            Ok(None) => {
                let note =
                    "without its approval the call would be allowed, with it policies disagree";
                return Ruling::deny(DenialKind::Policy, determining, note);
            }
            Err(note) => return Ruling::deny(DenialKind::NobodyToAsk, determining, note),
        };
        let ideal = approval::ideal(&requirement, None, self.facts, self.request_digest);
        let answers = self.call(Terms { record: Some(&ideal), ..terms });
        let errors = errors_of(&answers);
        if !errors.is_empty() {
            return Ruling::errors(errors);
        }
        if !all_allow(&answers) {
            let still = answers.iter().find(|answer| !answer.allowed);
            let why = still.map_or_else(String::new, |answer| match answer.determining.first() {
                Some(policy) => format!(": policy `{policy}` would still forbid it"),
                None => format!(": no policy permits the call to {}", answer.link.as_str()),
            });
            return Ruling::deny(
                DenialKind::Policy,
                determining,
                format!("no approval would help{why}"),
            );
        }
        if let Some(note) = impersonation::without_success(self.snapshot, self.facts, &answers) {
            return Ruling::deny(DenialKind::Policy, determining, note);
        }
        if let Some(kind) = flaw {
            return Ruling::deny(kind, determining, "the approval it has is of no use any more");
        }
        let (requirement, notes) = match self.with_escalations_of_use(terms, requirement) {
            Ok(found) => found,
            Err(errors) => return Ruling::errors(errors),
        };
        Ruling {
            outcome: Outcome::Hold,
            requirement: Some(requirement),
            determining,
            errors: vec![],
            notes,
            counted: false,
        }
    }

    /// The requirement without escalations that policies would not accept: nobody is asked without success later, either.
    fn with_escalations_of_use(
        &self,
        terms: Terms<'_>,
        requirement: Requirement,
    ) -> Result<(Requirement, Vec<String>), Vec<String>> {
        let (mut kept, mut notes) = (Vec::new(), Vec::new());
        for escalation in &requirement.escalations {
            let ideal =
                approval::ideal(&requirement, Some(escalation), self.facts, self.request_digest);
            let answers = self.call(Terms { record: Some(&ideal), ..terms });
            let errors = errors_of(&answers);
            if !errors.is_empty() {
                return Err(errors);
            }
            if all_allow(&answers) {
                kept.push(escalation.clone());
            } else {
                notes.push(format!(
                    "nobody of `{}` is asked later: the conditions do not accept them instead",
                    escalation.group
                ));
            }
        }
        Ok((Requirement { escalations: kept, ..requirement }, notes))
    }

    /// Who is asked by the policies that forbid the call.
    fn requirement(&self, answers: &[Evaluation]) -> Result<Option<Requirement>, String> {
        approval::requirement(self.forbids(answers), self.facts, &self.snapshot.directory)
    }

    fn forbids(&self, answers: &[Evaluation]) -> Vec<&'a PolicyMeta> {
        let denied =
            answers.iter().filter(|answer| !answer.allowed).flat_map(|answer| &answer.determining);
        let mut found: Vec<&PolicyMeta> =
            denied.filter_map(|id| self.snapshot.policies.get(id)).collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found.dedup_by(|a, b| a.id == b.id);
        found
    }

    /// The policies that made the difference: of a denial, those that denied; else all.
    fn determining(&self, answers: &[Evaluation]) -> Vec<Determining> {
        let allowed = all_allow(answers);
        let relevant = answers.iter().filter(|answer| answer.allowed == allowed);
        let named =
            relevant.flat_map(|answer| answer.determining.iter().map(|id| (id, answer.link)));
        named.filter_map(|(id, link)| self.snapshot.determining(id, link)).collect()
    }

    fn call(&self, terms: Terms<'_>) -> Vec<Evaluation> {
        self.put(&self.plan.call, &self.plan.call_slice, None, terms)
    }

    /// Puts one action to policy, for every link of the chain.
    fn put(
        &self,
        action: &EntityUid,
        policies: &PolicySet,
        mode_target: Option<ApprovalMode>,
        terms: Terms<'_>,
    ) -> Vec<Evaluation> {
        let circumstance = Circumstance {
            mode_requested: self.facts.mode_requested.or(mode_target).unwrap_or(terms.mode),
            mode_effective: terms.mode,
            mode_target,
            budget: terms.budget,
            approved: terms.record.is_some(),
            request_digest: self.request_digest,
        };
        let names = &self.snapshot.names;
        let approval =
            terms.record.map(|record| entities::approval(names, record, &self.written)).transpose();
        let known = approval.ok().and_then(|approval| match approval {
            None => Some(Arc::clone(&self.known)),
            Some(approval) => {
                let known = Entities::clone(&self.known).add_entities([approval], None);
                known.ok().map(Arc::new)
            }
        });
        let context =
            context::of(names, self.facts, &circumstance, &self.history, self.input.as_ref()).ok();
        let (Some(known), Some(context)) = (known, context) else {
            return vec![Evaluation::fault("the facts cannot be put to policy")];
        };
        let questions = self.links.iter().map(|(link, principal)| Question {
            link: *link,
            principal: principal.clone(),
            action: action.clone(),
            resource: self.plan.tool.clone(),
            context: context.clone(),
        });
        questions
            .map(|question| evaluate(&self.snapshot.schema, policies, &known, question))
            .collect()
    }
}

fn all_allow(answers: &[Evaluation]) -> bool {
    !answers.is_empty() && answers.iter().all(|answer| answer.allowed)
}

fn errors_of(answers: &[Evaluation]) -> Vec<String> {
    let mut errors: Vec<String> =
        answers.iter().flat_map(|answer| answer.errors.iter().cloned()).collect();
    errors.sort();
    errors.dedup();
    errors
}

impl Snapshot {
    /// A policy as a decision names it.
    pub(crate) fn determining(&self, id: &str, link: Link) -> Option<Determining> {
        let policy = self.policies.get(id)?;
        let tells_agent = policy.tells_agent();
        let feedback = policy.feedback().map(str::to_owned);
        let (policy, effect, reason) =
            (policy.id.clone(), policy.effect, policy.reason().map(str::to_owned));
        Some(Determining { policy, effect, link, reason, tells_agent, feedback })
    }
}

#[cfg(test)]
mod tests;
