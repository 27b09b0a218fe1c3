//! Build: resolve the tool, validate its arguments, canonicalise, derive the key.
//!
//! Owns TM-05, TM-06 and TM-12's derivation. Pure: everything it needs is passed in. A tool outside the caller's surface gets exactly the
//! same answer as one that does not exist.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use placet_identity::VerifiedCaller;
use placet_ledger::refusal::internal;
use placet_policy::catalog::Target;
use placet_types::{
    digest::{Digest, DigestBuilder},
    error::{ErrorCode, Problem, Refusal},
    ids::{CapabilityId, IdempotencyKey, RequestId, RunId, StepId, ToolCallId},
    json::canonical_digest,
    run_context::RunRequest,
};

use crate::{
    active::Active,
    call::{Built, Caller, Planned},
    context::Context,
    settings::Settings,
    submission::{LABEL_BYTES_MAX, LABELS_MAX, Submission},
};

/// The bounds of a run's budget, and the message for one beyond them.
const RUN_CALLS_MAX: u32 = 1_000_000;
const LATENCY_MS: RangeInclusive<u64> = 1..=600_000;
const OVER: &str = "the budget of the run is out of bounds";

/// Turns a plan into a call of a pinned capability with validated arguments.
pub(crate) fn build(
    context: &Context,
    active: Arc<Active>,
    call_id: &ToolCallId,
    planned: Planned,
) -> Result<Built, Refusal> {
    let Planned { submission, caller, batch } = planned;
    check_labels(&submission)?;
    check_run(&submission.run)?;
    check_callback(&context.settings, &caller, &submission)?;
    let target = resolve(context, &active, &caller, &submission.tool)?;
    let is_in_batch = batch.is_some();
    check_exposing(&target, is_in_batch)?;
    let in_batch = batch.map(|batch| *batch).unwrap_or_default();
    let requested_digest = requested_digest(&target, &submission.args);
    let args = target.validate(&submission.args)?;
    let key = key_of(&submission, &target, call_id, is_in_batch)?;
    Ok(Built {
        active,
        args_digest: canonical_digest(&Value::Object(args.clone())),
        args,
        requested_digest,
        key,
        mode_requested: submission.approval_mode_requested,
        target,
        run: submission.run,
        history: in_batch.history,
        examples: in_batch.examples,
        step_id: submission.step_id,
        request_id: submission.request_id,
        evidence_refs: submission.evidence_refs,
        metadata: submission.metadata,
        callback: submission.callback,
        caller: Caller::Verified(caller),
        resumed: None,
        retries: 0,
        is_simulated: in_batch.is_simulated,
        adapter_time: Duration::ZERO,
        recovered: false,
        deferrals: 0,
        edited: None,
        as_sent: None,
        decided_again: 0,
        without_grants: false,
        deadline: None,
    })
}

/// Checks the name and the budget of a run. Reserved names are for what the engine keeps across runs.
pub(crate) fn check_run(run: &RunRequest) -> Result<(), Refusal> {
    let budget = &run.run_budget;
    let (message, pointer, problem) = if run.run_id.is_reserved() {
        let problem = "must not begin with `placet/`, which is reserved";
        ("the name of the run is reserved", "/run/run_id", problem)
    } else if budget.calls_max.is_some_and(|calls| calls > RUN_CALLS_MAX) {
        (OVER, "/run/run_budget/calls_max", "must be at most 1000000")
    } else if budget.tool_latency_ms_max.is_some_and(|ms| !LATENCY_MS.contains(&ms)) {
        (OVER, "/run/run_budget/tool_latency_ms_max", "must be 1 to 600000")
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::ValidationError, message).with_problem(pointer, problem))
}

/// What a result adds and removes applies to a run's surface; outside of a run it would be lost silently.
fn check_exposing(target: &Target, is_in_batch: bool) -> Result<(), Refusal> {
    if is_in_batch || target.capability.exposes.is_none() {
        return Ok(());
    }
    let message =
        "this tool adds tools to a run: call it in a batch, with POST /v1/runs/{id}/batches";
    Err(Refusal::new(ErrorCode::ValidationError, message))
}

/// The digest that duplicates are matched by: the capability and the arguments as sent.
fn requested_digest(target: &Target, args: &Map<String, Value>) -> Digest {
    DigestBuilder::new("placet.requested.v1")
        .field("capability", target.capability.id.to_string().as_bytes())
        .field("args", canonical_digest(&Value::Object(args.clone())).as_bytes())
        .finish()
}

