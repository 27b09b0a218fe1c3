//! Reservation in the approval service: how much of a kind one person, and a tenant, may have open.
//!
//! Owns the limits, and what is being entered at this moment. Invariant: on one node no number of requests at once enters more than the
//! limits. What other nodes enter is known here after their next reading of the approval service, which is a second by default: until then each node
//! may enter what it believes to be left, and so a limit is overshot by what the others enter within that time, and by no more.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use tokio::time::Instant;

use placet_ledger::directive::Directive;
use placet_types::{
    directive::DirectiveKind,
    error::Refusal,
    ids::{DirectiveId, PrincipalId, TenantId},
};

use crate::{refusals::invalid, rules::EffectiveRules};

/// How much of a kind may be open at a time.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Of all people of a tenant.
    tenant: usize,
    /// Of one of them.
    person: usize,
}

/// How much of this there may be: everything that is open is looked through for each call.
const fn limits_of(kind: DirectiveKind) -> Limits {
    match kind {
        DirectiveKind::Grant => Limits { tenant: 5_000, person: 500 },
        DirectiveKind::BreakGlass => Limits { tenant: 200, person: 20 },
        DirectiveKind::Freeze => Limits { tenant: 500, person: 100 },
        DirectiveKind::Delegation => Limits { tenant: 2_000, person: 20 },
        // In an emergency one person revokes what many have.
        DirectiveKind::Revocation => Limits { tenant: 10_000, person: 10_000 },
    }
}

/// What is being entered.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Arc<Mutex<Vec<Entering>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entering {
    directive_id: DirectiveId,
    tenant: TenantId,
    kind: DirectiveKind,
    by: PrincipalId,
    /// Since when a reading of the approval service has the entry, if it was made; nothing: it is being entered still.
    done: Option<Instant>,
}

impl Entering {
    fn of(entry: &Directive) -> Self {
        Self {
            directive_id: entry.directive_id.clone(),
            tenant: entry.tenant.clone(),
            kind: entry.kind(),
            by: entry.by.clone(),
            done: None,
        }
    }
}

/// The place of an entry while it is being made. Once this is dropped the entry was made, or may have been: its place is kept until the approval service
/// was read again.
#[derive(Debug)]
pub(crate) struct Reservation {
    taken: Arc<Mutex<Vec<Entering>>>,
    directive_id: DirectiveId,
}

impl Reservation {
    /// The entry was not made: its place is free at once.
    pub(crate) fn free(self) {
        lock(&self.taken).retain(|entering| entering.directive_id != self.directive_id);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        for entering in
            taken.iter_mut().filter(|entering| entering.directive_id == self.directive_id)
        {
            entering.done = Some(Instant::now());
        }
    }
}

impl Quotas {
    /// Takes the place of an entry that is about to be made.
    ///
    /// # Errors
    /// A [`Refusal`] where one person, or a tenant, has as many of the kind as they may have.
    pub(crate) fn take(
        &self,
        rules: &EffectiveRules,
        entry: &Directive,
    ) -> Result<Reservation, Refusal> {
        let (kind, tenant) = (entry.kind(), &entry.tenant);
        let place = self.beside(entry, || {
            // In this order: the entries are of that reading, or of a later one.
            let (read_at, open) = (rules.read_at(), rules.open());
            let counted = open.count(tenant, kind, &entry.by);
            (read_at, counted, move |directive_id: &DirectiveId| open.has(tenant, directive_id))
        });
        place.map_err(|problem| invalid("/arrange", problem))
    }

    /// The same where `view` says when a reading began that succeeded, how many of the tenant it has, of which so many are one's own, and
    /// which. It is asked while nobody else takes or leaves a place, so that no entry is missed between the two.
    fn beside<Has: Fn(&DirectiveId) -> bool>(
        &self,
        entry: &Directive,
        view: impl FnOnce() -> (Option<Instant>, (usize, usize), Has),
    ) -> Result<Reservation, String> {
        let mut taken = lock(&self.0);
        let (read_at, (all, own), is_counted) = view();
        taken.retain(|entering| {
            entering.done.is_none_or(|done| read_at.is_none_or(|began| began < done))
        });
        let also = |entering: &&Entering| {
            entering.tenant == entry.tenant
                && entering.kind == entry.kind()
                && !is_counted(&entering.directive_id)
        };
        let (mut all, mut own) = (all, own);
        for entering in taken.iter().filter(also) {
            all = all.saturating_add(1);
            own = own.saturating_add(usize::from(entering.by == entry.by));
        }
        fits(entry.kind(), all, own)?;
        taken.push(Entering::of(entry));
        Ok(Reservation { taken: Arc::clone(&self.0), directive_id: entry.directive_id.clone() })
    }
}
fn lock(taken: &Mutex<Vec<Entering>>) -> MutexGuard<'_, Vec<Entering>> {
    taken.lock()
}

