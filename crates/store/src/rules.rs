//! Whether changes may be made, and what they make of the records: the same rules for every store.
//!
//! Owns the checks of one commit against the current records: revisions, legal moves, claims, budgets, epochs, policies. Not here: where
//! the records come from ([`Base`]) and where the outcome goes. Invariants I7 (legal moves) and I8 (no dispatch of another epoch, no
//! adoption from a process that has not ended); a refusal leaves nothing behind.

use std::collections::HashMap;
use std::sync::Arc;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::directive::Directive;
use placet_ledger::policies::{PastPolicies, PolicyState};
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::reservation::Reservation;
use placet_ledger::run::{RunKey, RunRecord, RunTaint};
use placet_ledger::store::{Changes, EffectChange, StoreError};
use placet_types::clock::Timestamp;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId};

/// A change that an entry makes: a record before it, if there was one, and after it, unless it is gone.
#[derive(Debug)]
pub(crate) enum Op {
    Effect { before: Option<Arc<EffectRecord>>, after: Option<Arc<EffectRecord>> },
    Approval { before: Option<Arc<ApprovalRecord>>, after: Option<Arc<ApprovalRecord>> },
    Directive { before: Option<Arc<Directive>>, after: Option<Arc<Directive>> },
    Run(Arc<RunRecord>),
}

/// The current records, with everything that is prepared.
pub(crate) trait Base {
    /// An effect record.
    fn effect(&self, record_id: &RecordId) -> Result<Option<Arc<EffectRecord>>, StoreError>;
    /// An approval.
    fn approval(&self, approval_id: &ApprovalId)
    -> Result<Option<Arc<ApprovalRecord>>, StoreError>;
    /// An entry of the approval service.
    fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Arc<Directive>>, StoreError>;
    /// A run.
    fn run(&self, key: &RunKey) -> Result<Option<Arc<RunRecord>>, StoreError>;
    /// Whether the process of `epoch` is known to have ended, so that epoch `own` may take over its duties.
    fn is_over(&self, epoch: u64, own: u64) -> bool {
        epoch < own
    }
}

/// The keys claimed in memory.
pub(crate) trait Claimants {
    /// Whether another call than that of `record` holds its key.
    fn is_foreign(&self, record: &EffectRecord) -> bool;
}

/// The checks for new changes. Journal entries are exempt: they were checked when they were written.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) epoch: u64,
    /// The time that the entry carries.
    pub(crate) now: Timestamp,
    pub(crate) claims: &'a dyn Claimants,
}

/// The policies after these changes; refused when the permit was given under other policies (decision 26), and when those to be activated
/// were replaced before. `past` is empty for a store of one process: what its files say is what its operator wants.
pub(crate) fn policy_after(
    current: Option<PolicyState>,
    past: &PastPolicies,
    changes: &Changes,
) -> Result<Option<PolicyState>, StoreError> {
    let epoch = current.map_or(0, |policy| policy.epoch);
    if changes.expect_policy.is_some_and(|expected| expected != epoch) {
        return Err(StoreError::PolicyMoved);
    }
    match changes.activate {
        Some(next) if current != Some(next) && epoch.checked_add(1) != Some(next.epoch) => {
            Err(StoreError::Conflict)
        }
        Some(next) => {
            past.check(current, next, changes.rolls_back)?;
            Ok(Some(next))
        }
        None => Ok(current),
    }
}

/// Refuses a change whose permit is outdated: directives became stricter after `rev` such changes, or it does not hold at `now`.
pub(crate) fn check_directives(
    rev: u64,
    now: Timestamp,
    changes: &Changes,
) -> Result<(), StoreError> {
    match changes.expect_directives {
        Some(basis) if !basis.holds(rev, now) => Err(StoreError::DirectiveMoved),
        Some(_) | None => Ok(()),
    }
}

/// The count of stricter changes after these changes.
pub(crate) fn directives_rev_after(rev: u64, ops: &[Op]) -> u64 {
    let is_stricter =
        |op: &&Op| matches!(op, Op::Directive { after: Some(after), .. } if after.is_restrictive());
    let stricter = ops.iter().filter(is_stricter);
    rev.saturating_add(u64::try_from(stricter.count()).unwrap_or(u64::MAX))
}

