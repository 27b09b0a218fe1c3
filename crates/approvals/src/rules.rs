//! The directives in force: freezes, break-glass records, standing grants, delegations and revocations, in memory.
//!
//! Owns the view that the gate uses. The ledger has the entries: the view is read again after every change made here, and at least every
//! second where other nodes change them too; with a view that could not be read for some seconds nothing is decided. Invariant: what an
//! outdated view still allows, the commit of a dispatch refuses (a grant that is used up, anything that has become stricter since), or
//! Cedar decides with the store's time.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::time::Instant;

use placet_credentials::{Revoked, SubjectName};
use placet_ledger::{
    directive::{Directive, DirectiveState},
    store::{DirectiveQuery, Store, StoreError},
};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    directive::{BreakGlass, Delegation, DirectiveBody, DirectiveKind, Freeze},
    directory::{Directory, UserEntry},
    ids::{AdapterName, CapabilityId, DirectiveId, GroupId, PrincipalId, TenantId},
    principal::PrincipalChain,
};

use crate::pending::query::Duty;
use single_flight::SingleFlight;

mod single_flight;

/// How many entries are read at a time.
const PAGE: usize = 500;
/// How many refresh rounds a view may miss where other nodes change the directives.
const ROUNDS_MISSED_MAX: u32 = 2;
/// How long after the shortest revocation a token that it covers may still be accepted, in milliseconds: it may be dated up to five seconds
/// after the revocation, lives for a day, and is accepted for the leeway after that.
const OUTLIVES_MS: i64 = 10_000;
/// How long claims count for groups that a person delegated, in milliseconds.
pub(crate) const CLAIMS_AGE_MS_MAX: i64 = 24 * 60 * 60 * 1_000;

/// The view, and the lock for renewing it.
#[derive(Debug, Default)]
pub struct EffectiveRules {
    open: ArcSwap<Open>,
    /// When the last successful reading began; `None`: none succeeded yet, or the last one failed where nothing else triggers another.
    read_at: Mutex<Option<Instant>>,
    reading: SingleFlight,
    /// The restriction version whose revocations are enforced: decisions take all up to it into account.
    observed: AtomicU64,
}

/// The open entries of all tenants.
#[derive(Debug, Default)]
pub struct Open {
    by_tenant: HashMap<TenantId, Vec<Arc<Directive>>>,
    /// The restriction version before this was read.
    rev: u64,
}

impl EffectiveRules {
    /// The entries as last read.
    pub fn open(&self) -> Arc<Open> {
        self.open.load_full()
    }

    /// When the reading of these entries, or of older ones, began; `None`: none succeeded yet, or the last one failed.
    pub(crate) fn read_at(&self) -> Option<Instant> {
        *self.read_at.lock()
    }

    /// The entries to decide a call by, and the restriction version that they include at least.
    pub fn basis(&self) -> (Arc<Open>, u64) {
        // In this order: entries that are read later include every restriction counted earlier.
        let rev = self.observed.load(Ordering::Acquire);
        (self.open(), rev)
    }

    /// Notes that the revocations of this reading are enforced.
    pub(crate) fn is_observed(&self, open: &Open) {
        self.observed.fetch_max(open.rev, Ordering::AcqRel);
    }

    /// Whether calls may be decided by this view: a freeze that another node has acknowledged must apply here too.
    pub(crate) fn is_current(&self, store: &dyn Store, round: Duration) -> bool {
        let is_shared = store.is_shared();
        self.read_at()
            .is_some_and(|at| !is_shared || at.elapsed() < round.saturating_mul(ROUNDS_MISSED_MAX))
    }

    /// Reads the open entries again, unless `is_enough` holds by the time it has the lock; returns those that have changed.
    pub(crate) async fn renew(
        &self,
        store: &dyn Store,
        is_enough: impl FnOnce(&Self) -> bool,
    ) -> Result<Vec<Arc<Directive>>, StoreError> {
        // One at a time: a reading that began later also ends later, so an older one never replaces it.
        let reading = async {
            if is_enough(self) {
                return Ok(Vec::new());
            }
            let began = Instant::now();
            let read = self.read(store).await;
            match &read {
                Ok(_) => *self.read_at.lock() = Some(began),
                // Where others change them too, another reading follows soon, and the view's age shows.
                Err(_) if store.is_shared() => {}
                Err(_) => *self.read_at.lock() = None,
            }
            read
        };
        self.reading.run(reading).await
    }

