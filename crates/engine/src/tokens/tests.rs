//! What is kept of callers, for how long, and for whom.

use placet_credentials::CallTokens;
use placet_identity::{SubjectToken, TokenFacts};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    envelope::call::AuthRef,
    ids::{RecordId, TenantId},
    principal::PrincipalChain,
    proof::CallerProof,
};
use serde_json::json;

use super::{Tokens, Tried};
use crate::call::Identity;

fn token(text: &str, expires_ms: i64) -> SubjectToken {
    let facts = TokenFacts {
        issuer: "https://idp.example".to_owned(),
        subject: "alice".to_owned(),
        client: None,
        issued_at: Some(Timestamp::from_ms(0)),
        expires_at: Timestamp::from_ms(expires_ms),
        scopes: std::collections::BTreeSet::new(),
        may_act: None,
    };
    SubjectToken::seal(text, facts)
}

fn tokens(text: &str) -> CallTokens {
    CallTokens { subject: token(text, 1_000), actor: None }
}

fn record(number: usize) -> RecordId {
    let digest = Digest::of(format!("record {number}").as_bytes());
    serde_json::from_value(json!(digest.to_string())).unwrap()
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn identity(until_ms: i64, tokens: Option<CallTokens>) -> Identity {
    let actor = json!({ "kind": "agent", "id": "bot", "tenant_id": "acme" });
    let chain: PrincipalChain = serde_json::from_value(json!({ "actor": actor })).unwrap();
    Identity {
        proof: CallerProof::of_development(&chain),
        chain,
        user_groups: std::collections::BTreeSet::new(),
        groups_as_of: Timestamp::from_ms(0),
        authority_until: Timestamp::from_ms(until_ms),
        auth_ref: AuthRef { delegated_user_token_ref: None, agent_token_ref: "tok_1".to_owned() },
        bearers: Vec::new(),
        audiences: std::collections::BTreeMap::new(),
        tokens,
    }
}

fn tried(tokens: &CallTokens) -> Tried {
    Tried::of(&identity(1_000, Some(tokens.clone())))
}

const UNTIL: Timestamp = Timestamp::from_ms(5_000);

#[test]
fn a_token_that_came_while_the_old_one_was_tried_is_not_lost() {
    let kept = Tokens::default();
    let (acme, old, new) = (tenant("acme"), tokens("old"), tokens("new"));
    kept.keep(&acme, record(1), &old);
    kept.renew(record(1), &identity(1_000, Some(new.clone())), true);
    assert!(!kept.lacks(record(1), tried(&old), UNTIL));
    assert!(!kept.is_lacking(record(1)));
    assert_eq!(kept.of(record(1)), Some(new.clone()));
    assert!(kept.lacks(record(1), tried(&new), UNTIL));
    assert!(kept.is_lacking(record(1)) && kept.of(record(1)).is_none());
    kept.forget(record(1));
    assert!(!kept.is_lacking(record(1)));
}

#[test]
fn an_agent_that_came_back_with_a_new_token_of_its_own_is_not_lost_either() {
    let kept = Tokens::default();
    let with = |agent: &str| CallTokens { actor: Some(token(agent, 1_000)), ..tokens("the user") };
    let (old, new) = (with("old"), with("new"));
    kept.keep(&tenant("acme"), record(1), &old);
    kept.renew(record(1), &identity(1_000, Some(new.clone())), true);
    assert!(!kept.lacks(record(1), tried(&old), UNTIL));
    assert_eq!(kept.of(record(1)), Some(new.clone()));
    assert!(kept.lacks(record(1), tried(&new), UNTIL));
}

#[test]
fn who_came_back_stays_for_every_try_also_where_nothing_is_exchanged() {
    let kept = Tokens::default();
    let back = identity(2_000, Some(tokens("not needed")));
    kept.renew(record(1), &back, false);
    for _ in 0..3 {
        let renewed = kept.renewed(record(1)).unwrap();
        assert_eq!(renewed.authority_until, back.authority_until);
        assert!(renewed.tokens.is_none(), "a token is kept only where it is needed");
    }
    assert!(kept.kept.lock().known.is_empty());
    // A token that came later is not lost to an attempt with an earlier one.
    kept.renew(record(1), &identity(3_000, None), false);
    assert!(!kept.lacks(record(1), Tried::of(&back), UNTIL));
    assert!(kept.renewed(record(1)).is_some());
    kept.sweep(Timestamp::from_ms(3_000));
    assert!(kept.renewed(record(1)).is_none(), "its authority is over");
}

#[test]
fn a_copy_of_a_token_goes_with_the_last_call_that_needs_it() {
    let kept = Tokens::default();
    let acme = tenant("acme");
    let pair = CallTokens { actor: Some(token("agent", 1_000)), ..tokens("shared") };
    kept.keep(&acme, record(1), &pair);
    kept.keep(&acme, record(2), &pair);
    // Kept again for the same call, it counts once.
    kept.keep(&acme, record(2), &pair);
    assert_eq!(kept.kept.lock().known.len(), 2);
    kept.forget(record(1));
    assert_eq!(kept.kept.lock().known.len(), 2);
    kept.forget(record(2));
    let left = kept.kept.lock();
    assert!(left.known.is_empty() && left.by_tenant.is_empty() && left.of.is_empty());
}

#[test]
fn nobody_is_waited_for_longer_than_the_approval_stands() {
    let kept = Tokens::default();
    assert!(kept.lacks(record(1), tried(&tokens("gone")), UNTIL));
    kept.sweep(Timestamp::from_ms(4_999));
    assert!(kept.is_lacking(record(1)));
    kept.sweep(UNTIL);
    assert!(!kept.is_lacking(record(1)));
}

#[test]
fn a_tenant_with_many_held_calls_gives_way_to_one_with_few() {
    let kept = Tokens { kept_max: 10, ..Tokens::default() };
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    for number in 0..20 {
        kept.keep(&acme, record(number), &tokens("acme"));
    }
    assert_eq!(kept.kept.lock().of.len(), 10, "a tenant does not push out its own");
    for number in 20..40 {
        kept.keep(&globex, record(number), &tokens("globex"));
    }
    let kept = kept.kept.lock();
    let of = |tenant: &TenantId| kept.by_tenant[tenant].len();
    assert_eq!((of(&acme), of(&globex), kept.of.len()), (5, 5, 10));
}

#[test]
fn only_revoked_tokens_are_dropped() {
    let kept = Tokens::default();
    kept.keep(&tenant("acme"), record(1), &tokens("one"));
    kept.keep(&tenant("globex"), record(2), &tokens("one"));
    kept.drop_revoked(|tenant, tokens| {
        tenant.as_str() == "acme" && tokens.subject.facts().subject == "alice"
    });
    assert!(kept.of(record(1)).is_none() && kept.of(record(2)).is_some());
}
