//! I10 for standing grants.

use super::{
    judged,
    script::{EPOCH_MS, Key, Script},
};
use crate::{
    checker::Invariant,
    history::{
        Phase, What,
        journal::{DirectiveImage, GrantImage, JournalEntry},
        people::GrantAsked,
        request::Why,
    },
};

const GRANT: &str = "dir_1";

fn entry(state: &str, uses: u32) -> DirectiveImage {
    let grant = GrantImage {
        approval_id: "apr_held".to_owned(),
        requesters: vec!["scribe".to_owned()],
        capability: "w/erase".to_owned(),
        uses_max: 2,
    };
    DirectiveImage {
        directive_id: GRANT.to_owned(),
        kind: "grant".to_owned(),
        tenant: "acme".to_owned(),
        rev: 2,
        state: state.to_owned(),
        uses,
        quorum: 1,
        agreed: vec!["ben".to_owned()],
        expires_ms: EPOCH_MS + 3_600_000,
        grant: Some(grant),
    }
}

/// A call that a grant lets pass, and its effect.
fn granted(script: &mut Script, name: &str) -> Key {
    let mut key = Key::new("erase", name, "scribe");
    let request = script.send(&key, name, Why::New);
    script.moves_with(&mut key, "dispatched", |image| {
        image.attempt.as_mut().unwrap().grant = Some(GRANT.to_owned());
    });
    script.entries.last_mut().unwrap().spend = Some(GRANT.to_owned());
    script.happens(&key, name);
    script.moves(&mut key, "succeeded");
    script.success(request, &key, name, false);
    key
}

/// A grant of two uses, and this many calls; `after` adds what happens next.
fn two_uses(calls: usize, after: impl FnOnce(&mut Script)) -> Script {
    let mut script = Script::new();
    script.audit("started", "", Some("bundle"));
    script.say(What::GrantAsked(GrantAsked {
        approval_id: "apr_held".to_owned(),
        tenant: "acme".to_owned(),
        approver: "ben".to_owned(),
        uses_max: 2,
    }));
    script.write(Vec::new(), Vec::new(), Vec::new());
    script.entries.last_mut().unwrap().directives.push(entry("active", 0));
    script.say(What::Phase(Phase::Faults));
    let names = ["one", "two", "three"];
    let keys: Vec<Key> = names.iter().take(calls).map(|name| granted(&mut script, name)).collect();
    after(&mut script);
    script.say(What::Phase(Phase::Quiet));
    let keys: Vec<&Key> = keys.iter().collect();
    script.probes(&keys);
    script
}

fn named(script: &Script) -> Vec<String> {
    let verdict = judged(script);
    assert!(
        verdict.violations.iter().all(|one| one.invariant == Invariant::I10),
        "{:#?}",
        verdict.violations
    );
    verdict.violations.into_iter().map(|one| one.why).collect()
}

/// The checker's findings after the log's entries were doctored by `change`.
fn doctored(change: impl Fn(&mut JournalEntry)) -> Vec<String> {
    let mut script = two_uses(2, |_| {});
    script.each_entry(change);
    named(&script)
}

#[test]
fn as_many_calls_as_a_grant_has_uses_are_fine() {
    assert_eq!(named(&two_uses(2, |_| {})), Vec::<String>::new());
    let ended = |script: &mut Script| {
        script.write(Vec::new(), Vec::new(), Vec::new());
        script.entries.last_mut().unwrap().directives.push(entry("ended", 1));
    };
    assert_eq!(named(&two_uses(1, ended)), Vec::<String>::new());
}

#[test]
fn one_call_more_than_a_grant_has_uses_is_caught_in_the_log_and_at_the_target() {
    let why = named(&two_uses(3, |_| {}));
    assert!(why.iter().any(|why| why.contains("3 calls used a grant of 2")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("3 effects under a grant of 2")), "{why:?}");
}

#[test]
fn a_grant_of_more_uses_than_were_asked_for_is_caught() {
    let why = doctored(|entry| {
        for image in &mut entry.directives {
            image.grant.as_mut().unwrap().uses_max = 3;
        }
    });
    assert!(why.iter().any(|why| why.contains("2 uses were asked for, and it has 3")), "{why:?}");
}

#[test]
fn a_use_after_the_end_is_caught_without_looking_at_a_clock() {
    let ended = |script: &mut Script| {
        script.write(Vec::new(), Vec::new(), Vec::new());
        script.entries.last_mut().unwrap().directives.push(entry("ended", 1));
    };
    let why = named(&two_uses(2, ended));
    assert!(why.iter().any(|why| why.contains("1 of them before it was ended")), "{why:?}");
}

#[test]
fn a_use_that_is_not_counted_and_a_count_without_a_use_are_caught() {
    let why = doctored(|entry| entry.spend = None);
    assert!(why.iter().all(|why| why.contains("counted no use")) && why.len() == 2, "{why:?}");
    let why = doctored(|entry| {
        if entry.spend.is_some() {
            entry.changes.iter_mut().for_each(|change| {
                if let crate::history::journal::RecordChange::Put(image) = change
                    && let Some(attempt) = &mut image.attempt
                {
                    attempt.grant = None;
                    attempt.approval_id = Some("apr_none".to_owned());
                }
            });
        }
    });
    assert!(why.iter().any(|why| why.contains("without the dispatch")), "{why:?}");
}

#[test]
fn a_grant_that_nobody_agreed_to_or_the_caller_did_is_caught() {
    type Change = fn(&mut DirectiveImage);
    let changes: [(Change, &str); 4] = [
        (|image| image.agreed.clear(), "0 of 1 agreements"),
        (|image| image.agreed = vec!["scribe".to_owned()], "agreed to their own request"),
        (|image| image.state = "proposed".to_owned(), "before it was in force"),
        (|image| image.expires_ms = EPOCH_MS, "when its time was over"),
    ];
    for (change, wanted) in changes {
        let why = doctored(|entry| entry.directives.iter_mut().for_each(change));
        assert!(why.iter().any(|why| why.contains(wanted)), "{wanted}: {why:?}");
    }
}

#[test]
fn a_grant_that_the_log_does_not_have_is_caught() {
    let why = doctored(|entry| entry.directives.clear());
    assert!(why.iter().any(|why| why.contains("which the log does not have")), "{why:?}");
}
