//! How a store in memory applies a commit.
//!
//! Owns the plainest reading of the checks: revisions, legal moves, duties, budgets, policies. Atomicity is the caller's: it works on a
//! copy.

use placet_types::digest::Digest;

use super::Inner;
use crate::{
    approval::ApprovalRecord,
    directive::Directive,
    record::{EffectRecord, EffectState},
    store::{Changes, EffectChange, StoreError},
};

impl Inner {
    pub(super) fn apply(&mut self, epoch: u64, changes: Changes) -> Result<(), StoreError> {
        if self.over.contains(&epoch) {
            return Err(StoreError::Fenced);
        }
        self.check_policy(&changes)?;
        let basis = changes.expect_directives;
        if basis.is_some_and(|basis| !basis.holds(self.restriction_version, self.now)) {
            return Err(StoreError::DirectiveMoved);
        }
        for (tenant, bytes) in changes.content {
            self.content.insert((tenant, Digest::of(&bytes)), bytes);
        }
        for run in changes.runs {
            self.runs.entry(run.key.clone()).or_insert(run);
        }
        if let Some(reservation) = changes.reserve {
            let run = self.runs.get_mut(&reservation.run).ok_or(StoreError::BudgetExhausted)?;
            *run = run.reserved(reservation.cents).ok_or(StoreError::BudgetExhausted)?;
            for meter in &reservation.meters {
                let kept = self.runs.get(&meter.key(&reservation.run));
                let taken = meter.taken(&reservation.run, kept, reservation.cents)?;
                self.runs.insert(taken.key.clone(), taken);
            }
        }
        if let Some(refund) = changes.refund
            && let Some(run) = self.runs.get_mut(&refund.run)
        {
            *run = run.refunded(refund.cents);
        }
        for brought in changes.taint {
            for key in brought.keys() {
                if let Some(run) = self.runs.get_mut(&key) {
                    run.taint.extend(&brought.taint);
                }
            }
        }
        for change in changes.effects {
            self.change_effect(epoch, change)?;
        }
        for approval in changes.approvals {
            self.put_approval(approval)?;
        }
        for entry in changes.directives {
            self.restriction_version =
                self.restriction_version.saturating_add(u64::from(entry.is_restrictive()));
            self.put_directive(entry)?;
        }
        if let Some(directive_id) = changes.spend {
            let spent = self.directives.get(&directive_id).and_then(|grant| grant.spent(self.now));
            self.put_directive(spent.ok_or(StoreError::GrantSpent)?)?;
        }
        for (approval_id, rev) in changes.forget_approvals {
            let stored = self.approvals.get(&approval_id).ok_or(StoreError::Conflict)?;
            if stored.rev != rev || !stored.may_be_forgotten() {
                return Err(StoreError::Conflict);
            }
            self.approvals.remove(&approval_id);
        }
        for (directive_id, rev) in changes.forget_directive {
            let stored = self.directives.get(&directive_id).ok_or(StoreError::Conflict)?;
            if stored.rev != rev || stored.is_open(self.now) {
                return Err(StoreError::Conflict);
            }
            self.directives.remove(&directive_id);
        }
        self.content.retain(|place, _| !changes.forget_content.contains(place));
        changes.outbox.iter().for_each(|change| self.outbox.take(change));
        self.audit.extend(changes.audit);
        self.seq = self.seq.saturating_add(1);
        Ok(())
    }

    fn check_policy(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let epoch = self.policy.map_or(0, |policy| policy.epoch);
        if changes.expect_policy.is_some_and(|expected| expected != epoch) {
            return Err(StoreError::PolicyMoved);
        }
        if let Some(next) = changes.activate {
            if self.policy != Some(next) && epoch.checked_add(1) != Some(next.epoch) {
                return Err(StoreError::Conflict);
            }
            if self.shared {
                self.past_policies.check(self.policy, next, changes.rolls_back)?;
            }
            self.past_policies.activated(self.policy, next, self.now);
            self.policy = Some(next);
        }
        Ok(())
    }

