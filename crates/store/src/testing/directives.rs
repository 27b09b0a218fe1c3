//! Entries of the approval service for tests.

use std::collections::{BTreeMap, BTreeSet};

use placet_ledger::directive::{DIRECTIVE_VERSION, Directive, DirectiveNote};
use placet_ledger::store::{Changes, Store};
use placet_types::approval::{Requirement, Vote};
use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::directive::pattern::ArgumentPattern;
use placet_types::directive::{BreakGlass, Delegation, DirectiveBody, Freeze, Grant};
use placet_types::ids::{ApprovalId, DirectiveId, PrincipalId};
use placet_types::mode::ApprovalMode;

use super::{chain, event, synced, tenant, vote};

const HOUR_MS: i64 = 3_600_000;

pub(crate) fn directive_id(id: &str) -> DirectiveId {
    DirectiveId::new(id).unwrap()
}

pub(crate) fn person(name: &str) -> PrincipalId {
    PrincipalId::new(name).unwrap()
}

/// An entry that is in force from `now` on for an hour, if `quorum` is zero.
pub(crate) fn directive(id: &str, body: DirectiveBody, quorum: u32, now: Timestamp) -> Directive {
    let requirement = Requirement::new(BTreeMap::new(), quorum, 1_000);
    Directive {
        version: DIRECTIVE_VERSION,
        directive_id: directive_id(id),
        tenant: tenant("acme"),
        by: person("ada"),
        reason: "it is always the same".to_owned(),
        created_at: now,
        starts_at: now,
        expires_at: now.plus_ms(HOUR_MS),
        body,
        state: Directive::first_state(&requirement),
        requirement,
        rev: 1,
        votes: Vec::new(),
        uses: 0,
        claimed: None,
    }
}

pub(crate) fn grant_body(uses_max: u32) -> DirectiveBody {
    DirectiveBody::Grant(Box::new(Grant {
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

pub(crate) fn grant(id: &str, uses_max: u32, now: Timestamp) -> Directive {
    directive(id, grant_body(uses_max), 0, now)
}

pub(crate) fn glass_body() -> DirectiveBody {
    DirectiveBody::BreakGlass(BreakGlass {
        ticket: "INC-1".to_owned(),
        agent: None,
        capability: None,
    })
}

pub(crate) fn freeze_body() -> DirectiveBody {
    DirectiveBody::Freeze(Freeze {
        name: "year end".to_owned(),
        adapters: BTreeSet::new(),
        lockdown: false,
    })
}

pub(crate) fn delegation_body() -> DirectiveBody {
    DirectiveBody::Delegation(Delegation { to: person("ben"), groups: BTreeSet::new() })
}

pub(crate) fn directive_vote(entry: &Directive, approver: &str) -> Vote {
    Vote { approver: person(approver), shown_digest: entry.terms(), ..vote("yes".to_owned()) }
}

pub(crate) fn note(by: &str, at: Timestamp) -> DirectiveNote {
    DirectiveNote { by: person(by), at, text: "enough".to_owned() }
}

pub(crate) fn puts_directive(entries: &[&Directive]) -> Changes {
    let mut changes = synced();
    changes.directives = entries.iter().map(|entry| (*entry).clone()).collect();
    changes.audit.push(event("approvals"));
    changes
}

pub(crate) async fn put_directive(store: &dyn Store, entry: &Directive) {
    store.commit(puts_directive(&[entry])).await.unwrap();
}

/// One more use.
pub(crate) fn spends(id: &str) -> Changes {
    let mut changes = synced();
    changes.spend = Some(directive_id(id));
    changes.audit.push(event("used"));
    changes
}

pub(crate) async fn directives_of(store: &dyn Store, id: &str) -> Option<Directive> {
    store.directive(&directive_id(id)).await.unwrap()
}