/// Whether there is room for one more beside those of the tenant, of which so many are one's own.
fn fits(kind: DirectiveKind, all: usize, own: usize) -> Result<(), String> {
    let Limits { tenant, person } = limits_of(kind);
    let (what, way) = match kind {
        DirectiveKind::Grant => ("standing grants", "end one that is not needed any more"),
        DirectiveKind::BreakGlass => {
            ("break-glass records", "those that are over wait for their review")
        }
        DirectiveKind::Freeze => ("freezes", "one has to be lifted first"),
        DirectiveKind::Delegation => ("delegations", "take one back that is not needed any more"),
        DirectiveKind::Revocation => ("revocations", "one has to be lifted first, or be over"),
    };
    if own >= person {
        return Err(format!("you have {own} open {what}, and nobody may have more: {way}"));
    }
    if all >= tenant {
        return Err(format!("{all} {what} are open, and there may not be more: {way}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn freeze(number: usize, by: &str) -> Directive {
        let entry = json!({
            "version": 1, "directive_id": format!("dir_{number}"), "tenant": "acme", "by": by, "reason": "now",
            "created_at": 0, "starts_at": 0, "expires_at": 9, "body": { "kind": "freeze", "name": "now" },
            "requirement": { "groups": {}, "quorum": 0, "expires_in_ms": 1_000, "reasons": [] },
            "rev": 1, "votes": [], "state": { "state": "active" },
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn what_is_being_entered_counts_until_it_is_entered_or_not() {
        let rooms = Quotas::default();
        let most = limits_of(DirectiveKind::Freeze).person;
        let all = most.saturating_sub(2);
        let enter = |number: usize, by: &str| {
            rooms.beside(&freeze(number, by), || (None, (all, all), |_: &DirectiveId| false))
        };
        let first = enter(1, "dora").unwrap();
        let _second = enter(2, "dora").unwrap();
        assert!(enter(3, "dora").unwrap_err().starts_with("you have"));
        enter(4, "fay").unwrap().free();
        first.free();
        let _third = enter(3, "dora").unwrap();
        assert!(enter(5, "dora").is_err());
        // What the view has by now is not counted once more.
        let counted = (most.saturating_sub(1), most.saturating_sub(1));
        let view =
            || (None, counted, |directive_id: &DirectiveId| directive_id.as_str() != "dir_9");
        assert!(rooms.beside(&freeze(6, "dora"), view).is_ok());
    }

    #[test]
    fn a_place_is_kept_until_the_approval_service_was_read_after_its_entry_was_made() {
        let rooms = Quotas::default();
        let all = limits_of(DirectiveKind::Freeze).person.saturating_sub(1);
        let enter = |number: usize, read_at: Option<Instant>| {
            rooms.beside(&freeze(number, "dora"), || (read_at, (all, all), |_: &DirectiveId| false))
        };
        let room = enter(1, None).unwrap();
        drop(room);
        let made = lock(&rooms.0).first().and_then(|entering| entering.done).unwrap();
        let earlier = made.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(enter(2, None).is_err(), "nothing could be read");
        assert!(enter(2, Some(earlier)).is_err(), "what was read is from before");
        let room = enter(2, Some(made)).unwrap();
        assert!(enter(3, Some(Instant::now())).is_err(), "it is being entered still");
        drop(room);
        assert!(enter(3, Some(earlier)).is_err(), "it may have been made");
        assert!(enter(3, Some(Instant::now())).is_ok());
    }

    #[test]
    fn of_each_kind_one_person_and_a_tenant_have_so_many_and_no_more() {
        for kind in DirectiveKind::ALL {
            let room = limits_of(kind);
            assert!(0 < room.person && room.person <= room.tenant, "{kind:?}");
            assert_eq!(
                fits(kind, room.tenant.saturating_sub(1), room.person.saturating_sub(1)),
                Ok(())
            );
            let own = fits(kind, room.person, room.person).unwrap_err();
            assert!(own.starts_with(&format!("you have {} open", room.person)), "{own}");
            assert!(fits(kind, room.tenant, 0).unwrap_err().contains("are open"));
        }
    }
}
