//! The rows that a batch touches: locked, read, and changed by the batch.
//!
//! Owns the locking reads. Rows are locked by key within each table, and the tables in one order (effects, approvals, runs, directives), by every
//! node. Not here: the rules (`crate::rules`). Invariant: what is decided about is locked until the transaction ends.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Encode, Postgres, Row as _, Type, query};

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::policies::{PastPolicies, PolicyState};
use placet_ledger::record::EffectRecord;
use placet_ledger::run::{RunKey, RunRecord, RunTaint};
use placet_ledger::store::{Changes, EffectChange, StoreError};
use placet_types::ids::{ApprovalId, DirectiveId, RecordId};

use super::batch::Piece;
use super::directives;
use super::error::Hitch;
use super::rows;
use crate::rules::Base;

/// The rows that a batch touches, as they stand.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) effects: HashMap<RecordId, Arc<EffectRecord>>,
    pub(super) approvals: HashMap<ApprovalId, Arc<ApprovalRecord>>,
    pub(super) runs: HashMap<RunKey, Arc<RunRecord>>,
    pub(super) directives: HashMap<DirectiveId, Arc<Directive>>,
    /// Epochs whose process is known to have ended.
    over: HashSet<u64>,
}

impl Loaded {
    pub(super) async fn load(
        connection: &mut PgConnection,
        pieces: &[&Piece],
    ) -> Result<Self, Hitch> {
        let mut loaded = Self::default();
        loaded.load_effects(connection, pieces).await?;
        loaded.load_approvals(connection, pieces).await?;
        loaded.load_runs(connection, pieces).await?;
        loaded.load_directives(connection, pieces).await?;
        Ok(loaded)
    }

    async fn load_effects(
        &mut self,
        connection: &mut PgConnection,
        pieces: &[&Piece],
    ) -> Result<(), Hitch> {
        let changes = pieces.iter().flat_map(|piece| &piece.changes.effects);
        let ids: BTreeSet<Vec<u8>> = changes
            .map(|change| match change {
                EffectChange::Put(record) => rows::id_bytes(&record.record_id),
                EffectChange::Remove { record_id, .. } | EffectChange::Forget { record_id, .. } => {
                    rows::id_bytes(record_id)
                }
            })
            .collect();
        let statement = "SELECT e.record, e.owner, (o.epoch IS NULL OR o.fenced_by IS NOT NULL OR o.closed_ms IS NOT NULL) AS is_over \
             FROM placet.effects e LEFT JOIN placet.epochs o ON o.epoch = e.owner \
             WHERE e.record_id = ANY($1) ORDER BY e.record_id FOR UPDATE OF e";
        for row in &locked(connection, statement, ids).await? {
            let record = rows::effect(row).map_err(Hitch::damaged)?;
            let owner: Option<i64> = row.try_get("owner")?;
            if let Some(owner) = owner.filter(|_| row.try_get("is_over").unwrap_or(false)) {
                self.over.insert(rows::number(owner));
            }
            self.effects.insert(record.record_id, Arc::new(record));
        }
        Ok(())
    }

    async fn load_approvals(
        &mut self,
        connection: &mut PgConnection,
        pieces: &[&Piece],
    ) -> Result<(), Hitch> {
        let ids: BTreeSet<String> = pieces
            .iter()
            .flat_map(|piece| {
                let Changes { approvals, forget_approvals, .. } = &piece.changes;
                let gone = forget_approvals.iter().map(|(approval_id, _)| approval_id);
                approvals.iter().map(|approval| &approval.approval_id).chain(gone)
            })
            .map(|approval_id| approval_id.as_str().to_owned())
            .collect();
        let statement = "SELECT record FROM placet.approvals WHERE approval_id = ANY($1) ORDER BY approval_id FOR UPDATE";
        for row in &locked(connection, statement, ids).await? {
            let approval = rows::approval(row).map_err(Hitch::damaged)?;
            self.approvals.insert(approval.approval_id.clone(), Arc::new(approval));
        }
        Ok(())
    }