    async fn read(&self, store: &dyn Store) -> Result<Vec<Arc<Directive>>, StoreError> {
        let mut query =
            DirectiveQuery { open_at: Some(store.now()), limit: PAGE, ..DirectiveQuery::default() };
        // Before the entries: what becomes stricter meanwhile is noticed when a call is dispatched.
        let mut next = Open { rev: store.restriction_version().await?, ..Open::default() };
        let before = self.open();
        let mut known: HashMap<DirectiveId, Arc<Directive>> =
            before.all().map(|entry| (entry.directive_id.clone(), Arc::clone(entry))).collect();
        let mut changed = Vec::new();
        loop {
            let page = store.directives(&query).await?;
            let Some(last) = page.last() else { break };
            query.after = Some(last.directive_id.clone());
            for entry in page {
                let entry = match known.remove(&entry.directive_id) {
                    Some(known) if known.rev == entry.rev => known,
                    Some(_) | None => {
                        let entry = Arc::new(entry);
                        changed.push(Arc::clone(&entry));
                        entry
                    }
                };
                next.by_tenant.entry(entry.tenant.clone()).or_default().push(entry);
            }
        }
        // The entries left over are no longer open.
        for directive_id in known.keys() {
            if let Some(entry) = store.directive(directive_id).await? {
                changed.push(Arc::new(entry));
            }
        }
        self.open.store(Arc::new(next));
        Ok(changed)
    }
}

impl Open {
    /// The open entries of a tenant.
    pub(crate) fn of(&self, tenant: &TenantId) -> impl Iterator<Item = &Arc<Directive>> {
        self.by_tenant.get(tenant).into_iter().flatten()
    }