/// The records that one commit changes, and how; `None`: the record is gone.
#[derive(Default)]
pub(crate) struct Changed {
    pub(crate) effects: HashMap<RecordId, Option<Arc<EffectRecord>>>,
    pub(crate) approvals: HashMap<ApprovalId, Option<Arc<ApprovalRecord>>>,
    pub(crate) directives: HashMap<DirectiveId, Option<Arc<Directive>>>,
    pub(crate) runs: HashMap<RunKey, Arc<RunRecord>>,
    pub(crate) ops: Vec<Op>,
}

/// One commit so far.
pub(crate) struct Transaction<'a> {
    base: &'a dyn Base,
    rules: Option<Rules<'a>>,
    pub(crate) changed: Changed,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(base: &'a dyn Base, rules: Option<Rules<'a>>) -> Self {
        Self { base, rules, changed: Changed::default() }
    }

    /// Applies the changes of records, runs and budgets, in the order in which they count.
    pub(crate) fn take_in(&mut self, changes: &mut Changes) -> Result<(), StoreError> {
        self.open_runs(std::mem::take(&mut changes.runs))?;
        if let Some(reservation) = &changes.reserve {
            self.reserve(reservation)?;
        }
        if let Some(reservation) = &changes.refund {
            self.refund(reservation)?;
        }
        for brought in &changes.taint {
            self.taint(brought)?;
        }
        let reopened: Vec<ApprovalId> = changes
            .approvals
            .iter()
            .filter(|approval| approval.state == ApprovalState::Pending)
            .map(|approval| approval.approval_id.clone())
            .collect();
        for change in std::mem::take(&mut changes.effects) {
            match change {
                EffectChange::Put(record) => self.put_effect(*record, &reopened)?,
                EffectChange::Remove { record_id, rev } => {
                    self.drop_effect(record_id, rev, EffectRecord::may_be_removed)?;
                }
                EffectChange::Forget { record_id, rev } => {
                    self.drop_effect(record_id, rev, EffectRecord::may_be_forgotten)?;
                }
            }
        }
        for approval in std::mem::take(&mut changes.approvals) {
            self.put_approval(approval)?;
        }
        for entry in std::mem::take(&mut changes.directives) {
            self.put_directive(entry)?;
        }
        if let Some(directive_id) = &changes.spend {
            self.spend(directive_id)?;
        }
        for (approval_id, rev) in std::mem::take(&mut changes.forget_approvals) {
            self.forget_approval(approval_id, rev)?;
        }
        for (directive_id, rev) in std::mem::take(&mut changes.forget_directive) {
            self.forget_directive(directive_id, rev)?;
        }
        Ok(())
    }

    /// Opens runs; one that is open stays as it is.
    pub(crate) fn open_runs(&mut self, runs: Vec<RunRecord>) -> Result<(), StoreError> {
        for run in runs {
            if self.run(&run.key)?.is_none() {
                self.put_run(run)?;
            }
        }
        Ok(())
    }

    /// Takes from a run's budget, and from the meters.
    pub(crate) fn reserve(&mut self, reservation: &Reservation) -> Result<(), StoreError> {
        let run = self.run(&reservation.run)?.ok_or(StoreError::BudgetExhausted)?;
        self.put_run(run.reserved(reservation.cents).ok_or(StoreError::BudgetExhausted)?)?;
        for meter in &reservation.meters {
            let kept = self.run(&meter.key(&reservation.run))?;
            self.put_run(meter.taken(&reservation.run, kept.as_deref(), reservation.cents)?)?;
        }
        Ok(())
    }

    /// Returns what was taken from a run's budget; a run that is gone gets nothing.
    pub(crate) fn refund(&mut self, reservation: &Reservation) -> Result<(), StoreError> {
        match self.run(&reservation.run)? {
            Some(run) => self.put_run(run.refunded(reservation.cents)),
            None => Ok(()),
        }
    }

    /// Taints the context of a run, and of its session; one that is gone is skipped.
    pub(crate) fn taint(&mut self, brought: &RunTaint) -> Result<(), StoreError> {
        for key in brought.keys() {
            if let Some(run) = self.run(&key)?.and_then(|run| run.tainted(&brought.taint)) {
                self.put_run(run)?;
            }
        }
        Ok(())
    }

    /// Puts an effect record. `reopened` names the approvals that return to their approvers in the same commit.
    pub(crate) fn put_effect(
        &mut self,
        after: EffectRecord,
        reopened: &[ApprovalId],
    ) -> Result<(), StoreError> {
        let after = Arc::new(after);
        let before = self.effect(&after.record_id)?;
        check_rev(before.as_ref().map(|before| before.rev), after.rev)?;
        if let Some(rules) = self.rules {
            match &before {
                Some(before) => check_same(before, &after)?,
                None if rules.claims.is_foreign(&after) => return Err(StoreError::Conflict),
                None => {}
            }
            check_move(before.as_deref(), &after, rules.epoch, reopened)?;
            self.check_adoption(before.as_deref(), &after, rules.epoch)?;
        }
        self.changed.effects.insert(after.record_id, Some(Arc::clone(&after)));
        self.changed.ops.push(Op::Effect { before, after: Some(after) });
        Ok(())
    }

    /// Returns a key to absent, if its record may go.
    fn drop_effect(
        &mut self,
        record_id: RecordId,
        rev: u64,
        may_go: fn(&EffectRecord) -> bool,
    ) -> Result<(), StoreError> {
        let before = self.effect(&record_id)?.ok_or(StoreError::Conflict)?;
        if before.rev != rev || !may_go(&before) {
            return Err(StoreError::Conflict);
        }
        self.changed.effects.insert(record_id, None);
        self.changed.ops.push(Op::Effect { before: Some(before), after: None });
        Ok(())
    }

    /// Puts an approval.
    pub(crate) fn put_approval(&mut self, after: ApprovalRecord) -> Result<(), StoreError> {
        let after = Arc::new(after);
        let before = self.approval(&after.approval_id)?;
        check_rev(before.as_ref().map(|before| before.rev), after.rev)?;
        if self.rules.is_some() && !after.may_follow(before.as_deref()) {
            return Err(StoreError::Conflict);
        }
        // It may have been in time when the commit was requested, but not when it is made.
        let is_over = |rules: Rules<'_>| after.is_consumed() && after.expires_at <= rules.now;
        if self.rules.is_some_and(is_over) {
            return Err(StoreError::Conflict);
        }
        self.changed.approvals.insert(after.approval_id.clone(), Some(Arc::clone(&after)));
        self.changed.ops.push(Op::Approval { before, after: Some(after) });
        Ok(())
    }

    /// Drops an approval that can no longer have any effect.
    fn forget_approval(&mut self, approval_id: ApprovalId, rev: u64) -> Result<(), StoreError> {
        let before = self.approval(&approval_id)?.ok_or(StoreError::Conflict)?;
        if before.rev != rev || !before.may_be_forgotten() {
            return Err(StoreError::Conflict);
        }
        self.changed.approvals.insert(approval_id, None);
        self.changed.ops.push(Op::Approval { before: Some(before), after: None });
        Ok(())
    }

    /// Drops an entry of the approval service that can no longer have any effect.
    fn forget_directive(&mut self, directive_id: DirectiveId, rev: u64) -> Result<(), StoreError> {
        let before = self.directive(&directive_id)?.ok_or(StoreError::Conflict)?;
        let is_open = self.rules.is_some_and(|rules| before.is_open(rules.now));
        if before.rev != rev || is_open {
            return Err(StoreError::Conflict);
        }
        self.changed.directives.insert(directive_id, None);
        self.changed.ops.push(Op::Directive { before: Some(before), after: None });
        Ok(())
    }

    fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<Arc<ApprovalRecord>>, StoreError> {
        match self.changed.approvals.get(approval_id) {
            Some(changed) => Ok(changed.clone()),
            None => self.base.approval(approval_id),
        }
    }

    /// Puts an entry of the approval service.
    pub(crate) fn put_directive(&mut self, after: Directive) -> Result<(), StoreError> {
        let before = self.directive(&after.directive_id)?;
        if !after.may_follow(before.as_deref()) {
            return Err(StoreError::Conflict);
        }
        self.directive_moved(before, after);
        Ok(())
    }

    /// Uses a standing grant once more, if it is in force when the entry is made.
    pub(crate) fn spend(&mut self, directive_id: &DirectiveId) -> Result<(), StoreError> {
        let before = self.directive(directive_id)?.ok_or(StoreError::GrantSpent)?;
        let now = self.rules.map_or(before.starts_at, |rules| rules.now);
        let after = before.spent(now).ok_or(StoreError::GrantSpent)?;
        self.directive_moved(Some(before), after);
        Ok(())
    }

    fn directive_moved(&mut self, before: Option<Arc<Directive>>, after: Directive) {
        let (id, after) = (after.directive_id.clone(), Some(Arc::new(after)));
        self.changed.directives.insert(id, after.clone());
        self.changed.ops.push(Op::Directive { before, after });
    }

    fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Arc<Directive>>, StoreError> {
        match self.changed.directives.get(directive_id) {
            Some(changed) => Ok(changed.clone()),
            None => self.base.directive(directive_id),
        }
    }

    /// The duty to settle an attempt is taken over only from a process that has ended (I8).
    fn check_adoption(
        &self,
        before: Option<&EffectRecord>,
        after: &EffectRecord,
        epoch: u64,
    ) -> Result<(), StoreError> {
        match (before.map(|before| &before.state), &after.state) {
            (Some(EffectState::Dispatched(from)), EffectState::Dispatched(to))
                if from.duty() != to.duty() && !self.base.is_over(from.duty(), epoch) =>
            {
                Err(StoreError::Conflict)
            }
            _ => Ok(()),
        }
    }

    fn effect(&self, record_id: &RecordId) -> Result<Option<Arc<EffectRecord>>, StoreError> {
        match self.changed.effects.get(record_id) {
            Some(changed) => Ok(changed.clone()),
            None => self.base.effect(record_id),
        }
    }

    fn run(&self, key: &RunKey) -> Result<Option<Arc<RunRecord>>, StoreError> {
        match self.changed.runs.get(key) {
            Some(changed) => Ok(Some(Arc::clone(changed))),
            None => self.base.run(key),
        }
    }

    fn put_run(&mut self, run: RunRecord) -> Result<(), StoreError> {
        let run = Arc::new(run);
        self.changed.runs.insert(run.key.clone(), Arc::clone(&run));
        self.changed.ops.push(Op::Run(run));
        Ok(())
    }
}

