//! What callers ask about their own calls and tools.
//!
//! Owns the rule that ids of others get the same answer as ids that do not exist.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::watch;

use placet_approvals::views::WithdrawalRequest;
use placet_identity::VerifiedCaller;
use placet_ledger::{record::EffectState, refusal::lookup_refusal};
use placet_policy::catalog::Target;
use placet_types::{
    contract::feature::Listing,
    error::{ErrorCode, Execution, Refusal},
    ids::{CapabilityId, ToolCallId},
    mode::EngineMode,
};

use crate::{
    answer::Answer,
    context::Context,
    outcome::{
        Outcomes,
        recorded::{self, of_approval},
    },
    registry::Owner,
    result::Subject,
    runs::offer::{Tool, Tools},
    views::{FeatureView, ToolView, status::StatusView},
};

/// The state of a call of the caller.
pub(crate) async fn call(
    outcomes: &Outcomes,
    caller: &VerifiedCaller,
    call_id: &ToolCallId,
) -> Result<Answer, Refusal> {
    let owner = Owner::of(&caller.chain());
    let live = outcomes.registry.follow(call_id, &owner);
    let told = live.map(|live| live.borrow().clone());
    if let Some(told) = &told
        && !may_have_moved(outcomes, told)
    {
        return Ok(told.clone());
    }
    let store = outcomes.ledger.store();
    let record = store.effect_of_call(call_id).await.map_err(|error| {
        outcomes.node.noticed(&error.clone().into());
        lookup_refusal(&error)
    })?;
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such call");
    match (record, told) {
        (Some(record), told) => {
            if caller.chain().key_scope(&record.scope.capability) != record.scope {
                return Err(unknown());
            }
            let claimed = matches!(record.state, EffectState::Claimed { .. });
            match told {
                // The claim is this call's own, and it is in flight.
                Some(told) if claimed => Ok(told),
                _ => Ok(recorded::standing(outcomes, &record).await),
            }
        }
        (None, Some(told)) => Ok(told),
        (None, None) => {
            let approval = store.approval_of_call(call_id).await;
            let approval = approval.map_err(|error| lookup_refusal(&error))?;
            let own = approval.filter(|approval| Owner::of(&approval.chain) == owner);
            let approval = own.ok_or_else(unknown)?;
            let subject = Subject::of_approval(&approval);
            Ok(subject.refused(of_approval(&approval), store.now()))
        }
    }
}

/// Withdraws a call of the caller that waits for approval; returns its state then.
pub(crate) async fn withdraw(
    context: &Context,
    caller: &VerifiedCaller,
    call_id: &ToolCallId,
    reason: &str,
) -> Result<Answer, Refusal> {
    let answer = call(context, caller, call_id).await?;
    let Answer::Held(held) = &answer else { return Ok(answer) };
    let request = WithdrawalRequest { reason: reason.to_owned() };
    match context.approvals.withdraw(caller, &held.approval_id, request).await {
        Ok(_ended) => {}
        // It was sent, or ended otherwise, at the same time.
        Err(refusal) if refusal.code == ErrorCode::ValidationError => {}
        Err(refusal) => return Err(refusal),
    }
    call(context, caller, call_id).await
}

/// A receiver for the state of a call of the caller.
pub(crate) async fn follow(
    outcomes: &Arc<Outcomes>,
    caller: &VerifiedCaller,
    call_id: &ToolCallId,
) -> Result<watch::Receiver<Answer>, Refusal> {
    let answer = call(outcomes, caller, call_id).await?;
    let owner = Owner::of(&caller.chain());
    match outcomes.registry.follow(call_id, &owner) {
        Some(progress) if !answer.is_final() || *progress.borrow() == answer => Ok(progress),
        // It has ended, and only the ledger knows it: nothing will change any more.
        _ if answer.is_final() => Ok(watch::Sender::new(answer).subscribe()),
        _ => Ok(wait_for(outcomes, call_id, owner, answer)),
    }
}

/// A receiver for an open call that has no entry here yet.
pub(crate) fn wait_for(
    outcomes: &Arc<Outcomes>,
    call_id: &ToolCallId,
    owner: Owner,
    answer: Answer,
) -> watch::Receiver<Answer> {
    let progress = outcomes.registry.enter(call_id, owner, answer);
    let (owner, call_id) = (Arc::clone(outcomes), call_id.clone());
    // It may have moved after it was read and before it was registered.
    outcomes.registry.spawn(async move { catch_up(&owner, &call_id).await });
    progress
}

async fn catch_up(outcomes: &Outcomes, call_id: &ToolCallId) {
    let store = outcomes.ledger.store();
    match store.effect_of_call(call_id).await {
        Ok(Some(record)) => {
            if store.is_shared() {
                drop(outcomes.watch(&record));
            }
            let answer = recorded::answer(outcomes, &record, false).await;
            outcomes.registry.publish(call_id, answer);
        }
        Ok(None) => {
            let approval = store.approval_of_call(call_id).await.ok().flatten();
            if let Some(end) = recorded::gone(outcomes, call_id, approval.as_ref()) {
                outcomes.registry.publish(call_id, end);
            }
        }
        Err(error) => outcomes.node.noticed(&error.into()),
    }
}