    /// The open entries of all tenants.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Directive>> {
        self.by_tenant.values().flatten()
    }

    fn in_force(&self, tenant: &TenantId, now: Timestamp) -> impl Iterator<Item = &Arc<Directive>> {
        self.of(tenant).filter(move |entry| entry.is_in_force(now))
    }

    /// The freezes that hold calls of this adapter.
    pub fn freezes(
        &self,
        tenant: &TenantId,
        adapter: &AdapterName,
        now: Timestamp,
    ) -> impl Iterator<Item = &Freeze> {
        let freezes = self.in_force(tenant, now).filter_map(|entry| freeze_of(entry));
        freezes.filter(move |freeze| freeze.holds(adapter))
    }

    /// Whether a lockdown is in force for calls of this adapter.
    pub fn is_locked_down(&self, tenant: &TenantId, adapter: &AdapterName, now: Timestamp) -> bool {
        self.freezes(tenant, adapter, now).any(|freeze| freeze.lockdown)
    }

    /// Whether a lockdown of every adapter is in force in this tenant; without one, in any.
    pub fn has_lockdown(&self, tenant: Option<&TenantId>, now: Timestamp) -> bool {
        let in_force = self.all().filter(|entry| {
            tenant.is_none_or(|tenant| entry.tenant == *tenant) && entry.is_in_force(now)
        });
        let mut freezes = in_force.filter_map(|entry| freeze_of(entry));
        freezes.any(|freeze| freeze.lockdown && freeze.adapters.is_empty())
    }

    /// Which freezes are in force, in all tenants.
    pub fn freezes_in_force(&self, now: Timestamp) -> BTreeSet<DirectiveId> {
        let is_in_force =
            |entry: &&Arc<Directive>| freeze_of(entry).is_some() && entry.is_in_force(now);
        self.all().filter(is_in_force).map(|entry| entry.directive_id.clone()).collect()
    }

    /// The next time at which these calls are restricted further: a freeze, or a revocation, that begins later.
    pub fn stricter_at(
        &self,
        tenant: &TenantId,
        adapter: &AdapterName,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let concerns = |entry: &&Arc<Directive>| {
            freeze_of(entry).is_none_or(|freeze| freeze.holds(adapter))
                && entry.is_restrictive()
                && entry.starts_at > now
        };
        self.of(tenant).filter(concerns).map(|entry| entry.starts_at).min()
    }

    /// The break-glass record that a call may run under: the one that lasts longest.
    pub fn broken(
        &self,
        chain: &PrincipalChain,
        capability: &CapabilityId,
        now: Timestamp,
    ) -> Option<(&Directive, &BreakGlass)> {
        let broken = self.in_force(chain.tenant(), now).filter_map(|entry| {
            let DirectiveBody::BreakGlass(glass) = &entry.body else { return None };
            let fits = glass.agent.as_ref().is_none_or(|agent| *agent == chain.actor.id)
                && glass.capability.as_ref().is_none_or(|only| only == capability);
            fits.then_some((entry.as_ref(), glass))
        });
        broken.max_by_key(|(entry, _)| entry.expires_at)
    }

    /// The standing grants that cover a call, those that expire first in front.
    pub fn grants(
        &self,
        chain: &PrincipalChain,
        capability: &CapabilityId,
        contract: Digest,
        args: &Value,
        now: Timestamp,
    ) -> Vec<Arc<Directive>> {
        let covers = |entry: &&Arc<Directive>| {
            let DirectiveBody::Grant(grant) = &entry.body else { return false };
            grant.capability == *capability
                && grant.contract_digest == contract
                && grant.chain.is_same_caller(chain)
                && grant.pattern.covers(args)
        };
        let mut grants: Vec<_> =
            self.in_force(chain.tenant(), now).filter(covers).cloned().collect();
        grants.sort_by_key(|entry| entry.expires_at);
        grants
    }

    /// The duties delegated to a person, with the groups that the delegating person is still in: one for each who delegated, however often.
    pub(crate) fn duties(
        &self,
        directory: &Directory,
        tenant: &TenantId,
        person: &PrincipalId,
        now: Timestamp,
    ) -> Vec<Duty> {
        let handed = self.in_force(tenant, now).filter_map(|entry| {
            let DirectiveBody::Delegation(delegation) = &entry.body else { return None };
            let author = directory.user(tenant, &entry.by);
            (delegation.to == *person).then(|| duty_of(author, entry, delegation, now))
        });
        let mut duties: Vec<Duty> = Vec::new();
        for duty in handed.filter(|duty| !duty.groups.is_empty()) {
            match duties.iter_mut().find(|one| one.author == duty.author) {
                Some(one) => {
                    // The age of what only a token said; the directory's groups have none.
                    one.since = match (one.claimed.is_empty(), duty.claimed.is_empty()) {
                        (true, _) => duty.since,
                        (false, true) => one.since,
                        (false, false) => one.since.min(duty.since),
                    };
                    one.groups.extend(duty.groups);
                    one.claimed.extend(duty.claimed);
                }
                None => duties.push(duty),
            }
        }
        duties
    }

    /// The revocations in force in all tenants, including expired ones, which apply only to tokens without an issue time.
    pub(crate) fn revocations(&self, now: Timestamp) -> Vec<Revoked> {
        self.all().filter_map(|entry| revoked(entry, now)).collect()
    }

    /// How many entries of a kind are open in a tenant, and how many of them one person made.
    pub(crate) fn count(
        &self,
        tenant: &TenantId,
        kind: DirectiveKind,
        by: &PrincipalId,
    ) -> (usize, usize) {
        let of_kind = || self.of(tenant).filter(|entry| entry.kind() == kind);
        (of_kind().count(), of_kind().filter(|entry| entry.by == *by).count())
    }

    /// The break-glass records of all tenants that wait for their review.
    pub(crate) fn reviews_due(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Directive>> {
        self.all().filter(move |entry| is_review_due(entry, now))
    }
}

fn freeze_of(entry: &Directive) -> Option<&Freeze> {
    let DirectiveBody::Freeze(freeze) = &entry.body else { return None };
    Some(freeze)
}

/// What a revocation covers now.
pub(crate) fn revoked(entry: &Directive, now: Timestamp) -> Option<Revoked> {
    let DirectiveBody::Revocation(revocation) = &entry.body else { return None };
    if !entry.is_open(now) || entry.starts_at > now {
        return None;
    }
    let name = SubjectName {
        tenant: entry.tenant.clone(),
        issuer: revocation.issuer.clone(),
        subject: revocation.subject.clone(),
    };
    let until = entry.expires_at.plus_ms(OUTLIVES_MS);
    Some(Revoked { name, before: entry.created_at, only_undated: now >= until })
}