    pub(super) fn is_orphaned(&self, record: &EffectRecord, epoch: u64) -> bool {
        match &record.state {
            EffectState::Dispatched(attempt) if self.shared => self.over.contains(&attempt.duty()),
            EffectState::Claimed { .. }
            | EffectState::PendingApproval { .. }
            | EffectState::Approved { .. }
            | EffectState::Dispatched(_)
            | EffectState::Succeeded { .. }
            | EffectState::FailedFinal { .. }
            | EffectState::FailedRetriable { .. }
            | EffectState::Indeterminate { .. }
            | EffectState::Rearmed { .. }
            | EffectState::Denied { .. }
            | EffectState::Tombstone { .. } => record.is_orphaned(epoch),
        }
    }

    /// A dispatch must be settled by the writing epoch, and is taken over only from one that has ended.
    fn check_duty(&self, epoch: u64, after: &EffectRecord) -> Result<(), StoreError> {
        let EffectState::Dispatched(attempt) = &after.state else { return Ok(()) };
        let before = self.effects.get(&after.record_id).map(|before| &before.state);
        let adopts = match before {
            Some(EffectState::Dispatched(before)) if before.duty() != epoch => {
                self.over.contains(&before.duty())
            }
            _ => true,
        };
        if attempt.duty() == epoch && adopts { Ok(()) } else { Err(StoreError::Conflict) }
    }

    fn change_effect(&mut self, epoch: u64, change: EffectChange) -> Result<(), StoreError> {
        match change {
            EffectChange::Put(record) => {
                let claim = self.claims.get(&(epoch, record.record_id));
                let stored = self.effects.get(&record.record_id);
                check_rev(stored.map_or(0, |stored| stored.rev), record.rev)?;
                if let Some(before) = stored.or(claim) {
                    check_move(before, &record)?;
                }
                self.check_duty(epoch, &record)?;
                self.claims.remove(&(epoch, record.record_id));
                self.effects.insert(record.record_id, *record);
            }
            EffectChange::Remove { record_id, rev } => {
                let stored = self.effects.get(&record_id).ok_or(StoreError::Conflict)?;
                if stored.rev != rev || !stored.may_be_removed() {
                    return Err(StoreError::Conflict);
                }
                self.effects.remove(&record_id);
            }
            EffectChange::Forget { record_id, rev } => {
                let stored = self.effects.get(&record_id).ok_or(StoreError::Conflict)?;
                if stored.rev != rev || !stored.may_be_forgotten() {
                    return Err(StoreError::Conflict);
                }
                self.effects.remove(&record_id);
            }
        }
        Ok(())
    }

    fn put_approval(&mut self, approval: ApprovalRecord) -> Result<(), StoreError> {
        let stored = self.approvals.get(&approval.approval_id);
        check_rev(stored.map_or(0, |stored| stored.rev), approval.rev)?;
        if stored.is_some_and(|stored| !approval.may_follow(Some(stored))) {
            return Err(StoreError::Conflict);
        }
        if approval.is_consumed() && approval.expires_at <= self.now {
            return Err(StoreError::Conflict);
        }
        self.approvals.insert(approval.approval_id.clone(), approval);
        Ok(())
    }

    fn put_directive(&mut self, entry: Directive) -> Result<(), StoreError> {
        if !entry.may_follow(self.directives.get(&entry.directive_id)) {
            return Err(StoreError::Conflict);
        }
        self.directives.insert(entry.directive_id.clone(), entry);
        Ok(())
    }
}

fn check_rev(stored: u64, next: u64) -> Result<(), StoreError> {
    if stored.checked_add(1) == Some(next) { Ok(()) } else { Err(StoreError::Conflict) }
}

fn check_move(before: &EffectRecord, after: &EffectRecord) -> Result<(), StoreError> {
    if before.may_move_to(after) {
        return Ok(());
    }
    Err(StoreError::Illegal(before.illegal(&after.state)))
}
