//! What callers ask about their own calls and tools.
//!
//! Owns the rule that ids of others answer as ids that do not exist.

use placet_identity::VerifiedCaller;
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::ToolCallId,
};

use crate::{
    answer::Answer,
    context::{Context, lookup_refusal},
    registry::Owner,
    stages::recorded,
    views::ToolView,
};

/// How a call of the caller's stands.
pub(crate) async fn call(
    context: &Context,
    caller: &VerifiedCaller,
    call_id: &ToolCallId,
) -> Result<Answer, Refusal> {
    let owner = Owner::of(&caller.chain());
    if let Some(live) = context.registry.follow(call_id, &owner) {
        return Ok(live.borrow().clone());
    }
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such call");
    let record = context
        .ledger
        .store()
        .effect_of_call(call_id)
        .await
        .map_err(|error| lookup_refusal(&error))?
        .ok_or_else(unknown)?;
    let scope = caller.chain().key_scope(&record.scope.capability);
    if scope != record.scope {
        return Err(unknown());
    }
    Ok(recorded::standing(context, &record).await)
}

/// The caller's surface.
pub(crate) fn tools(context: &Context, caller: &VerifiedCaller) -> Vec<ToolView> {
    let surface = context.surface(caller);
    surface
        .iter()
        .filter_map(|id| context.catalog.resolve(caller.tenant(), id))
        .map(|target| {
            let capability = &target.capability;
            ToolView {
                tool: capability.id.tool_name(),
                capability_id: capability.id.clone(),
                description: capability.description.clone(),
                input_schema: capability.input_schema.clone(),
                output_schema: capability.output_schema.clone(),
                mode_highest: capability.mode_highest,
                writes: capability.is_write_class(),
            }
        })
        .collect()
}