/// A duty, given what the directory knows now about the person who delegated it.
fn duty_of(
    author: Option<&UserEntry>,
    entry: &Directive,
    delegation: &Delegation,
    now: Timestamp,
) -> Duty {
    let is_active = author.is_none_or(|author| author.active);
    // Groups that only their token confirmed count for a day after it did, as claims do in a vote. Groups from the directory are checked
    // there again, and no longer count once they are removed there.
    let (claimed, as_of) = entry
        .claimed
        .as_ref()
        .map_or((&delegation.groups, entry.created_at), |one| (&one.groups, one.as_of));
    let is_young = now.since_ms(as_of) <= CLAIMS_AGE_MS_MAX;
    let listed = |group: &GroupId| author.is_some_and(|author| author.groups.contains(group));
    let still =
        |group: &&GroupId| is_active && (listed(group) || (is_young && claimed.contains(*group)));
    let groups: BTreeSet<GroupId> = delegation.groups.iter().filter(still).cloned().collect();
    let claimed = groups.iter().filter(|group| !listed(group)).cloned().collect();
    Duty { author: entry.by.clone(), groups, claimed, since: as_of }
}

/// Whether a break-glass record was in force, has ended, and is not reviewed yet.
pub(crate) fn is_review_due(entry: &Directive, now: Timestamp) -> bool {
    let over = match &entry.state {
        DirectiveState::Active => now >= entry.expires_at,
        DirectiveState::Ended { .. } => !entry.votes.is_empty(),
        DirectiveState::Proposed | DirectiveState::Denied | DirectiveState::Reviewed { .. } => {
            false
        }
    };
    entry.kind() == DirectiveKind::BreakGlass && over
}

/// Whether an entry is a freeze that is not in force any more.
pub(crate) fn is_ended_freeze(entry: &Directive, now: Timestamp) -> bool {
    entry.kind() == DirectiveKind::Freeze && entry.starts_at <= now && !entry.is_in_force(now)
}

#[cfg(test)]
mod tests {
    use placet_types::directive::{REVOCATION_MS_MAX, REVOCATION_MS_MIN};
    use serde_json::json;

    use super::*;

    const DAY: i64 = 86_400_000;

    fn entry(state: &Value) -> Directive {
        let entry = json!({
            "version": 1, "directive_id": "dir_1", "tenant": "acme", "by": "dora", "reason": "it is lost",
            "created_at": 0, "starts_at": 0, "expires_at": REVOCATION_MS_MIN,
            "body": { "kind": "revocation", "subject": "spiffe://prod.example/bot" },
            "requirement": { "groups": {}, "quorum": 0, "expires_in_ms": 1_000, "reasons": [] },
            "rev": 1, "votes": [], "state": state,
        });
        serde_json::from_value(entry).unwrap()
    }

    fn handed_over(groups: &[&str], claimed: &Value) -> Directive {
        let entry = json!({
            "version": 1, "directive_id": "dir_1", "tenant": "acme", "by": "ben", "reason": "away",
            "created_at": DAY, "starts_at": DAY, "expires_at": 9 * DAY,
            "body": { "kind": "delegation", "to": "leo", "groups": groups },
            "requirement": { "groups": {}, "quorum": 0, "expires_in_ms": 1_000, "reasons": [] },
            "rev": 1, "votes": [], "state": { "state": "active" }, "claimed": claimed,
        });
        serde_json::from_value(entry).unwrap()
    }