/// What a name means for a caller.
fn resolve(
    context: &Context,
    active: &Active,
    caller: &VerifiedCaller,
    tool: &str,
) -> Result<Target, Refusal> {
    let unknown = || Refusal::new(ErrorCode::ToolNotFound, "there is no such tool");
    let aliased = active.catalog.aliased(tool).cloned();
    let by_alias = aliased.is_some();
    let id = match aliased {
        Some(id) => id,
        None => CapabilityId::from_tool_name(tool).map_err(|e| unknown().with_detail(e))?,
    };
    let target = active.catalog.resolve(caller.tenant(), &id).ok_or_else(unknown)?;
    if by_alias && context.aliases.of(active, &target.capability).is_none() {
        let detail = format_args!("`{id}` does not have its alias at this moment");
        return Err(unknown().with_detail(detail));
    }
    if context.current.surface(active, caller).contains(&id) {
        Ok(target)
    } else {
        Err(unknown().with_detail(format_args!("`{id}` is outside the caller's surface")))
    }
}

/// The caller's key, or the one derived from what is stable over retries.
fn key_of(
    submission: &Submission,
    target: &Target,
    call_id: &ToolCallId,
    is_in_batch: bool,
) -> Result<IdempotencyKey, Refusal> {
    if let Some(key) = &submission.idempotency_key {
        return Ok(key.clone());
    }
    let derived = match (&submission.request_id, &submission.step_id) {
        (Some(request), Some(step)) => {
            return derived_key(&submission.run.run_id, request, step, submission.ordinal);
        }
        // A held read still needs a record: one of its own, since nothing ties it to another call.
        _ if !target.capability.is_write_class() => DigestBuilder::new("placet.key.read.v1")
            .field("call", call_id.as_str().as_bytes())
            .finish(),
        (None, None) if is_in_batch => return Err(batch_id_missing()),
        (request, step) => return Err(key_missing(request.is_none(), step.is_none())),
    };
    key_from(derived)
}

/// The key derived from what is stable over retries.
pub(crate) fn derived_key(
    run: &RunId,
    request: &RequestId,
    step: &StepId,
    ordinal: u32,
) -> Result<IdempotencyKey, Refusal> {
    let derived = DigestBuilder::new("placet.key.v1")
        .field("run", run.as_str().as_bytes())
        .field("request", request.as_str().as_bytes())
        .field("step", step.as_str().as_bytes())
        .field("ordinal", ordinal.to_be_bytes());
    key_from(derived.finish())
}

fn key_from(digest: Digest) -> Result<IdempotencyKey, Refusal> {
    IdempotencyKey::new(format!("derived:{digest}")).map_err(internal)
}

/// A call of a batch has no ids of its own.
fn batch_id_missing() -> Refusal {
    let problem =
        "`batch_id` is required for a tool that writes, unless the call has an `idempotency_key`";
    let place = Problem { pointer: "/batch_id".to_owned(), problem: problem.to_owned() };
    let message = "a tool that writes needs a `batch_id` to derive its key from, or an `idempotency_key` of its own";
    Refusal::new(ErrorCode::ValidationError, message).with_problems(vec![place])
}

fn key_missing(no_request: bool, no_step: bool) -> Refusal {
    let missing = [(no_request, "request_id"), (no_step, "step_id")];
    let problems = missing
        .into_iter()
        .filter(|(absent, _)| *absent)
        .map(|(_, name)| Problem {
            pointer: format!("/{name}"),
            problem: format!(
                "`{name}` is required for a tool that writes, unless `idempotency_key` is given"
            ),
        })
        .collect();
    Refusal::new(
        ErrorCode::ValidationError,
        "a tool that writes needs `idempotency_key`, or both `step_id` and `request_id` to derive it from",
    )
    .with_problems(problems)
}

/// Refuses a channel that the caller may not use and one that does not exist with the same message.
fn check_callback(
    settings: &Settings,
    caller: &VerifiedCaller,
    submission: &Submission,
) -> Result<(), Refusal> {
    let Some(name) = &submission.callback else { return Ok(()) };
    let tenants = settings.callbacks.get(name);
    if tenants.is_some_and(|tenants| tenants.contains(caller.tenant())) {
        return Ok(());
    }
    let problem = "no channel of this name is for callers of this tenant";
    Err(Refusal::new(ErrorCode::ValidationError, "nobody can be told over this channel")
        .with_problem("/callback", problem))
}

fn check_labels(submission: &Submission) -> Result<(), Refusal> {
    let too_long = |text: &String| text.len() > LABEL_BYTES_MAX;
    let refuse = |name: &str| {
        let problem = format!("at most {LABELS_MAX} entries of at most {LABEL_BYTES_MAX} bytes");
        Err(Refusal::new(ErrorCode::ValidationError, format!("`{name}` is too large"))
            .with_problem(format!("/{name}"), problem))
    };
    if submission.evidence_refs.len() > LABELS_MAX || submission.evidence_refs.iter().any(too_long)
    {
        return refuse("evidence_refs");
    }
    let labels = submission.metadata.iter().flatten();
    if labels.clone().count() > LABELS_MAX
        || labels.clone().any(|(key, value)| too_long(key) || too_long(value))
    {
        return refuse("metadata");
    }
    Ok(())
}
