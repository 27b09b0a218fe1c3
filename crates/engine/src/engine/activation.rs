//! What is active: how it is changed, and how the engine reports it.
//!
//! Owns the verbs; the policy actor does the work, one reload at a time.

use placet_identity::VerifiedCaller;
use placet_types::error::Refusal;

use super::Engine;
use crate::{
    adapters::ports::Connection,
    policies,
    reload::{Order, ReloadError},
    views::{
        Readiness,
        status::{ReloadRequest, ReloadView, StatusView},
    },
};

impl Engine {
    /// Reads policies, contracts, directory and issuers again and activates them; `by` says who asked, for the audit.
    ///
    /// # Errors
    /// [`ReloadError`]; what was active stays active, except after [`ReloadError::NotKept`], which the next start resolves.
    pub async fn reload(&self, by: &str) -> Result<ReloadView, ReloadError> {
        self.reload_as(Order { by: by.to_owned(), rolls_back: None, reader: None }).await
    }

    async fn reload_as(&self, order: Order) -> Result<ReloadView, ReloadError> {
        let done = self.tree.reload(order).await;
        done.inspect_err(
            |error| tracing::error!(%error, "reload refused; what was active stays active"),
        )
    }

    /// The same for an operator. Where there are several tenants, it is told nothing of the contracts and files of others.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`](placet_types::error::ErrorCode::PolicyDenied) for everybody else; [`ErrorCode::ValidationError`](placet_types::error::ErrorCode::ValidationError) for files that cannot be used, which
    /// changes nothing.
    pub async fn reload_for(
        &self,
        caller: &VerifiedCaller,
        request: ReloadRequest,
    ) -> Result<ReloadView, Refusal> {
        self.must_be_operator(caller)?;
        let by = format!("{}/{}", caller.tenant(), caller.actor.principal().id);
        let reader = Some(caller.tenant().clone());
        let order = Order { by, rolls_back: request.roll_back, reader };
        let is_only = self.context.current.active().are_only_of(caller.tenant());
        self.reload_as(order).await.map_err(|error| {
            if is_only { error.refusal() } else { error.refusal_to_one_of_several() }
        })
    }

    /// What is active on this node, for a caller.
    pub fn status(&self, caller: &VerifiedCaller) -> StatusView {
        policies::status(&self.context, Some(caller.tenant()))
    }

    /// Whether calls can be admitted, and what is down.
    pub fn readiness(&self) -> Readiness {
        let mut notes: Vec<String> = self
            .context
            .current
            .active()
            .ports
            .all()
            .filter_map(|port| match port.connection() {
                Connection::Up(_) if port.is_open() => {
                    Some(format!("adapter {}: circuit breaker open", port.contract.adapter))
                }
                Connection::Up(_) => None,
                Connection::Down => {
                    Some(format!("adapter {}: not connected", port.contract.adapter))
                }
                Connection::Failed(_) => {
                    Some(format!("adapter {}: cannot be reached", port.contract.adapter))
                }
            })
            .collect();
        let without = self.context.verifier.issuers_without_keys().into_iter();
        notes.extend(without.map(|issuer| format!("issuer {issuer}: its keys are not there")));
        let old = self.context.verifier.issuers_with_old_keys().into_iter();
        notes.extend(old.map(|issuer| {
            format!("issuer {issuer}: its keys cannot be loaded, those at hand are used on")
        }));
        let mut obstacles = self.context.node.health().notes();
        obstacles.extend(self.context.node.cause_of_death());
        if !self.context.approvals.is_read() {
            obstacles.push("what waits for people is still being read after the start".to_owned());
        }
        if self.context.ledger.store().space_is_low() {
            obstacles.push(
                "too little free space for the ledger (`limits.free_space_bytes_min`): nothing new is executed".to_owned(),
            );
        }
        let active = policies::status(&self.context, None);
        let ready = obstacles.is_empty() && !self.context.node.is_ending();
        notes.extend(obstacles);
        Readiness { ready, notes, active }
    }
}
