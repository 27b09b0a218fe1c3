//! I7 and I9: the legal moves of a record, written down independently of the ledger's own table.

use super::{
    Findings, Invariant,
    story::{Story, Written},
    world::World,
};
use crate::history::{
    journal::{AttemptImage, RecordImage, Resolved},
    people::Act,
};

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    for (id, story) in &world.keys {
        let mut before: Option<&Written<'_>> = None;
        for written in &story.written {
            let from = before.and_then(Written::image);
            let judged = [
                (Invariant::I7, move_of(from, written)),
                (Invariant::I9, from.map_or(Ok(()), |from| evidence(world, story, from, written))),
            ];
            for (invariant, judged) in judged {
                let Err(why) = judged else { continue };
                let (entry, state) = (written.entry, written.state());
                let from = before.map_or("absent", Written::state);
                let why = format!("{from} → {state} at {}#{}: {why}", entry.log, entry.seq);
                findings.broken(invariant, id, why, story.told());
            }
            before = Some(written);
        }
    }
}

type Judged = Result<(), String>;

fn unless(fine: bool, why: &str) -> Judged {
    if fine { Ok(()) } else { Err(why.to_owned()) }
}

/// Whether the move is legal.
fn move_of(from: Option<&RecordImage>, to: &Written<'_>) -> Judged {
    let Some(next) = to.image() else {
        return gone(from, to.state());
    };
    let Some(from) = from else {
        return unless(
            matches!(next.state.as_str(), "pending_approval" | "dispatched"),
            "a new record does not begin like this",
        );
    };
    unless(same_identity(from, next), "the record became another one")?;
    match (from.state.as_str(), next.state.as_str()) {
        ("pending_approval", "pending_approval" | "approved" | "denied")
        | ("approved", "pending_approval" | "denied" | "dispatched")
        | ("dispatched", "succeeded" | "failed_final" | "failed_retriable")
        // A retriable failure is tried again, and may need approval this time.
        | ("failed_retriable", "dispatched" | "pending_approval")
        | ("indeterminate", "succeeded" | "failed_final" | "rearmed")
        | ("rearmed", "pending_approval" | "dispatched") => Ok(()),
        ("dispatched", "dispatched") => sent_again(from, next),
        ("dispatched", "indeterminate") => unless(
            attempt_number(from) == attempt_number(next) || next.attempt == from.unknown,
            "the unknown attempt is not the one that was dispatched",
        ),
        ("indeterminate", "indeterminate") => unless(
            from.attempt == next.attempt && !next.rearm.is_empty(),
            "nothing but the attempt changed",
        ),
        // The unknown outcome of an earlier arm stays unknown when the later one does not run, and may become known while that one waits.
        (
            "rearmed" | "pending_approval" | "approved",
            "indeterminate" | "succeeded" | "failed_final",
        ) => unless(from.unknown.is_some(), "nothing was unknown before"),
        ("succeeded" | "failed_final" | "failed_retriable" | "denied", "tombstone") => unless(
            next.was.as_ref().is_none_or(|was| *was == from.state),
            "the tombstone stands for another end",
        ),
        _ => Err("there is no such move".to_owned()),
    }?;
    unless(next.arm >= from.arm, "the arm went back")?;
    unless(next.arm == from.arm || next.state == "rearmed", "a new arm without operators")
}

fn gone(from: Option<&RecordImage>, state: &str) -> Judged {
    let Some(from) = from else {
        return Err("it was not there".to_owned());
    };
    if state == "forgotten" {
        return unless(from.state == "tombstone", "only a tombstone may be forgotten");
    }
    let early = matches!(from.state.as_str(), "pending_approval" | "approved");
    unless(early && from.unknown.is_none(), "something may have happened")
}

fn same_identity(from: &RecordImage, next: &RecordImage) -> bool {
    (&from.record_id, &from.call_id, &from.key) == (&next.record_id, &next.call_id, &next.key)
}

fn attempt_number(image: &RecordImage) -> Option<(u32, &str)> {
    image.attempt.as_ref().map(|attempt| (attempt.number, attempt.token.as_str()))
}

