//! What an external approver is shown: all of it is digested, and nothing of it is another's.

use std::collections::BTreeSet;

use placet_ledger::approval::{ApprovalRecord, Edit};
use placet_types::{
    approval::Requirement,
    clock::Timestamp,
    digest::Digest,
    envelope::proposal::{Evidence, ExternalPart},
    json::canonical_digest,
    mode::ApprovalMode,
    principal::PrincipalChain,
};
use serde_json::{Value, json};

use super::part_of;
use crate::pending::tests::approval;

fn requirement() -> Requirement {
    serde_json::from_value(json!({
        "groups": { "finance": 2, "globex/credit": 1, "globex/legal": 2, "initech/board": 3 }, "quorum": 5,
        "deny_threshold": 2, "fresh_auth_ms": 60_000, "once_only": true, "expires_in_ms": 9_000,
        "escalations": [
            { "after_ms": 1_000, "group": "directors", "people": 1, "stands_in_for": ["finance"] },
            { "after_ms": 2_000, "group": "globex/chiefs", "people": 1, "stands_in_for": ["globex/credit"] },
            { "after_ms": 3_000, "group": "globex/owners", "people": 1, "stands_in_for": ["globex/credit"] }
        ],
        "reasons": [
            { "policy": "credit", "reason": "Globex pays.", "asks": ["globex", "initech"] },
            { "policy": "own-matter", "reason": "Finance has a suspicion." },
            { "policy": "board", "reason": "Initech owns it.", "asks": ["initech"] }
        ]
    }))
    .unwrap()
}

fn chain() -> PrincipalChain {
    serde_json::from_value(json!({
        "actor": { "kind": "agent", "id": "bot", "tenant_id": "acme", "display": "The bot" },
        "on_behalf_of": { "kind": "user", "id": "leo", "tenant_id": "acme" }, "via": ["gateway"]
    }))
    .unwrap()
}

fn evidence() -> Evidence {
    let preview = json!({ "amount": 5, "pin": "[sensitive]" });
    serde_json::from_value(json!({
        "request_digest": Digest::of(b"request"), "effective_args_digest": Digest::of(b"args"),
        "preview_digest": canonical_digest(&preview), "preview": preview,
        "contract_digest": Digest::of(b"contract"), "target": "internal://bank",
        "credential": { "source": "bank-token", "scopes": ["pay"] },
        "bundle_digest": Digest::of(b"bundle"), "calls_left_after": 7, "cents_left_after": 8,
        "description": "Pays."
    }))
    .unwrap()
}

/// The input of the part, to be varied.
struct Made {
    approval: ApprovalRecord,
    evidence: Evidence,
}

impl Made {
    fn new() -> Self {
        let approval = ApprovalRecord {
            approval_id: "apr_1".parse().unwrap(),
            call_id: "call_1".parse().unwrap(),
            chain: chain(),
            capability: "bank/pay".parse().unwrap(),
            mode: ApprovalMode::Network,
            requirement: requirement(),
            expires_at: Timestamp::from_ms(9_000),
            ..approval(0)
        };
        Self { approval, evidence: evidence() }
    }

    fn edited(mut self) -> Self {
        self.approval.edits.push(Edit {
            by: "ana".parse().unwrap(),
            reason: "less".to_owned(),
            at: Timestamp::from_ms(50),
            from_proposal: Digest::of(b"before"),
            from_request: Digest::of(b"before"),
            from_parked: Digest::of(b"before"),
            authors: BTreeSet::new(),
            masked: BTreeSet::new(),
        });
        self
    }

    fn part(&self) -> ExternalPart {
        part_of(&self.approval, Some(&self.evidence), &"globex".parse().unwrap())
    }
}

#[test]
fn a_part_is_of_the_external_tenants_own_groups_and_their_reasons() {
    let part = Made::new().part();
    let shown = serde_json::to_value(&part).unwrap();
    let groups: Vec<String> = part.requirement.groups.keys().map(ToString::to_string).collect();
    assert_eq!(groups, ["globex/credit", "globex/legal"]);
    assert_eq!(part.requirement.quorum, 2, "of their own groups, not of all");
    let later: Vec<String> =
        part.requirement.escalations.iter().map(|one| one.group.to_string()).collect();
    assert_eq!(later, ["globex/chiefs", "globex/owners"]);
    assert_eq!(
        shown["requirement"]["reasons"],
        json!([{ "policy": "credit", "reason": "Globex pays.", "asks": ["globex"] }])
    );
    let text = shown.to_string();
    for hidden in [
        "finance",
        "directors",
        "initech",
        "suspicion",
        "own-matter",
        "leo",
        "gateway",
        "internal:",
        "bank-token",
        "cents",
        "calls_left",
    ] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
}