    async fn load_runs(
        &mut self,
        connection: &mut PgConnection,
        pieces: &[&Piece],
    ) -> Result<(), Hitch> {
        let mut keys = BTreeSet::new();
        for piece in pieces {
            let Changes { runs, reserve, refund, taint, .. } = &piece.changes;
            let budgets = reserve.iter().chain(refund).map(|reservation| reservation.run.clone());
            let meters = reserve.iter().flat_map(|reservation| {
                reservation.meters.iter().map(|meter| meter.key(&reservation.run))
            });
            let contexts = taint.iter().flat_map(RunTaint::keys);
            let opened = runs.iter().map(|run| run.key.clone());
            for key in opened.chain(budgets).chain(meters).chain(contexts) {
                keys.insert(rows::run_key(&key).map_err(Hitch::damaged)?);
            }
        }
        let statement =
            "SELECT record FROM placet.runs WHERE run_key = ANY($1) ORDER BY run_key FOR UPDATE";
        for row in &locked(connection, statement, keys).await? {
            let run = rows::run(row).map_err(Hitch::damaged)?;
            self.runs.insert(run.key.clone(), Arc::new(run));
        }
        Ok(())
    }

    async fn load_directives(
        &mut self,
        connection: &mut PgConnection,
        pieces: &[&Piece],
    ) -> Result<(), Hitch> {
        let ids: BTreeSet<String> = pieces
            .iter()
            .flat_map(|piece| {
                let Changes { directives, spend, forget_directive, .. } = &piece.changes;
                let gone = forget_directive.iter().map(|(directive_id, _)| directive_id);
                directives.iter().map(|entry| &entry.directive_id).chain(spend).chain(gone)
            })
            .map(|directive_id| directive_id.as_str().to_owned())
            .collect();
        let statement = "SELECT record FROM placet.directives WHERE directive_id = ANY($1) ORDER BY directive_id FOR UPDATE";
        for row in &locked(connection, statement, ids).await? {
            let entry = directives::of_row(row).map_err(Hitch::damaged)?;
            self.directives.insert(entry.directive_id.clone(), Arc::new(entry));
        }
        Ok(())
    }
}

/// The rows with these keys, locked in the order that the statement puts them in.
async fn locked<K: 'static>(
    connection: &mut PgConnection,
    statement: &'static str,
    keys: BTreeSet<K>,
) -> Result<Vec<PgRow>, Hitch>
where
    Vec<K>: Encode<'static, Postgres> + Type<Postgres>,
{
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<K> = keys.into_iter().collect();
    Ok(query(statement).bind(keys).fetch_all(connection).await?)
}

/// The rows with the changes of earlier commits of the batch.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) effects: HashMap<RecordId, Option<Arc<EffectRecord>>>,
    pub(super) approvals: HashMap<ApprovalId, Option<Arc<ApprovalRecord>>>,
    pub(super) runs: HashMap<RunKey, Arc<RunRecord>>,
    pub(super) directives: HashMap<DirectiveId, Option<Arc<Directive>>>,
    pub(super) policy: Option<PolicyState>,
    pub(super) past: PastPolicies,
    /// How often what is in force has become stricter.
    pub(super) restriction_version: u64,
}

impl<'a> Standing<'a> {
    pub(super) fn new(
        loaded: &'a Loaded,
        policy: Option<PolicyState>,
        past: PastPolicies,
        restriction_version: u64,
    ) -> Self {
        let (effects, approvals) = (HashMap::new(), HashMap::new());
        let (runs, directives) = (HashMap::new(), HashMap::new());
        Self { loaded, effects, approvals, runs, directives, policy, past, restriction_version }
    }
}

impl Base for Standing<'_> {
    fn effect(&self, record_id: &RecordId) -> Result<Option<Arc<EffectRecord>>, StoreError> {
        Ok(match self.effects.get(record_id) {
            Some(changed) => changed.clone(),
            None => self.loaded.effects.get(record_id).cloned(),
        })
    }

    fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<Arc<ApprovalRecord>>, StoreError> {
        Ok(match self.approvals.get(approval_id) {
            Some(changed) => changed.clone(),
            None => self.loaded.approvals.get(approval_id).cloned(),
        })
    }

    fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Arc<Directive>>, StoreError> {
        Ok(match self.directives.get(directive_id) {
            Some(changed) => changed.clone(),
            None => self.loaded.directives.get(directive_id).cloned(),
        })
    }

    fn run(&self, key: &RunKey) -> Result<Option<Arc<RunRecord>>, StoreError> {
        Ok(self.runs.get(key).or_else(|| self.loaded.runs.get(key)).cloned())
    }

    fn is_over(&self, epoch: u64, own: u64) -> bool {
        epoch != own && self.loaded.over.contains(&epoch)
    }
}
