//! Running the cases about people.
//!
//! Owns how such a case becomes a question, and the comparison.

use std::collections::BTreeSet;

use placet_types::{approval::Voice, clock::Timestamp, principal::PrincipalKind};

use super::{
    super::people::{DirectiveCase, ExpectedReview, ReviewAct, ReviewCase},
    CaseOutcome, Runner, chain_of, difference_of_policies, failed, principal_of,
};
use crate::{
    manage::{EntryFacts, Management},
    review::{Review, ReviewAction, ReviewRefusal, ReviewedRequest, Reviewer, Withdrawal},
};

impl Runner<'_> {
    pub(super) fn review(&self, case: &ReviewCase) -> CaseOutcome {
        if let Err(unknown) = self.knows_review(case) {
            return failed(&case.name, unknown);
        }
        let person = principal_of(&case.reviewer, PrincipalKind::User);
        let chain = chain_of(&case.actor, case.user.as_ref());
        let Some((_, capability)) = self.world.find(&case.tool) else {
            return failed(&case.name, format!("no contract has the tool `{}`", case.tool));
        };
        let request = ReviewedRequest {
            chain: &chain,
            capability: &case.tool,
            mode: capability.mode_highest,
            asked: case.asked.clone(),
            fresh_auth_ms: case.fresh_auth_ms,
            expires_at: case.now.plus_ms(case.expires_in_ms),
            decided_by: case.decided_by.iter().map(Voice::own).collect(),
            authors: case.authors.clone(),
        };
        let colleague = case.stands_for.as_ref().map(|colleague| {
            let mut principal = person.clone();
            principal.id = colleague.id.clone();
            (principal, &colleague.groups)
        });
        let stands_for =
            colleague.as_ref().map(|(principal, groups)| Reviewer { principal, groups });
        let reviewer = Reviewer { principal: &person, groups: &case.groups };
        let decided = |action| {
            self.snapshot.may_review(&Review {
                reviewer,
                stands_for,
                request: &request,
                action,
                authenticated_at: ago(case.now, case.authenticated_ago_ms),
                now: case.now,
            })
        };
        let answer = match case.act {
            ReviewAct::View => self.snapshot.may_view(&reviewer, &request, case.now),
            ReviewAct::Approve => decided(ReviewAction::Approve),
            ReviewAct::Deny => decided(ReviewAction::Deny),
            ReviewAct::Edit => decided(ReviewAction::Edit),
            ReviewAct::Withdraw => self.snapshot.may_withdraw(&Withdrawal {
                by: reviewer,
                is_requester: person == chain.actor,
                request: &request,
                authenticated_at: ago(case.now, case.authenticated_ago_ms),
                now: case.now,
            }),
        };
        outcome(&case.name, case.expect, case.policies.as_ref(), answer)
    }

    pub(super) fn directives(&self, case: &DirectiveCase) -> CaseOutcome {
        if let Err(unknown) = self.knows_directive(case) {
            return failed(&case.name, unknown);
        }
        let person = principal_of(&case.person, PrincipalKind::User);
        let entry = case.entry.as_ref().map(|entry| EntryFacts {
            tenant: entry.tenant.as_ref().unwrap_or(&person.tenant_id),
            by: &entry.by,
            decided_by: &entry.decided_by,
            asked: &entry.asked,
            colleague: entry.colleague.as_ref(),
        });
        let answer = self.snapshot.may_manage(&Management {
            reviewer: Reviewer { principal: &person, groups: &case.groups },
            authenticated_at: ago(case.now, case.authenticated_ago_ms),
            act: case.act,
            entry,
            now: case.now,
        });
        outcome(&case.name, case.expect, case.policies.as_ref(), answer)
    }
}

fn ago(now: Timestamp, ms: Option<i64>) -> Option<Timestamp> {
    ms.map(|ms| now.plus_ms(ms.saturating_neg()))
}

fn outcome(
    name: &str,
    expect: ExpectedReview,
    policies: Option<&BTreeSet<String>>,
    answer: Result<(), ReviewRefusal>,
) -> CaseOutcome {
    let mut differences = Vec::new();
    let got = if answer.is_ok() { ExpectedReview::Allow } else { ExpectedReview::Refuse };
    if got != expect {
        differences.push(match got {
            ExpectedReview::Allow => "it is allowed, expected a refusal".to_owned(),
            ExpectedReview::Refuse => "it is refused, expected to be allowed".to_owned(),
        });
    }
    let against = answer.as_ref().err().map(|refusal| &refusal.determining).into_iter().flatten();
    let against: BTreeSet<String> = against.map(|one| one.policy.clone()).collect();
    differences.extend(difference_of_policies(policies, &against));
    let explanation = answer.err().map(|refusal| refusal.to_string()).into_iter().collect();
    CaseOutcome { name: name.to_owned(), differences, explanation }
}
