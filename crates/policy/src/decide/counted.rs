//! Which approvals and standing grants count, beyond what the conditions of policies say.
//!
//! Owns the effect of annotations on votes already given, and where a standing grant is of no use. How votes are counted is `approval`'s.

use placet_types::approval::{
    Requirement,
    ballot::{Ballot, Tally},
};

use super::{Call, Terms, all_allow, errors_of};
use crate::{
    approval::{self, Counted},
    facts::{ApprovalFacts, ApprovalScope, Facts},
};

impl Call<'_> {
    /// The votes of an approval or a standing grant counted under what the active policies ask, where that is something else than people
    /// were asked under: whose agreement counts, from when on, after how fresh a sign-in, and how many denials suffice. Until enough
    /// people agree, none of it counts, however few a condition asks for: an approval needs what is asked now, a grant what it asked.
    pub(super) fn recounted(&self, bare: Terms<'_>) -> Result<Option<Counted>, Vec<String>> {
        let Some(approval) = self.facts.approval else { return Ok(None) };
        let answers = self.call(bare);
        let errors = errors_of(&answers);
        if !errors.is_empty() {
            return Err(errors);
        }
        let Ok(Some(now)) = self.requirement(&answers) else { return Ok(None) };
        let earlier = &approval.requirement;
        let (mut asked, escalated) = now.instead_of(earlier, approval.escalated);
        asked.fresh_auth_ms = asked.fresh_auth_ms.into_iter().chain(earlier.fresh_auth_ms).min();
        asked.deny_threshold = asked.deny_threshold.min(earlier.deny_threshold);
        let (needed, escalations) = match approval.scope {
            ApprovalScope::Once => (&asked, escalated),
            ApprovalScope::Standing(_) => (earlier, approval.escalated),
        };
        if self.tally(approval, needed, escalations) == Tally::Open {
            return Ok(Some(Counted::default()));
        }
        if asked == *earlier && escalated == approval.escalated {
            return Ok(None);
        }
        let approval = ApprovalFacts { requirement: asked, escalated, ..approval.clone() };
        let facts = Facts { approval: Some(&approval), ..*self.facts };
        Ok(Some(approval::count(&facts, &self.snapshot.directory, self.request_digest)))
    }

    /// The count of the ledger.
    fn tally(&self, approval: &ApprovalFacts, requirement: &Requirement, escalated: u32) -> Tally {
        let (facts, votes) = (self.facts, &approval.votes);
        let lapsed =
            &approval::lapsed(&self.snapshot.directory, facts.chain, requirement, votes, facts.now);
        let shown = approval.shown_digest;
        Ballot { requirement, escalated, shown, votes, lapsed }.tally()
    }

    /// A standing grant counts only where the call would wait for people, and never where a policy wants them to decide on each
    /// single call, whatever its condition says. An approval of the call itself always counts.
    pub(super) fn grant_is_of_use(&self, terms: Terms<'_>) -> Result<bool, Vec<String>> {
        let scope = self.facts.approval.map(|approval| &approval.scope);
        if terms.record.is_none() || !matches!(scope, Some(ApprovalScope::Standing(_))) {
            return Ok(true);
        }
        let bare = self.call(Terms { record: None, ..terms });
        let errors = errors_of(&bare);
        if !errors.is_empty() {
            return Err(errors);
        }
        let once_only = match self.requirement(&bare) {
            Ok(Some(requirement)) => requirement.once_only,
            Ok(None) | Err(_) => true,
        };
        Ok(!all_allow(&bare) && !once_only)
    }
}