/// Whether the ledger may know more than the last answer here: other nodes work on the same records.
fn may_have_moved(outcomes: &Outcomes, told: &Answer) -> bool {
    if !outcomes.ledger.store().is_shared() {
        return false;
    }
    match told {
        Answer::Finished(_) => false,
        Answer::InProgress(_) | Answer::Held(_) => true,
        Answer::Refused(refused) => {
            refused.refusal.execution == Execution::Unknown || refused.refusal.code.retryable()
        }
    }
}

/// The tools that the caller may be able to call in some circumstances.
pub(crate) fn usable(outcomes: &Outcomes, caller: &VerifiedCaller) -> Tools {
    let active = outcomes.current.active();
    let surface = outcomes.current.surface(&active, caller);
    let targets = surface.iter().filter_map(|id| active.catalog.resolve(caller.tenant(), id));
    targets
        .map(|target| {
            let is_aliased = outcomes.aliases.of(&active, &target.capability).is_some();
            let tool = Tool { capability: target.capability, is_aliased };
            (tool.id.clone(), tool)
        })
        .collect()
}

/// The same, as listeners show them.
pub(crate) fn tools(outcomes: &Outcomes, caller: &VerifiedCaller) -> Vec<ToolView> {
    usable(outcomes, caller).values().map(|tool| ToolView::of(tool, tool.is_aliased)).collect()
}

/// The capabilities of the caller's surface that are features of their servers, not tools.
pub(crate) fn features(outcomes: &Outcomes, caller: &VerifiedCaller) -> Vec<FeatureView> {
    let usable = usable(outcomes, caller).into_iter();
    usable
        .filter_map(|(capability_id, tool)| {
            Some(FeatureView { capability_id, feature: tool.feature()? })
        })
        .collect()
}

/// Whether `tool` names such a capability, in anyone's surface.
pub(crate) fn is_feature(outcomes: &Outcomes, caller: &VerifiedCaller, tool: &str) -> bool {
    let Ok(id) = CapabilityId::from_tool_name(tool) else { return false };
    let target = outcomes.current.active().catalog.resolve(caller.tenant(), &id);
    target.is_some_and(|target| target.capability.feature().is_some())
}

/// What the server of such a capability of the caller's surface lists, as far as its contract permits. Empty where the capability is not
/// one of them, or the server cannot be asked.
pub(crate) async fn listed(
    outcomes: &Outcomes,
    caller: &VerifiedCaller,
    id: &CapabilityId,
    what: Listing,
) -> Vec<Value> {
    let active = outcomes.current.active();
    let target = active.catalog.resolve(caller.tenant(), id).filter(|target| {
        target.capability.feature() == Some(what.feature())
            && outcomes.current.surface(&active, caller).contains(id)
    });
    let (Some(target), Some(port)) = (target, active.ports.of(id.adapter())) else {
        return Vec::new();
    };
    match port.list(what).await {
        Ok(items) => items.iter().filter(|item| is_open(&target, what, item)).cloned().collect(),
        Err(refusal) => {
            let (adapter, method) = (id.adapter(), what.method());
            let why = refusal.detail.as_ref().unwrap_or(&refusal.message);
            tracing::warn!(%adapter, method, %why, "a server does not list, its part is left out");
            Vec::new()
        }
    }
}

/// Whether the contract's schema accepts what identifies an item; a template is not checked before it is filled in.
fn is_open(target: &Target, what: Listing, item: &Value) -> bool {
    let argument = match what {
        Listing::Resources => "uri",
        Listing::Prompts => "name",
        Listing::Templates => return true,
    };
    let Some(named) = item.get(argument) else { return false };
    let args = Map::from_iter([(argument.to_owned(), named.clone())]);
    let Err(refusal) = target.validate(&args) else { return true };
    // A schema may require more than what identifies the item, which the caller adds later.
    let pointer = format!("/{argument}");
    !refusal.problems.iter().any(|problem| problem.pointer.ends_with(&pointer))
}

/// Whether a tool of the caller's surface declares an output schema.
pub(crate) fn declares_output(outcomes: &Outcomes, caller: &VerifiedCaller, tool: &str) -> bool {
    let Ok(id) = CapabilityId::from_tool_name(tool) else { return false };
    let active = outcomes.current.active();
    outcomes.current.surface(&active, caller).contains(&id)
        && active
            .catalog
            .resolve(caller.tenant(), &id)
            .is_some_and(|target| target.capability.output_schema.is_some())
}

/// What is active on this node.
pub(crate) fn status(context: &Context) -> StatusView {
    let active = context.current.active();
    let (disk, needs_restart) = context.disk.state();
    let has_lockdown = context.approvals.rules.open().has_lockdown(context.ledger.store().now());
    let mode = if has_lockdown { EngineMode::Lockdown } else { context.current.engine_mode() };
    StatusView {
        bundle: active.policy.digest(),
        active: active.digest(),
        epoch: active.policy.epoch(),
        since: active.since,
        disk,
        needs_restart,
        mode,
        decides: context.node.health().cannot_decide().is_none(),
        epoch_elsewhere: context.node.health().foreign_epoch(),
    }
}
