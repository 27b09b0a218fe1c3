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
    contract::{Capability, feature::Listing},
    error::{ErrorCode, Execution, Refusal},
    ids::{CapabilityId, ToolCallId},
};

use super::Engine;
use crate::{
    answer::Answer,
    outcome::{
        Outcomes,
        recorded::{self, of_approval},
    },
    registry::Owner,
    result::Subject,
    runs::offer::{Tool, Tools},
    ticket::{Ticket, wait_for},
    views::{FeatureView, ToolView},
};

impl Engine {
    /// The state of a call of the caller.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for ids that are not the caller's.
    pub async fn call(&self, caller: &VerifiedCaller, id: &ToolCallId) -> Result<Answer, Refusal> {
        let outcomes = &self.context.outcomes;
        let owner = Owner::of(&caller.chain());
        let live = outcomes.registry.follow(id, &owner);
        let told = live.map(|live| live.borrow().clone());
        if let Some(told) = &told
            && !may_have_moved(outcomes, told)
        {
            return Ok(told.clone());
        }
        let store = outcomes.ledger.store();
        let record = store.effect_of_call(id).await;
        let record = record.map_err(|error| outcomes.lookup_failed(error))?;
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
                    _ => Ok(Box::pin(recorded::standing(outcomes, &record)).await),
                }
            }
            (None, Some(told)) => Ok(told),
            (None, None) => {
                let approval = store.approval_of_call(id).await;
                let approval = approval.map_err(|error| lookup_refusal(&error))?;
                let own = approval.filter(|approval| Owner::of(&approval.chain) == owner);
                let approval = own.ok_or_else(unknown)?;
                let subject = Subject::of_approval(&approval);
                Ok(subject.refused(of_approval(&approval), store.now()))
            }
        }
    }

    /// A ticket for a call of the caller, to wait on.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for ids that are not the caller's.
    pub async fn follow(
        &self,
        caller: &VerifiedCaller,
        id: &ToolCallId,
    ) -> Result<Ticket, Refusal> {
        let answer = self.call(caller, id).await?;
        let outcomes = &self.context.outcomes;
        let owner = Owner::of(&caller.chain());
        let progress = match outcomes.registry.follow(id, &owner) {
            Some(progress) if !answer.is_final() || *progress.borrow() == answer => progress,
            // It has ended, and only the ledger knows it: nothing will change any more.
            _ if answer.is_final() => watch::Sender::new(answer).subscribe(),
            _ => wait_for(outcomes, id, owner.clone(), answer),
        };
        Ok(Ticket::new(Arc::clone(outcomes), id.clone(), owner, progress))
    }

    /// Withdraws a call of the caller that waits for approval, so that it ends without running, and returns its state. A call that does not
    /// wait is left as it is.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for ids that are not the caller's; any other refusal where policy does not let the caller.
    pub async fn withdraw(
        &self,
        caller: &VerifiedCaller,
        id: &ToolCallId,
        reason: &str,
    ) -> Result<Answer, Refusal> {
        let answer = self.call(caller, id).await?;
        let Answer::Held(held) = &answer else { return Ok(answer) };
        let request = WithdrawalRequest { reason: reason.to_owned() };
        match self.context.approvals.withdraw(caller, &held.approval_id, request).await {
            Ok(_ended) => {}
            // It was sent, or ended otherwise, at the same time.
            Err(refusal) if refusal.code == ErrorCode::ValidationError => {}
            Err(refusal) => return Err(refusal),
        }
        self.call(caller, id).await
    }

    /// The tools that the caller may be able to call in some circumstances.
    pub fn tools(&self, caller: &VerifiedCaller) -> Vec<ToolView> {
        let usable = usable(&self.context, caller);
        usable.values().map(|tool| ToolView::of(tool, tool.is_aliased)).collect()
    }

    /// The resources, prompts and completions of servers that the caller may be able to use, each by its capability.
    pub fn features(&self, caller: &VerifiedCaller) -> Vec<FeatureView> {
        let usable = usable(&self.context, caller).into_iter();
        usable
            .filter_map(|(capability_id, tool)| {
                Some(FeatureView { capability_id, feature: tool.feature()? })
            })
            .collect()
    }

    /// Whether `tool` names a feature of a server that is not a tool; says nothing about who may call it.
    pub fn is_feature(&self, caller: &VerifiedCaller, tool: &str) -> bool {
        let Ok(id) = CapabilityId::from_tool_name(tool) else { return false };
        let target = self.context.current.active().catalog.resolve(caller.tenant(), &id);
        target.is_some_and(|target| target.capability.feature().is_some())
    }

    /// What the server of such a feature lists now, each item in the form of MCP, as far as its contract permits. Empty for a feature
    /// outside the caller's surface, or a server that cannot be asked.
    pub async fn listed(
        &self,
        caller: &VerifiedCaller,
        id: &CapabilityId,
        what: Listing,
    ) -> Vec<Value> {
        let outcomes = &self.context.outcomes;
        let active = outcomes.current.active();
        let target = active.catalog.resolve(caller.tenant(), id).filter(|target| {
            target.capability.feature() == Some(what.feature())
                && outcomes.current.surface(&active, caller).contains(id)
        });
        let (Some(target), Some(port)) = (target, active.ports.of(id.adapter())) else {
            return Vec::new();
        };
        match port.list(what).await {
            Ok(items) => {
                items.iter().filter(|item| is_open(&target, what, item)).cloned().collect()
            }
            Err(refusal) => {
                let (adapter, method) = (id.adapter(), what.method());
                let why = refusal.detail.as_ref().unwrap_or(&refusal.message);
                tracing::warn!(%adapter, method, %why, "a server does not list, its part is left out");
                Vec::new()
            }
        }
    }

    /// Whether a tool in the caller's surface declares an output schema; copies nothing of the surface.
    pub fn declares_output(&self, caller: &VerifiedCaller, tool: &str) -> bool {
        self.knows_of(caller, tool, |capability| capability.output_schema.is_some())
    }

    /// Whether a tool in the caller's surface may have an effect.
    pub fn may_have_effect(&self, caller: &VerifiedCaller, tool: &str) -> bool {
        self.knows_of(caller, tool, Capability::is_write_class)
    }

    fn knows_of(
        &self,
        caller: &VerifiedCaller,
        tool: &str,
        is_so: impl Fn(&Capability) -> bool,
    ) -> bool {
        let outcomes = &self.context.outcomes;
        let Ok(id) = CapabilityId::from_tool_name(tool) else { return false };
        let active = outcomes.current.active();
        outcomes.current.surface(&active, caller).contains(&id)
            && active
                .catalog
                .resolve(caller.tenant(), &id)
                .is_some_and(|target| is_so(&target.capability))
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
pub(super) fn usable(outcomes: &Outcomes, caller: &VerifiedCaller) -> Tools {
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
