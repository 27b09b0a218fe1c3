//! What is asked of a running engine about revoked tokens, and its report.
//!
//! Owns neither: revocations are entries of the approval service (`placet-approvals`).

use std::{future::Future, sync::Arc};

use placet_approvals::refusals;
use placet_identity::VerifiedCaller;
use placet_types::error::Refusal;

use super::Engine;
use crate::report::{self, ReportRange, ReportView};

impl Engine {
    /// How the calls of the tenant went in a range of time, for operators (TM-21).
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::PolicyDenied`] for everybody else; [`Refusal`] for a range that is not usable, and when the audit
    /// chain cannot be read.
    pub async fn report(
        &self,
        caller: &VerifiedCaller,
        range: ReportRange,
    ) -> Result<ReportView, Refusal> {
        self.must_be_operator(caller)?;
        report::of(&self.context, caller.tenant(), range).await
    }

    /// Whether a token that the caller was verified by has been revoked since.
    pub fn is_revoked(&self, caller: &VerifiedCaller) -> bool {
        self.context.credentials.broker.is_caller_revoked(caller)
    }

    /// Resolves when such a token is revoked, on any node, with the refusal for the caller.
    pub fn revoked(
        &self,
        caller: Arc<VerifiedCaller>,
    ) -> impl Future<Output = Refusal> + Send + 'static + use<> {
        // Subscribe before checking, so that no revocation in between is missed.
        let mut further = self.context.revoking.subscribe();
        let context = Arc::clone(&self.context);
        async move {
            while !context.credentials.broker.is_caller_revoked(&caller) {
                if further.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
            refusals::revoked()
        }
    }
}
