//! A good history: one key for each possible course of a call.

use super::script::{Key, Script};
use crate::{
    history::{
        Phase, What,
        node::NodeChange,
        people::Act,
        request::{Answer, Loss, Why},
    },
    witness::log::Seen,
};

/// Its keys are named after their courses.
pub(super) fn good() -> Script {
    let mut script = Script::new();
    script.audit("started", "", Some("bundle"));
    look(&mut script);
    let put = put(&mut script);
    let other = other_principal(&mut script);
    let erase = erase(&mut script);
    let denied = denied(&mut script);
    script.say(What::Phase(Phase::Faults));
    let retried = retried(&mut script);
    let (push, post, lost) = killed(&mut script);
    script.say(What::Phase(Phase::Quiet));
    let keys = [&put, &other, &erase, &denied, &retried, &push, &post, &lost];
    for (key, args, answer) in [
        (&put, "A", Answer::Succeeded),
        (&erase, "E", Answer::Succeeded),
        (&denied, "D", Answer::Denied),
        (&post, "Q", Answer::Refused),
        (&lost, "L", Answer::Unknown),
    ] {
        let request = script.send(key, args, Why::Final);
        if answer == Answer::Succeeded {
            script.success(request, key, args, true);
        } else {
            script.reply(request, key, answer);
        }
    }
    script.probes(&keys);
    script
}

fn look(script: &mut Script) {
    let key = Key::new("look", "", "scribe");
    let request = script.send(&key, "R", Why::New);
    script.audit("read_settled", &key.image.call_id, None);
    script.success(request, &key, "R", false);
}

/// A keyed call, with duplicates while it is in flight and afterwards, one of them with other arguments.
fn put(script: &mut Script) -> Key {
    let mut key = Key::new("put", "put", "scribe");
    let first = script.send(&key, "A", Why::New);
    script.moves(&mut key, "dispatched");
    let early = script.send(&key, "A", Why::InFlight);
    let busy = script.send(&key, "A", Why::InFlight);
    script.reply(busy, &key, Answer::InProgress);
    script.happens(&key, "A");
    script.moves(&mut key, "succeeded");
    script.success(early, &key, "A", true);
    script.success(first, &key, "A", false);
    let again = script.send(&key, "A", Why::EqualForm);
    script.success(again, &key, "A", true);
    let changed = script.send(&key, "B", Why::ChangedArgs);
    script.reply(changed, &key, Answer::Conflict);
    key
}

/// The same key from another agent is another one.
fn other_principal(script: &mut Script) -> Key {
    let mut key = Key::new("put", "put", "editor");
    key.token = "plc_other".to_owned();
    let request = script.send(&key, "B", Why::OtherPrincipal);
    script.moves(&mut key, "dispatched");
    script.happens(&key, "B");
    script.moves(&mut key, "succeeded");
    script.success(request, &key, "B", false);
    key
}

/// A call that needs approval, and gets it.
fn erase(script: &mut Script) -> Key {
    let mut key = Key::new("erase", "erase", "scribe");
    let request = script.send(&key, "E", Why::New);
    script.holds(&mut key);
    script.reply(request, &key, Answer::Pending);
    script.votes(&mut key, true);
    key.approval.as_mut().unwrap().state = "consumed".to_owned();
    script.moves(&mut key, "dispatched");
    script.happens(&key, "E");
    script.moves(&mut key, "succeeded");
    let again = script.send(&key, "E", Why::AfterSuccess);
    script.success(again, &key, "E", true);
    key
}

/// A call that needs approval, and does not get it.
fn denied(script: &mut Script) -> Key {
    let mut key = Key::new("erase", "denied", "scribe");
    let request = script.send(&key, "D", Why::New);
    script.holds(&mut key);
    script.reply(request, &key, Answer::Pending);
    script.votes(&mut key, false);
    key
}

/// A call that the upstream refuses before anything happens, and takes the second time.
fn retried(script: &mut Script) -> Key {
    let mut key = Key::new("push", "retried", "scribe");
    let first = script.send(&key, "T", Why::New);
    script.moves(&mut key, "dispatched");
    script.arrives(&key, "T");
    let Some(Seen::Arrived(arrival)) = script.lines.last().map(|line| line.what.clone()) else {
        panic!()
    };
    script.line(Seen::Refused(arrival));
    script.moves(&mut key, "failed_retriable");
    script.reply(first, &key, Answer::Refused).code = Some("ADAPTER_UNAVAILABLE".to_owned());
    let second = script.send(&key, "T", Why::AfterFailure);
    script.moves(&mut key, "dispatched");
    script.happens(&key, "T");
    script.moves(&mut key, "succeeded");
    script.success(second, &key, "T", false);
    key
}

/// Calls in flight when the node is killed: one is resolved by an operator, one by a probe, one not at all.
fn killed(script: &mut Script) -> (Key, Key, Key) {
    let mut push = Key::new("push", "push", "scribe");
    let mut post = Key::new("post", "post", "scribe");
    let mut lost = Key::new("push", "lost", "scribe");
    let requests = [
        script.send(&push, "P", Why::New),
        script.send(&post, "Q", Why::New),
        script.send(&lost, "L", Why::New),
    ];
    script.moves(&mut push, "dispatched");
    script.moves(&mut post, "dispatched");
    script.moves(&mut lost, "dispatched");
    script.happens(&push, "P");
    script.arrives(&post, "Q");
    script.node(NodeChange::Killed);
    for request in requests {
        script.lost(request, Loss::Broken);
    }
    script.epoch = 2;
    script.node(NodeChange::Started { pid: 2 });
    script.moves(&mut push, "indeterminate");
    script.moves(&mut lost, "indeterminate");
    script.node(NodeChange::Ready { after_ms: 40 });
    let asked = script.send(&push, "P", Why::AfterRestart);
    script.reply(asked, &push, Answer::Unknown);
    script.wait(1_000);
    script.line(Seen::Asked { token: post.token.clone(), state: "not_found".to_owned() });
    script.moves_with(&mut post, "failed_final", |image| {
        image.resolved = Script::resolved("probe", Some(1), None)
    });
    script.operator(&push, Act::Happened, "ben");
    script.moves_with(&mut push, "succeeded", |image| {
        image.resolved = Script::resolved("operator", None, Some("ben"))
    });
    let after = script.send(&push, "P", Why::AfterRestart);
    script.success(after, &push, "P", true);
    (push, post, lost)
}