/// Dispatched again: taken over by another owner, or repeated because that is harmless.
fn sent_again(from: &RecordImage, next: &RecordImage) -> Judged {
    let (Some(a), Some(b)) = (&from.attempt, &next.attempt) else {
        return Err("a dispatch without an attempt".to_owned());
    };
    let adopted = AttemptImage { owner: b.owner, ..a.clone() } == *b && b.owner != a.owner;
    let harmless = matches!(a.class.as_str(), "keyed" | "read_only") && a.class == b.class;
    let repeated = b.number > a.number && a.token == b.token && harmless;
    unless(adopted || repeated, "sent again without an answer, though it cannot be recognised")
}

/// Whether there is evidence for an outcome that became known.
fn evidence(world: &World<'_>, story: &Story<'_>, from: &RecordImage, to: &Written<'_>) -> Judged {
    let Some(next) = to.image() else { return Ok(()) };
    if next.state == "rearmed" {
        return rearmed(world, from, next);
    }
    let ended = matches!(next.state.as_str(), "succeeded" | "failed_final");
    let was_unknown = from.state == "indeterminate" || waits_again(from);
    match &next.resolved {
        Some(resolved) if ended => resolution(world, story, from, next, resolved, to.entry.at_ms),
        None if ended && was_unknown => {
            Err("an unknown outcome became known by nothing".to_owned())
        }
        _ => Ok(()),
    }
}

fn resolution(
    world: &World<'_>,
    story: &Story<'_>,
    from: &RecordImage,
    next: &RecordImage,
    resolved: &Resolved,
    at_ms: i64,
) -> Judged {
    let earlier = from.unknown.as_ref().filter(|_| waits_again(from));
    let Some(attempt) = earlier.or(from.attempt.as_ref()) else { return Ok(()) };
    if resolved.by == "operator" {
        let act = if next.state == "succeeded" { Act::Happened } else { Act::DidNotHappen };
        return operator(world, &next.record_id, resolved.operator.as_deref(), act);
    }
    // The earlier arm's effect is a fact, whatever is unknown about this one.
    let before = from
        .unknown
        .as_ref()
        .filter(|before| next.state == "succeeded" && resolved.attempt == Some(before.number));
    let attempt = before.unwrap_or(attempt);
    unless(resolved.attempt == Some(attempt.number), "the evidence is about another attempt")?;
    let happened = story.effects.iter().any(|effect| effect.arrival.token == attempt.token);
    if next.state == "succeeded" {
        return unless(happened, "the witness knows of no effect of this token");
    }
    if resolved.by != "probe" {
        return Ok(());
    }
    let said_no = story.not_found.iter().any(|(_, token)| *token == attempt.token);
    unless(said_no, "the witness never said that it does not know the token")?;
    let delay =
        world.run.and_then(|run| i64::try_from(run.settle_delay_ms).ok()).unwrap_or_default();
    let settled = attempt.deadline_ms.saturating_add(delay);
    unless(at_ms >= settled, "«not found» was believed before the settle delay had passed")
}

/// Whether another arm waits for its dispatch: an outcome that becomes known then is the earlier arm's.
fn waits_again(image: &RecordImage) -> bool {
    let waits = matches!(image.state.as_str(), "rearmed" | "pending_approval" | "approved");
    waits && image.unknown.is_some()
}

/// An operator's act is in the history.
fn operator(world: &World<'_>, record_id: &str, who: Option<&str>, act: Act) -> Judged {
    let Some(who) = who else {
        return Err("no operator is named".to_owned());
    };
    let did = world
        .operators
        .iter()
        .any(|done| done.record_id == record_id && done.operator == who && done.act == act);
    unless(did, "the operator it names did no such thing")
}

fn rearmed(world: &World<'_>, from: &RecordImage, next: &RecordImage) -> Judged {
    let mut who: Vec<&str> = next.rearm.iter().map(String::as_str).collect();
    who.sort_unstable();
    who.dedup();
    unless(
        !who.is_empty() && who.len() == next.rearm.len(),
        "it is sent again without distinct operators",
    )?;
    unless(
        from.rearm.iter().all(|one| next.rearm.contains(one)),
        "anyone who asked first is not among them",
    )?;
    who.into_iter().try_for_each(|one| operator(world, &next.record_id, Some(one), Act::Rearm))
}
