//! Entries of the approval desk for tests.

use std::collections::{BTreeMap, BTreeSet};

use placet_ledger::desk::{DESK_VERSION, DeskEntry, DeskNote};
use placet_ledger::store::{Changes, Store};
use placet_types::approval::{Requirement, Vote};
use placet_types::clock::Timestamp;
use placet_types::desk::pattern::ArgumentPattern;
use placet_types::desk::{BreakGlass, Delegation, DeskBody, Freeze, Grant};
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, DeskId, PrincipalId};
use placet_types::mode::ApprovalMode;

use super::{chain, event, synced, tenant, vote};

const HOUR_MS: i64 = 3_600_000;

pub(crate) fn desk_id(id: &str) -> DeskId {
    DeskId::new(id).unwrap()
}

pub(crate) fn person(name: &str) -> PrincipalId {
    PrincipalId::new(name).unwrap()
}

/// An entry that is in force from `now` on for an hour, if `quorum` is zero.
pub(crate) fn desk_entry(id: &str, body: DeskBody, quorum: u32, now: Timestamp) -> DeskEntry {
    let requirement = Requirement::new(BTreeMap::new(), quorum, 1_000);
    DeskEntry {
        version: DESK_VERSION,
        desk_id: desk_id(id),
        tenant: tenant("acme"),
        by: person("ada"),
        reason: "it is always the same".to_owned(),
        created_at: now,
        starts_at: now,
        expires_at: now.plus_ms(HOUR_MS),
        body,
        state: DeskEntry::first_state(&requirement),
        requirement,
        rev: 1,
        votes: Vec::new(),
        uses: 0,
        claimed: None,
    }
}

pub(crate) fn grant_body(uses_max: u32) -> DeskBody {
    DeskBody::Grant(Box::new(Grant {
        approval_id: ApprovalId::new("apr_1").unwrap(),
        chain: chain(&tenant("acme")),
        capability: "notes/erase".parse().unwrap(),
        mode: ApprovalMode::Destructive,
        contract_digest: Digest::of(b"contract"),
        pattern: ArgumentPattern(BTreeMap::new()),
        uses_max,
        authors: BTreeSet::new(),
    }))
}

pub(crate) fn grant(id: &str, uses_max: u32, now: Timestamp) -> DeskEntry {
    desk_entry(id, grant_body(uses_max), 0, now)
}

pub(crate) fn glass_body() -> DeskBody {
    DeskBody::BreakGlass(BreakGlass { ticket: "INC-1".to_owned(), agent: None, capability: None })
}

pub(crate) fn freeze_body() -> DeskBody {
    DeskBody::Freeze(Freeze {
        name: "year end".to_owned(),
        adapters: BTreeSet::new(),
        lockdown: false,
    })
}

pub(crate) fn delegation_body() -> DeskBody {
    DeskBody::Delegation(Delegation { to: person("ben"), groups: BTreeSet::new() })
}

pub(crate) fn desk_vote(entry: &DeskEntry, approver: &str) -> Vote {
    Vote { approver: person(approver), shown_digest: entry.terms(), ..vote("yes".to_owned()) }
}

pub(crate) fn note(by: &str, at: Timestamp) -> DeskNote {
    DeskNote { by: person(by), at, text: "enough".to_owned() }
}

pub(crate) fn puts_desk(entries: &[&DeskEntry]) -> Changes {
    let mut changes = synced();
    changes.desk = entries.iter().map(|entry| (*entry).clone()).collect();
    changes.audit.push(event("desk"));
    changes
}

pub(crate) async fn put_desk(store: &dyn Store, entry: &DeskEntry) {
    store.commit(puts_desk(&[entry])).await.unwrap();
}

/// One more use.
pub(crate) fn spends(id: &str) -> Changes {
    let mut changes = synced();
    changes.spend = Some(desk_id(id));
    changes.audit.push(event("used"));
    changes
}

pub(crate) async fn desk_of(store: &dyn Store, id: &str) -> Option<DeskEntry> {
    store.desk_entry(&desk_id(id)).await.unwrap()
}
