//! The records that stores are measured with: those of a write whose arguments and result have 200 bytes each.
//!
//! Owns what such a record looks like, and the way of one call through a store: claimed, dispatched with its arguments,
//! succeeded with its result. Invariant: every record, and everything it names, is another than every other one's.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use placet_ledger::{
    record::{Attempt, Class, EffectRecord, EffectState, RECORD_VERSION, dispatch_token},
    store::{Admission, Changes, ClaimAnswer, Durability, EffectChange, Store},
};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{
        CapabilityId, DecisionId, IdempotencyKey, PrincipalId, RecordId, RunId, TenantId,
        ToolCallId,
    },
    principal::PrincipalKind,
};

/// The size of the arguments as they are kept, and of the result.
pub(crate) const CONTENT_BYTES: usize = 200;
/// How long an attempt may take.
const DEADLINE_MS: i64 = 30_000;
/// So many calls make a run.
const CALLS_OF_A_RUN: u64 = 32;

/// Makes the records of one series of keys.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    series: String,
    tenant: TenantId,
    agent: PrincipalId,
    user: PrincipalId,
    capability: CapabilityId,
    bundle: Digest,
    contract: Digest,
}

impl Records {
    /// The records of a series; those of another one have other keys.
    pub(crate) fn of(series: &str) -> Result<Self> {
        Ok(Self {
            series: series.to_owned(),
            tenant: TenantId::new("acme")?,
            agent: PrincipalId::new("scribe")?,
            user: PrincipalId::new("ada@acme.example")?,
            capability: "tickets/create_ticket".parse().context("no capability")?,
            bundle: Digest::of(b"bundle"),
            contract: Digest::of(b"contract"),
        })
    }

    /// The claim of the key with this number.
    pub(crate) fn claim(
        &self,
        number: u64,
        (epoch, now): (u64, Timestamp),
    ) -> Result<EffectRecord> {
        let scope = placet_types::principal::KeyScope {
            tenant: self.tenant.clone(),
            kind: PrincipalKind::Agent,
            agent: self.agent.clone(),
            on_behalf_of: Some(self.user.clone()),
            capability: self.capability.clone(),
        };
        let key = IdempotencyKey::new(format!("{}-{number:020}", self.series))?;
        Ok(EffectRecord {
            version: RECORD_VERSION,
            record_id: RecordId::derive(&scope, &key),
            call_id: ToolCallId::new(format!("call_{}-{number:020}", self.series))?,
            scope,
            key,
            run_id: RunId::new(format!("run_{:026}", number.div_euclid(CALLS_OF_A_RUN)))?,
            requested_digest: Digest::of(&number.to_le_bytes()),
            parked: Digest::of(&self.arguments(number)),
            created_at: now,
            updated_at: now,
            rev: 0,
            arm: 1,
            attempts: 0,
            unknown: None,
            state: EffectState::Claimed { epoch },
        })
    }

    /// The record on its way to the adapter, with its arguments.
    pub(crate) fn dispatch(
        &self,
        number: u64,
        claimed: EffectRecord,
        epoch: u64,
    ) -> Result<Changes> {
        let now = claimed.created_at;
        let attempt = Attempt {
            number: 1,
            token: dispatch_token(&claimed.record_id, claimed.arm),
            class: Class::Opaque,
            deadline_at: now.plus_ms(DEADLINE_MS),
            first_dispatched_at: now,
            after_unknown: false,
            epoch,
            adopted_by: None,
            decision_id: DecisionId::new(format!("dec_{number:026}"))?,
            bundle_digest: self.bundle,
            request_digest: claimed.requested_digest,
            contract_digest: self.contract,
            approval_id: None,
            grant: None,
            reserve: None,
        };
        let state = EffectState::Dispatched(attempt);
        let record = EffectRecord { state, attempts: 1, rev: 1, ..claimed };
        Ok(self.change(record, self.arguments(number), Admission::New))
    }

    /// The record come to its end, with its result.
    pub(crate) fn success(&self, number: u64, claimed: EffectRecord, now: Timestamp) -> Changes {
        let result = self.content("result", number);
        let state = EffectState::Succeeded { result: Digest::of(&result), resolved_by: None };
        let record = EffectRecord { state, attempts: 1, rev: 2, updated_at: now, ..claimed };
        self.change(record, result, Admission::Completion)
    }

