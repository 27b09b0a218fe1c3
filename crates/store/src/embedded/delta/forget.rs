//! What entries say has gone from the desk: approvals and entries whose retention was over.
//!
//! Owns the edits that take them out of every list. The entries of the journal that made them what they were stay.

use placet_types::ids::{ApprovalId, DeskId};

use super::Delta;
use crate::embedded::{keys, slip};

impl Delta {
    pub(super) fn forget(
        &mut self,
        seq: u64,
        approvals: Vec<(ApprovalId, u64)>,
        desk: Vec<(DeskId, u64)>,
    ) -> Result<(), String> {
        let mut edits = Vec::new();
        for (approval_id, rev) in approvals {
            let before = self.approval_slip(&approval_id)?.filter(|before| before.rev == rev);
            let before = before.ok_or("it forgets an approval of another revision")?;
            slip::approval_gone(&approval_id, &before, &mut edits);
            self.counts.approvals = self.counts.approvals.saturating_sub(1);
        }
        for (desk_id, rev) in desk {
            let before = self.desk_entry(&keys::desk(&desk_id))?;
            let before = before.filter(|before| before.rev == rev);
            let before = before.ok_or("it forgets a desk entry of another revision")?;
            slip::desk_gone(&before, &mut edits);
            self.counts.desk = self.counts.desk.saturating_sub(1);
        }
        self.put(seq, edits);
        Ok(())
    }
}