fn check_rev(before: Option<u64>, after: u64) -> Result<(), StoreError> {
    if before.unwrap_or(0).checked_add(1) == Some(after) {
        Ok(())
    } else {
        Err(StoreError::Conflict)
    }
}

/// The identity of a record never changes.
fn check_same(before: &EffectRecord, after: &EffectRecord) -> Result<(), StoreError> {
    let same = before.scope == after.scope
        && before.key == after.key
        && before.call_id == after.call_id
        && before.requested_digest == after.requested_digest
        && before.created_at == after.created_at;
    if same { Ok(()) } else { Err(StoreError::Conflict) }
}

fn check_move(
    before: Option<&EffectRecord>,
    after: &EffectRecord,
    epoch: u64,
    reopened: &[ApprovalId],
) -> Result<(), StoreError> {
    let legal = match before {
        // A record that is not stored was claimed, by whatever epoch: the next state does not depend on it.
        None => EffectState::Claimed { epoch }.may_become(&after.state) && after.unknown.is_none(),
        Some(before) => match (&before.state, &after.state) {
            (EffectState::Approved { .. }, EffectState::PendingApproval { approval_id, .. }) => {
                before.may_move_to(after) && reopened.contains(approval_id)
            }
            _ => before.may_move_to(after),
        },
    };
    if !legal {
        let claimed = EffectRecord { state: EffectState::Claimed { epoch }, ..after.clone() };
        return Err(before.unwrap_or(&claimed).illegal(&after.state).into());
    }
    if let EffectState::Dispatched(attempt) = &after.state
        && attempt.duty() != epoch
    {
        return Err(StoreError::Conflict);
    }
    Ok(())
}
