//! What a worker does with a call: its stage, under its span, then on to the next.
//!
//! Owns where each stage's outcome goes. What has to wait continues in a task of the registry, so that a mailbox is never blocked.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::Instrument as _;

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_telemetry::trace::{CallFields, Stage, record_adapter, record_call, stage_span};
use placet_types::{directory::Directory, error::ErrorCode, ids::CapabilityId};

use crate::{
    call::{Brokered, Built, Call, Caller, Gated, Invoked, Planned},
    context::Context,
    stages::{
        broker as broker_stage, build as build_stage, gate as gate_stage, invoke as invoke_stage,
        refuse,
    },
};

/// Takes a call through the build stage.
pub(crate) fn build(context: &Arc<Context>, call: Call<Planned>) {
    let began = Instant::now();
    let Call { mut responder, stage } = call;
    let span = stage_span(&responder.span, Stage::Build);
    let active = context.current.active();
    // Only if the tool exists, even outside the caller's surface: metrics must not count by the caller's text.
    let known = CapabilityId::from_tool_name(&stage.submission.tool).ok();
    responder.known =
        known.filter(|id| active.catalog.resolve(stage.caller.tenant(), id).is_some());
    let (caller, run_id) = (Arc::clone(&stage.caller), stage.submission.run.run_id.clone());
    let directory = Arc::clone(&active.directory);
    let built =
        span.in_scope(|| build_stage::build(context, active, &responder.subject.call_id, *stage));
    context.metrics.record_stage(Stage::Build, began.elapsed());
    match built {
        Ok(built) => {
            let id = &built.target.capability.id;
            // Only once it is known to exist: an unknown name is the caller's text.
            let tool = id.tool_name();
            record_call(
                &responder.span,
                &CallFields { tool: Some(&tool), ..CallFields::default() },
            );
            record_adapter(&responder.span, id.adapter().as_str());
            if built.target.capability.is_write_class() {
                responder.subject.key = Some(built.key.clone());
            }
            context.routes.broker(Call::new(responder, built));
        }
        Err(refusal) => {
            let mut event = refused_of(&directory, &Caller::Verified(caller));
            event.run_id = Some(run_id);
            event.capability = responder.known.clone();
            if refusal.code == ErrorCode::ToolNotFound && event.capability.is_some() {
                // It is outside the caller's surface (TM-21).
                context.metrics.count_permission_violation();
            }
            let owner = Arc::clone(context);
            context
                .registry
                .spawn(async move { refuse::early(&owner, responder, event, refusal).await });
        }
    }
}

/// Takes a call through the broker stage.
pub(crate) fn broker(context: &Arc<Context>, call: Call<Built>) {
    let began = Instant::now();
    let Call { responder, stage } = call;
    let span = stage_span(&responder.span, Stage::Broker);
    let (caller, run_id) = (stage.caller.clone(), stage.run.run_id.clone());
    let (directory, capability) =
        (Arc::clone(&stage.active.directory), stage.target.capability.id.clone());
    let brokered =
        span.in_scope(|| broker_stage::broker(context, &responder.subject.trace_id, *stage));
    context.metrics.record_stage(Stage::Broker, began.elapsed());
    match brokered {
        Ok(brokered) => context.routes.gate(Call::new(responder, brokered)),
        Err(refusal) => {
            let mut event = refused_of(&directory, &caller);
            event.run_id = Some(run_id);
            event.capability = Some(capability);
            let owner = Arc::clone(context);
            context
                .registry
                .spawn(async move { refuse::early(&owner, responder, event, refusal).await });
        }
    }
}

/// The audit event for the caller of a call that was not brokered.
fn refused_of(directory: &Directory, caller: &Caller) -> AuditEvent {
    let (chain, proof, audiences) = match caller {
        Caller::Verified(caller) => (caller.chain(), caller.proof(), caller.several_audiences()),
        Caller::Recorded(identity) => {
            (identity.chain.clone(), identity.proof.clone(), identity.audiences.clone())
        }
    };
    let mut event = AuditEvent::new(AuditKind::Refused);
    event.caller = Some(broker_stage::shown(directory, &chain, &proof));
    event.audiences = audiences;
    event.tenant = Some(chain.tenant().clone());
    event.chain = Some(chain);
    event
}

/// Takes a call through the gate.
pub(crate) fn gate(context: &Arc<Context>, call: Call<Brokered>) {
    let span = stage_span(&call.responder.span, Stage::Gate);
    let owner = Arc::clone(context);
    let stage = Box::pin(async move {
        let began = Instant::now();
        gate_stage::gate(&owner, call).await;
        owner.metrics.record_stage(Stage::Gate, began.elapsed());
    });
    context.registry.run(stage.instrument(span));
}

/// Takes a call through the invoke stage.
pub(crate) fn invoke(context: &Arc<Context>, call: Call<Gated>) {
    let span = stage_span(&call.responder.span, Stage::Invoke);
    let owner = Arc::clone(context);
    let stage = Box::pin(async move {
        let began = Instant::now();
        invoke_stage::invoke(&owner, call).await;
        owner.metrics.record_stage(Stage::Invoke, began.elapsed());
    });
    // It waits for the adapter in any case, and a first poll before it is a task would push aside what that poll wakes.
    context.registry.spawn(stage.instrument(span));
}

/// Takes a call through the return stage.
pub(crate) fn reply(context: &Arc<Context>, call: Call<Invoked>) {
    let began = Instant::now();
    let span = stage_span(&call.responder.span, Stage::Return);
    let Call { responder, stage } = call;
    span.in_scope(|| responder.reply(stage.result));
    context.metrics.record_stage(Stage::Return, began.elapsed());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<S, F>(_stage: impl FnOnce(&'static Arc<Context>, Call<S>) -> F) -> usize {
        size_of::<F>()
    }

    /// A future is copied whole, several times, before it is first polled: what is rare is boxed where it is awaited.
    #[test]
    fn the_future_of_a_stage_is_small() {
        let (gate, invoke) = (bytes_of(gate_stage::gate), bytes_of(invoke_stage::invoke));
        assert!(gate <= 8 << 10 && invoke <= 8 << 10, "{gate} and {invoke} bytes");
    }
}