    /// The record as it is after its call, and what it names: as another store hands it over.
    pub(crate) fn settled(&self, number: u64, now: Timestamp) -> Result<Settled> {
        let claimed = self.claim(number, (1, now))?;
        let result = self.content("result", number);
        let state = EffectState::Succeeded { result: Digest::of(&result), resolved_by: None };
        let record = EffectRecord { state, attempts: 1, rev: 2, ..claimed };
        Ok(Settled {
            record,
            tenant: self.tenant.clone(),
            contents: [self.arguments(number), result],
        })
    }

    fn change(&self, record: EffectRecord, content: Vec<u8>, admission: Admission) -> Changes {
        let mut changes = Changes::new(Durability::Synced, admission);
        changes.content.push((self.tenant.clone(), content));
        changes.effects.push(EffectChange::Put(Box::new(record)));
        changes
    }

    fn arguments(&self, number: u64) -> Vec<u8> {
        self.content("arguments", number)
    }

    fn content(&self, what: &str, number: u64) -> Vec<u8> {
        let mut bytes = format!(r#"{{"{what}":"{}-{number}","text":""#, self.series).into_bytes();
        bytes.resize(CONTENT_BYTES.saturating_sub(2), b'.');
        bytes.extend_from_slice(b"\"}");
        bytes
    }
}

/// A record that has come to its end.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    pub(crate) record: EffectRecord,
    pub(crate) tenant: TenantId,
    /// Its arguments and its result.
    pub(crate) contents: [Vec<u8>; 2],
}

/// Makes the calls of a series on a store.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    store: Arc<dyn Store>,
    records: Arc<Records>,
}

impl Caller {
    /// Calls of a series on `store`.
    pub(crate) fn new(store: Arc<dyn Store>, series: &str) -> Result<Self> {
        Ok(Self { store, records: Arc::new(Records::of(series)?) })
    }

    /// The claim of a key, to be made.
    pub(crate) fn claim(&self, number: u64) -> Result<EffectRecord> {
        self.records.claim(number, (self.store.epoch(), self.store.now()))
    }

    /// Claims a key and makes its dispatch durable; answers the claim.
    pub(crate) async fn dispatch(&self, number: u64) -> Result<EffectRecord> {
        let claimed = self.claim(number)?;
        let ClaimAnswer::Claimed = self.store.claim(claimed.clone()).await? else {
            bail!("key {number} was taken");
        };
        let sent = self.records.dispatch(number, claimed.clone(), self.store.epoch())?;
        self.store.commit(sent).await?;
        Ok(claimed)
    }

    /// One write: claimed, dispatched and succeeded, each move durable before the next.
    pub(crate) async fn write(&self, number: u64) -> Result<()> {
        let claimed = self.dispatch(number).await?;
        self.store.commit(self.end(number, claimed)).await?;
        Ok(())
    }

    /// What ends a call that was dispatched.
    pub(crate) fn end(&self, number: u64, claimed: EffectRecord) -> Changes {
        self.records.success(number, claimed, self.store.now())
    }

    /// One replay: the key is claimed again, and answered with the result that was recorded.
    pub(crate) async fn replay(&self, number: u64) -> Result<()> {
        let again = self.claim(number)?;
        let ClaimAnswer::Taken(found) = self.store.claim(again).await? else {
            bail!("key {number} was not taken");
        };
        let digest = found.state.result().context("a call has no result")?;
        let bytes = self.store.content(&found.scope.tenant, digest).await?;
        if bytes.len() == CONTENT_BYTES { Ok(()) } else { bail!("a result has another size") }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use placet_store::embedded::{EmbeddedConfig, EmbeddedStore};

    use super::{CONTENT_BYTES, Caller, Records};
    use crate::clock::Wall;

    #[tokio::test]
    async fn a_write_can_be_replayed_and_not_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let config = EmbeddedConfig::new(folder.path());
        let (store, _) = EmbeddedStore::open(config, Arc::new(Wall)).unwrap();
        let caller = Caller::new(store, "a").unwrap();
        assert!(caller.replay(1).await.is_err());
        caller.write(2).await.unwrap();
        caller.replay(2).await.unwrap();
        let again = caller.write(2).await.unwrap_err();
        assert_eq!(again.to_string(), "key 2 was taken");
    }

    #[test]
    fn no_two_contents_are_the_same() {
        let (a, b) = (Records::of("a").unwrap(), Records::of("b").unwrap());
        let all = [
            a.content("result", 1),
            a.content("result", 2),
            b.content("result", 1),
            a.content("arguments", 1),
        ];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(one.len(), CONTENT_BYTES);
            assert!(all[..at].iter().all(|other| other != one));
        }
    }
}
