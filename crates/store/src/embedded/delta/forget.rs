//! What entries say has gone: contents, approvals and directives whose retention was over.
//!
//! Owns which deletions of contents a start has to do once more, and the edits that take the rest out of every list. The entries of the
//! journal that made them what they were stay. Invariant: what a later entry names was kept with it, and is not deleted for an earlier one.

use placet_types::ids::{ApprovalId, DirectiveId, TenantId};

use super::Delta;
use crate::embedded::codec::{EffectOutline, Outline};
use crate::embedded::{keys, slip};

/// The state of a record whose contents were deleted when it came into it.
const BURIED: &str = "tombstone";

impl Delta {
    /// What an entry names is there from it on, whatever was deleted before. What it says itself is deleted comes after that.
    pub(super) fn kept_anew(&mut self, outline: &Outline<'_>) -> Result<(), String> {
        if self.forgotten.is_empty() {
            return Ok(());
        }
        for effect in &outline.effects {
            let EffectOutline::Put { scope, parked, state, .. } = effect else { continue };
            if state.state == BURIED {
                continue;
            }
            let tenant = TenantId::new(scope.tenant.clone()).map_err(|error| error.to_string())?;
            for digest in [Some(*parked), state.result].into_iter().flatten() {
                self.forgotten.remove(&(tenant.clone(), digest));
            }
        }
        for approval in &outline.approvals {
            self.forgotten.remove(&(approval.chain.tenant().clone(), approval.proposal));
        }
        Ok(())
    }

    pub(super) fn forget(
        &mut self,
        seq: u64,
        approvals: Vec<(ApprovalId, u64)>,
        directives: Vec<(DirectiveId, u64)>,
    ) -> Result<(), String> {
        let mut edits = Vec::new();
        for (approval_id, rev) in approvals {
            let before = self.approval_slip(&approval_id)?.filter(|before| before.rev == rev);
            let before = before.ok_or("it forgets an approval of another revision")?;
            slip::approval_gone(&approval_id, &before, &mut edits);
            self.counts.approvals = self.counts.approvals.saturating_sub(1);
        }
        for (directive_id, rev) in directives {
            let before = self.directive(&keys::directives(&directive_id))?;
            let before = before.filter(|before| before.rev == rev);
            let before = before.ok_or("it forgets a directive of another revision")?;
            slip::dir_gone(&before, &mut edits);
            self.counts.directives = self.counts.directives.saturating_sub(1);
        }
        self.put(seq, edits);
        Ok(())
    }
}
