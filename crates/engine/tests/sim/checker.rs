//! Judges a simulation by the target's log, the replies, and what is on the disk at the end. It knows nothing of the faults.
//!
//! The invariants are those that the ledger's documentation promises; each violation names its own.

use std::collections::{BTreeMap, BTreeSet};

use placet_ledger::{
    approval::ApprovalState,
    record::{EffectRecord, EffectState},
};
use serde_json::Value;

use crate::{
    client::{Operation, Reply, Told},
    disk::{self, Disk},
    witness::{Effect, Witness, by_token, output},
};

/// Everything that is wrong, in words.
pub(crate) fn violations(
    operations: &[Operation],
    replies: &[Reply],
    witness: &Witness,
    disk: &Disk,
) -> Vec<String> {
    let mut found = witness.violations.lock().clone();
    let effects = witness.effects();
    let records = disk::records(disk);
    tokens(&effects, &records, &mut found);
    for operation in operations {
        let own: Vec<&Reply> =
            replies.iter().filter(|reply| reply.operation == operation.number).collect();
        let key = operation.key();
        let record = records
            .iter()
            .find(|record| record.key.as_str() == key && record.scope.agent.as_str() == "bot");
        one(operation, &own, &effects, record, &mut found);
    }
    approvals(&effects, &records, disk, &mut found);
    for record in &records {
        if record.state.is_open() {
            found.push(format!("I13: {} stays {}", record.key, record.state.name()));
        }
    }
    found
}

/// I1: what happened under each token, and that each token is one that a record stands for.
fn tokens(effects: &[Effect], records: &[EffectRecord], found: &mut Vec<String>) {
    let known: BTreeSet<String> = records
        .iter()
        .flat_map(|record| {
            (0..=record.arm)
                .map(|arm| placet_ledger::record::dispatch_token(&record.record_id, arm))
        })
        .collect();
    for (token, of_token) in by_token(effects) {
        if of_token.len() > 1 {
            let tool = &of_token.first().unwrap().tool;
            found.push(format!("I1: {} effects of {tool} under {token}", of_token.len()));
        }
        if !known.contains(token) {
            found.push(format!("I14: no record stands for {token}"));
        }
    }
}

/// I10: an effect that needs people has consumed its approval, and one approval stands for one effect.
fn approvals(effects: &[Effect], records: &[EffectRecord], disk: &Disk, found: &mut Vec<String>) {
    let approvals = disk::approvals(disk);
    for effect in effects.iter().filter(|effect| effect.tool == "erase") {
        let record = records.iter().find(|record| {
            (0..=record.arm).any(|arm| {
                placet_ledger::record::dispatch_token(&record.record_id, arm) == effect.token
            })
        });
        let consumed = approvals.iter().filter(|approval| {
            record.is_some_and(|record| record.record_id == approval.record_id)
                && matches!(approval.state, ApprovalState::Consumed { .. })
        });
        let consumed = consumed.count();
        if consumed != 1 {
            found.push(format!("I10: an effect of erase has consumed {consumed} approvals"));
        }
    }
}

fn one(
    operation: &Operation,
    replies: &[&Reply],
    effects: &[Effect],
    record: Option<&EffectRecord>,
    found: &mut Vec<String>,
) {
    let what = operation.what();
    let happened: Vec<&Effect> = effects.iter().filter(|effect| effect.what == what).collect();
    let mut say =
        |text: String| found.push(format!("{} {}: {text}", operation.tool, operation.number));
    if happened.len() > 1 {
        say(format!("I1: {} effects", happened.len()));
    }
    let mut outputs: BTreeMap<String, &Value> = BTreeMap::new();
    for reply in replies {
        match &reply.told {
            Told::Done(output) if !reply.genuine && output["what"] == what.as_str() => {
                say("I5: its result was given to another request".to_owned());
            }
            Told::Done(output) if reply.genuine => {
                outputs.insert(output.to_string(), output);
                if operation.tool != "look" && reply.durable_then != "succeeded" {
                    say(format!("I6: success was told while the disk said {}", reply.durable_then));
                }
                if operation.tool != "look" && reply.effects_then != 1 {
                    say(format!("I12: success was told with {} effects", reply.effects_then));
                }
            }
            Told::NotExecuted(code) if reply.genuine && reply.effects_then > 0 => {
                say(format!("I12: {code:?} was told as not executed after an effect"));
            }
            Told::Denied(_) if reply.genuine && !happened.is_empty() => {
                say("I10: a denied call has had an effect".to_owned());
            }
            Told::Done(_)
            | Told::Failed(_)
            | Told::NotExecuted(_)
            | Told::Unknown
            | Told::Denied(_)
            | Told::Waiting => {}
        }
    }
    if outputs.len() > 1 && operation.tool != "look" {
        say(format!("I4: {} different results were told", outputs.len()));
    }
    if operation.tool == "look" {
        return;
    }
    let succeeded =
        record.is_some_and(|record| matches!(record.state, EffectState::Succeeded { .. }));
    if !outputs.is_empty() && !succeeded {
        say("I3: success was told, and the record does not say so".to_owned());
    }
    if let Some(told) = outputs.values().next()
        && let Some(effect) = happened.first()
        && **told != output(operation.tool, &effect.token, &what)
    {
        say("I3: the result told is not that of the effect".to_owned());
    }
    if !replies.iter().any(|reply| reply.genuine && reply.told != Told::Waiting) {
        say("I13: its caller was never told anything".to_owned());
    }
}