    fn groups_at(entry: &Directive, listed: Option<&[&str]>, at_ms: i64) -> Vec<String> {
        let author = listed.map(|groups| UserEntry {
            groups: groups.iter().map(|group| group.parse().unwrap()).collect(),
            active: true,
            ..UserEntry::default()
        });
        let DirectiveBody::Delegation(delegation) = &entry.body else { panic!("no delegation") };
        let duty = duty_of(author.as_ref(), entry, delegation, Timestamp::from_ms(at_ms));
        duty.groups.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_lockdown_is_of_one_tenant() {
        let mut lockdown = entry(&json!({ "state": "active" }));
        lockdown.body =
            serde_json::from_value(json!({ "kind": "freeze", "name": "x", "lockdown": true }))
                .unwrap();
        let acme = lockdown.tenant.clone();
        let open =
            Open { by_tenant: HashMap::from([(acme.clone(), vec![Arc::new(lockdown)])]), rev: 0 };
        let has = |tenant: Option<&TenantId>| open.has_lockdown(tenant, Timestamp::from_ms(1));
        assert!(has(None) && has(Some(&acme)));
        assert!(!has(Some(&"globex".parse().unwrap())));
    }

    #[test]
    fn what_a_token_said_does_not_grow_younger_by_being_handed_over() {
        let claimed = json!({ "groups": ["finance"], "as_of": 1 });
        let entry = handed_over(&["finance"], &claimed);
        assert_eq!(groups_at(&entry, None, DAY), ["finance"]);
        assert_eq!(groups_at(&entry, None, DAY + 1), ["finance"]);
        assert!(groups_at(&entry, None, DAY + 2).is_empty());
        assert_eq!(groups_at(&entry, Some(&["finance"]), 3 * DAY), ["finance"]);
    }

    #[test]
    fn a_group_that_the_directory_took_away_is_handed_over_no_more() {
        let claimed = json!({ "groups": ["finance"], "as_of": DAY });
        let entry = handed_over(&["approvers", "finance"], &claimed);
        assert_eq!(groups_at(&entry, Some(&["approvers"]), DAY), ["approvers", "finance"]);
        assert_eq!(groups_at(&entry, Some(&[]), DAY), ["finance"]);
        assert_eq!(groups_at(&entry, None, DAY), ["finance"]);
    }

    #[test]
    fn a_duty_says_which_of_its_groups_only_a_token_told_of() {
        let claimed = json!({ "groups": ["finance"], "as_of": DAY });
        let entry = handed_over(&["approvers", "finance"], &claimed);
        let author = UserEntry {
            groups: ["approvers".parse().unwrap()].into(),
            active: true,
            ..UserEntry::default()
        };
        let DirectiveBody::Delegation(delegation) = &entry.body else { panic!("no delegation") };
        let duty = duty_of(Some(&author), &entry, delegation, Timestamp::from_ms(DAY));
        assert_eq!(duty.groups.len(), 2);
        assert_eq!(duty.claimed, ["finance".parse().unwrap()].into());
    }

    #[test]
    fn what_a_colleague_delegates_in_parts_is_one_duty() {
        let tenant: TenantId = "acme".parse().unwrap();
        let directory: Directory = serde_json::from_value(json!({ "tenants": { "acme": {
            "groups": { "approvers": {}, "finance": {}, "security": {} },
            "users": { "ben": { "groups": ["approvers"] } },
        } } }))
        .unwrap();
        let claimed = |group: &str, as_of: i64| json!({ "groups": [group], "as_of": as_of });
        let parts = [
            handed_over(&["approvers"], &Value::Null),
            handed_over(&["finance"], &claimed("finance", DAY + 7)),
            handed_over(&["security"], &claimed("security", DAY + 5)),
        ];
        let leo = "leo".parse().unwrap();
        for parts in [parts.to_vec(), parts.iter().rev().cloned().collect()] {
            let entries = parts.into_iter().map(Arc::new).collect();
            let open = Open { by_tenant: HashMap::from([(tenant.clone(), entries)]), rev: 0 };
            let duties = open.duties(&directory, &tenant, &leo, Timestamp::from_ms(DAY + 8));
            let [duty] = duties.as_slice() else { panic!("{duties:?}") };
            assert_eq!((duty.groups.len(), duty.claimed.len()), (3, 2));
            assert_eq!(duty.since, Timestamp::from_ms(DAY + 5));
        }
    }

    fn only_undated(state: &Value, at_ms: i64) -> Option<bool> {
        revoked(&entry(state), Timestamp::from_ms(at_ms)).map(|one| one.only_undated)
    }

    #[test]
    fn a_revocation_of_a_day_counts_longer_for_tokens_without_a_date_unless_it_is_lifted() {
        let active = json!({ "state": "active" });
        assert_eq!(only_undated(&active, 0), Some(false));
        assert_eq!(only_undated(&active, DAY - 1), Some(false));
        assert_eq!(
            only_undated(&active, DAY),
            Some(false),
            "the last of what it hits is taken still"
        );
        assert_eq!(only_undated(&active, DAY + OUTLIVES_MS - 1), Some(false));
        assert_eq!(only_undated(&active, DAY + OUTLIVES_MS), Some(true));
        let leeways = 2 * placet_identity::LEEWAY_S_MAX * 1_000;
        assert_eq!(
            u64::try_from(OUTLIVES_MS),
            Ok(leeways),
            "of the issuer's clock, and of the end"
        );
        let longest = i64::try_from(REVOCATION_MS_MAX).unwrap();
        assert_eq!(only_undated(&active, longest.saturating_sub(1)), Some(true));
        assert_eq!(only_undated(&active, longest), None);
        let lifted =
            json!({ "state": "ended", "end": { "by": "dora", "at": 1, "text": "found again" } });
        assert_eq!(only_undated(&lifted, 2), None);
        assert_eq!(only_undated(&lifted, DAY), None);
        assert!(
            entry(&active).is_open(Timestamp::from_ms(longest.saturating_sub(1))),
            "it can be lifted still"
        );
    }
}