/// Anyone who knows the rest of a request could guess masked values against a digest that covers them.
#[test]
fn no_digest_of_a_part_covers_what_is_masked() {
    let made = Made::new();
    let mut other = Made::new();
    other.evidence.request_digest = Digest::of(b"another secret");
    other.evidence.effective_args_digest = Digest::of(b"other arguments");
    assert_eq!(other.part(), made.part());
    let text = serde_json::to_string(&made.part()).unwrap();
    let told = [made.evidence.request_digest, made.evidence.effective_args_digest];
    assert!(told.iter().all(|digest| !text.contains(&digest.to_string())));
}

#[test]
fn whatever_an_external_approver_is_shown_is_in_the_digest_that_a_decision_names() {
    type Change = fn(&mut Made);
    let changes: [(&str, Change); 14] = [
        ("quorum of a group", |made| {
            made.approval.requirement.groups.insert("globex/legal".parse().unwrap(), 3);
        }),
        ("another group", |made| {
            made.approval.requirement.groups.insert("globex/audit".parse().unwrap(), 1);
        }),
        ("how many denials end it", |made| made.approval.requirement.deny_threshold = 1),
        ("a fresh sign-in", |made| made.approval.requirement.fresh_auth_ms = None),
        ("once only", |made| made.approval.requirement.once_only = false),
        ("how long it lives", |made| made.approval.requirement.expires_in_ms = 8_000),
        ("when it ends", |made| made.approval.expires_at = Timestamp::from_ms(8_000)),
        ("when the next group is asked", |made| {
            made.approval.requirement.escalations[1].after_ms = 2_500
        }),
        ("that the next group was asked", |made| made.approval.escalated = 2),
        ("a reason", |made| made.approval.requirement.reasons[0].reason = "Other.".to_owned()),
        ("the arguments", |made| made.evidence.preview = json!({ "amount": 6 })),
        ("an edit of what is masked", |made| *made = Made::new().edited()),
        ("the contract", |made| made.evidence.contract_digest = Digest::of(b"other")),
        ("what it does", |made| made.evidence.description = "Takes.".to_owned()),
    ];
    let before = Made::new().part();
    for (what, change) in changes {
        let mut made = Made::new();
        change(&mut made);
        assert_ne!(made.part().digest(), before.digest(), "{what}");
    }
    // A change that is not theirs to see does not make them decide again.
    let mut made = Made::new();
    made.approval.requirement.groups.insert("finance".parse().unwrap(), 4);
    made.approval.requirement.reasons[1].reason = "Finance is sure by now.".to_owned();
    made.approval.escalated = 1;
    assert_eq!(made.part().digest(), before.digest());
}

#[test]
fn the_next_group_of_an_external_approver_is_the_next_of_their_own() {
    let mut made = Made::new();
    let next = |made: &Made| {
        let part = made.part();
        part.next_escalation(part.asked_at).map(|(at, group)| (at.as_ms(), group.to_string()))
    };
    assert_eq!(next(&made), Some((2_000, "globex/chiefs".to_owned())));
    made.approval.escalated = 2;
    assert_eq!(next(&made), Some((3_000, "globex/owners".to_owned())));
    made.approval.expires_at = Timestamp::from_ms(3_000);
    assert_eq!(next(&made), None, "it is over by then");
    made.approval.escalated = 3;
    assert_eq!(next(&made), None);
    // Edited at 50, and put to its approvers again at 400.
    let part = Made::new().edited().part();
    let (at, _) = part.next_escalation(Timestamp::from_ms(400)).unwrap();
    assert_eq!(at.as_ms(), 2_400);
}

#[test]
fn what_retention_has_deleted_is_not_shown() {
    let part = part_of(&Made::new().approval, None, &"globex".parse().unwrap());
    assert_eq!((part.preview, part.contract_digest), (Value::Null, None));
    assert_eq!(part.description, "");
}

/// Decisions name this digest for as long as they are kept.
#[test]
fn the_form_whose_digest_decisions_name_is_fixed() {
    let preview = json!({ "amount": 5, "pin": "[sensitive]" });
    let mut form = json!({
        "part_version": "placet.external-approver-part.v1", "approval_id": "apr_1", "call_id": "call_1",
        "asked_by": "acme", "asked_of": "globex",
        "requester": { "kind": "agent", "id": "bot", "tenant_id": "acme", "display": "The bot" },
        "capability_id": "bank/pay", "description": "Pays.", "mode": "network",
        "preview_digest": canonical_digest(&preview), "preview": preview,
        "contract_digest": Digest::of(b"contract"), "bundle_digest": Digest::of(b"bundle"),
        "requirement": requirement().part_of(&"globex".parse().unwrap()),
        "asked_at": 0, "expires_at": 9_000
    });
    assert_eq!(Made::new().part().digest(), canonical_digest(&form));
    form["edits"] = json!(1);
    form["edited_at"] = json!(50);
    assert_eq!(Made::new().edited().part().digest(), canonical_digest(&form));
}
