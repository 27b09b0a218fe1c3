//! An engine that says what a test wants, for the tests of the listeners.
//!
//! Owns two tenants: `tenant-a` has everything there is, `tenant-b` has nothing. A token is `Bearer` and the tenant's name; a
//! certificate of a handshake is one of `tenant-a`.

mod api;
mod desk;
mod samples;
pub(crate) mod sessions;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use serde_json::json;
use tokio::sync::watch;

use placet_approvals::views::{
    ApprovalDetail, ApprovalView, BulkDecisionRequest, BulkDecisionView, DecisionRequest, DeskAct,
    DeskEntryView, DeskRequest, EditRequest, EntriesPage, EntriesQuery, InboxQuery, InboxView,
    TimelineView, WithdrawalRequest,
};
use placet_engine::{
    answer::Answer,
    attempts::Attempt,
    engine::evidence::{AuditKeyView, CheckpointView, ConsistencyView, InclusionView, ReceiptView},
    report::{ReportRange, ReportView},
    submission::{Inbound, Submission},
    views::{
        CredentialsView, Readiness, RearmRequest, RecordView, ResolutionRequest, ToolView,
        decisions::{DecisionView, DecisionsPage, DecisionsQuery},
        status::{ReloadRequest, ReloadView, StatusView},
    },
};
use placet_types::{
    desk::DeskKind,
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, DecisionId, DeskId, RecordId, ToolCallId},
    principal::Principal,
};

use crate::{
    backend::{Backend, Feed, Follow, Page},
    request::Credentials,
};

pub(crate) use api::{Reply, TestApi, get, post, submission};
pub(crate) use desk::{FakeDesk, Happening};
pub(crate) use samples::detail as sample_detail;
use samples::{approval, detail, record, report};
pub(crate) use samples::{finished, held, in_progress, refused};

pub(crate) const CALL: &str = "call-1";
pub(crate) const APPROVAL: &str = "approval-1";

pub(crate) fn record_id() -> RecordId {
    Digest::of(b"record").to_string().parse().unwrap()
}

/// The engine of a test.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    /// How `call-1` stands; every submission becomes it.
    pub(crate) call: watch::Sender<Answer>,
    /// What was submitted.
    pub(crate) submitted: Arc<Mutex<Vec<(Submission, Inbound)>>>,
    /// What callers tried.
    pub(crate) attempts: Arc<Mutex<Vec<(String, Attempt)>>>,
    /// Decisions that were carried through.
    pub(crate) decided: Arc<Mutex<Vec<DecisionRequest>>>,
    /// How long a decision takes.
    pub(crate) decision_takes: Duration,
    /// Whether the tokens of all callers are revoked.
    pub(crate) revoked: watch::Sender<bool>,
    /// How long the tokens of all callers still count.
    pub(crate) expires_in: Duration,
    pub(crate) ready: bool,
    /// Whether a ticket is on a call that was forgotten.
    pub(crate) forgetful: bool,
    /// What the approval service shows and was asked.
    pub(crate) desk: Arc<Mutex<FakeDesk>>,
    /// What happens in the approval service.
    pub(crate) happening: Happening,
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self {
            call: watch::Sender::new(finished()),
            submitted: Arc::default(),
            attempts: Arc::default(),
            decided: Arc::default(),
            decision_takes: Duration::ZERO,
            revoked: watch::Sender::new(false),
            expires_in: Duration::from_secs(86_400),
            ready: true,
            forgetful: false,
            desk: Arc::default(),
            happening: Happening::default(),
        }
    }

    fn ticket(&self) -> FakeTicket {
        if self.forgetful {
            return FakeTicket(watch::Sender::new(self.call.borrow().clone()).subscribe());
        }
        let mut call = self.call.subscribe();
        call.mark_unchanged();
        FakeTicket(call)
    }
}

#[derive(Debug)]
pub(crate) struct FakeTicket(watch::Receiver<Answer>);

impl Follow for FakeTicket {
    fn current(&self) -> Answer {
        self.0.borrow().clone()
    }

    async fn changed(&mut self) -> Answer {
        if self.0.changed().await.is_err() {
            tokio::task::yield_now().await;
        }
        self.0.borrow_and_update().clone()
    }

    async fn settled(&mut self, wait_ms: u64) -> Answer {
        loop {
            let current = self.current();
            match &current {
                Answer::Finished(_) | Answer::Refused(_) => return current,
                Answer::InProgress(_) => drop(self.changed().await),
                Answer::Held(_) => {
                    let waited =
                        tokio::time::timeout(Duration::from_millis(wait_ms), self.changed()).await;
                    if waited.is_err() {
                        return current;
                    }
                }
            }
        }
    }
}

fn of_a<T>(caller: &str, thing: T) -> Result<T, Refusal> {
    if caller == "tenant-a" {
        return Ok(thing);
    }
    Err(Refusal::new(ErrorCode::NotFound, "the engine's own words")
        .with_detail("it belongs to tenant-a"))
}

fn a_bug_if(wanted: bool) {
    assert!(!wanted, "a bug in the engine");
}

impl Backend for Fake {
    type Caller = String;
    type Ticket = FakeTicket;
    type Feed = desk::FakeFeed;

    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<String, Refusal> {
        if credentials.authorization.is_none() && credentials.certificate.is_some() {
            return Ok("tenant-a".to_owned());
        }
        match credentials.authorization.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(tenant @ ("tenant-a" | "tenant-b")) => Ok(tenant.to_owned()),
            // One that a development key minted.
            Some(minted) if minted.matches('.').count() == 2 => Ok("tenant-a".to_owned()),
            _ => Err(Refusal::new(
                ErrorCode::Unauthenticated,
                "the token is not valid for this service",
            )
            .with_detail("no such tenant")),
        }
    }

    fn attempted(&self, caller: &String, attempt: Attempt) {
        self.attempts.lock().push((caller.clone(), attempt));
    }

    fn signed_in(&self, token: placet_identity::VerifiedToken) -> Result<String, Refusal> {
        let tenant = token.tenant().to_string();
        self.desk.lock().signed_in.push(token);
        Ok(format!("tenant-{tenant}"))
    }

    fn principal(&self, caller: &String) -> Principal {
        let principal =
            json!({ "kind": "user", "tenant_id": caller, "id": "ben", "display": "Ben <b>" });
        serde_json::from_value(principal).unwrap()
    }

    fn submit(
        &self,
        caller: String,
        submission: Submission,
        inbound: Inbound,
    ) -> Result<FakeTicket, Refusal> {
        a_bug_if(submission.tool == "files__panic");
        if caller != "tenant-a" {
            return Err(Refusal::new(ErrorCode::ToolNotFound, "there is no such tool"));
        }
        self.submitted.lock().push((submission, inbound));
        Ok(self.ticket())
    }

    async fn call(&self, caller: &String, id: &ToolCallId) -> Result<Answer, Refusal> {
        if id.as_str() == CALL {
            of_a(caller, self.call.borrow().clone())
        } else {
            of_a("nobody", finished())
        }
    }

    async fn follow(&self, caller: &String, id: &ToolCallId) -> Result<FakeTicket, Refusal> {
        if id.as_str() == CALL {
            of_a(caller, self.ticket())
        } else {
            of_a("nobody", self.ticket())
        }
    }

    fn freezes(&self, _: &String) -> Vec<placet_approvals::views::FreezeView> {
        Vec::new()
    }

    fn tools(&self, caller: &String) -> Vec<ToolView> {
        let tool = json!({
            "tool": "files__read", "capability_id": "files/read", "description": "Reads a file.",
            "input_schema": { "type": "object" }, "mode_highest": "read_only", "writes": false,
        });
        if caller == "tenant-a" { vec![serde_json::from_value(tool).unwrap()] } else { Vec::new() }
    }

    async fn approvals(
        &self,
        caller: &String,
        page: &Page<ApprovalId>,
    ) -> Result<Vec<ApprovalView>, Refusal> {
        let all = if caller == "tenant-a" { vec![approval(); 3] } else { Vec::new() };
        Ok(all.into_iter().take(page.limit).collect())
    }

    async fn approval(&self, caller: &String, id: &ApprovalId) -> Result<ApprovalDetail, Refusal> {
        let shown = self.desk.lock().detail.clone().unwrap_or_else(detail);
        of_a(if *id == shown.approval.approval_id { caller } else { "nobody" }, shown)
    }

    async fn decide(
        &self,
        caller: &String,
        _: &ApprovalId,
        request: DecisionRequest,
    ) -> Result<ApprovalView, Refusal> {
        of_a(caller, ())?;
        tokio::time::sleep(self.decision_takes).await;
        a_bug_if(request.reason == "panic");
        self.desk.lock().refuse_if_told()?;
        self.decided.lock().push(request);
        Ok(approval())
    }

    async fn inbox(&self, caller: &String, query: InboxQuery) -> Result<InboxView, Refusal> {
        Ok(self.desk.lock().inbox(caller, query))
    }

    async fn edit(
        &self,
        caller: &String,
        _: &ApprovalId,
        request: EditRequest,
    ) -> Result<ApprovalView, Refusal> {
        of_a(caller, ())?;
        let mut desk = self.desk.lock();
        desk.refuse_if_told()?;
        desk.edits.push(request);
        Ok(approval())
    }

    async fn withdraw(
        &self,
        caller: &String,
        _: &ApprovalId,
        _: WithdrawalRequest,
    ) -> Result<ApprovalView, Refusal> {
        of_a(caller, ())?;
        self.desk.lock().refuse_if_told()?;
        Ok(approval())
    }

    async fn decide_together(
        &self,
        caller: &String,
        request: BulkDecisionRequest,
    ) -> Result<BulkDecisionView, Refusal> {
        of_a(caller, ())?;
        Ok(self.desk.lock().together(request))
    }

    async fn desk_entries(
        &self,
        caller: &String,
        query: &EntriesQuery,
    ) -> Result<EntriesPage, Refusal> {
        Ok(self.desk.lock().page(caller, query))
    }

    async fn desk_entry(&self, caller: &String, id: &DeskId) -> Result<DeskEntryView, Refusal> {
        of_a(caller, self.desk.lock().entry(id)?)
    }

    async fn arrange(
        &self,
        caller: &String,
        request: DeskRequest,
    ) -> Result<DeskEntryView, Refusal> {
        of_a(caller, ())?;
        let mut desk = self.desk.lock();
        desk.refuse_if_told()?;
        desk.arranged.push(request);
        Ok(desk::entry(DeskKind::Freeze))
    }

    async fn act(
        &self,
        caller: &String,
        id: &DeskId,
        act: DeskAct,
    ) -> Result<DeskEntryView, Refusal> {
        of_a(caller, ())?;
        let mut desk = self.desk.lock();
        desk.refuse_if_told()?;
        desk.acts.push(act);
        desk.entry(id)
    }

    async fn timeline(&self, caller: &String, id: &ToolCallId) -> Result<TimelineView, Refusal> {
        of_a(if id.as_str() == CALL { caller } else { "nobody" }, desk::timeline())
    }

    fn expires_in(&self, _: &String) -> Duration {
        self.expires_in
    }

    fn desk_events(&self, _: &String) -> desk::FakeFeed {
        self.happening.feed()
    }

    async fn record(&self, caller: &String, id: RecordId) -> Result<RecordView, Refusal> {
        of_a(if id == record_id() { caller } else { "nobody" }, record())
    }

    fn credentials(&self, caller: &String) -> Result<CredentialsView, Refusal> {
        let view = json!({
            "services": ["corp"], "minted": 3, "reused": 9, "refused": 1, "kept": 2, "revoked": 0,
        });
        of_a(caller, serde_json::from_value(view).unwrap())
    }

    async fn decisions(
        &self,
        caller: &String,
        _: DecisionsQuery,
    ) -> Result<DecisionsPage, Refusal> {
        let page = DecisionsPage { decisions: Vec::new(), next_to: None, incomplete: false };
        of_a(caller, page)
    }

    async fn decision(&self, caller: &String, _: &DecisionId) -> Result<DecisionView, Refusal> {
        of_a(caller, samples::decision())
    }

    async fn report(&self, caller: &String, range: ReportRange) -> Result<ReportView, Refusal> {
        of_a(caller, report(range))
    }

    fn is_revoked(&self, _: &String) -> bool {
        *self.revoked.borrow()
    }

    fn revoked(&self, _: &String) -> impl Future<Output = Refusal> + Send + 'static + use<> {
        let mut revoked = self.revoked.subscribe();
        async move {
            drop(revoked.wait_for(|revoked| *revoked).await.unwrap());
            Refusal::new(ErrorCode::CredentialExpired, "the token is no longer accepted")
                .with_detail("an operator has revoked it")
        }
    }

    async fn records(
        &self,
        caller: &String,
        _: &Page<RecordId>,
    ) -> Result<Vec<RecordView>, Refusal> {
        if caller == "tenant-a" {
            return Ok(vec![record()]);
        }
        Err(Refusal::new(ErrorCode::PolicyDenied, "only operators may list the ledger"))
    }

    async fn resolve(
        &self,
        caller: &String,
        _: RecordId,
        _: ResolutionRequest,
    ) -> Result<RecordView, Refusal> {
        of_a(caller, record())
    }

    async fn rearm(
        &self,
        caller: &String,
        _: RecordId,
        _: RearmRequest,
    ) -> Result<RecordView, Refusal> {
        of_a(caller, record())
    }

    async fn receipt(&self, caller: &String, id: &ToolCallId) -> Result<ReceiptView, Refusal> {
        of_a(if id.as_str() == CALL { caller } else { "nobody" }, samples::receipt())
    }

    async fn checkpoints(&self, _: &String) -> Result<Vec<CheckpointView>, Refusal> {
        Ok(vec![samples::checkpoint()])
    }

    fn audit_key(&self, _: &String) -> Result<AuditKeyView, Refusal> {
        Ok(samples::audit_key())
    }

    async fn inclusion(
        &self,
        _: &String,
        log: &str,
        seq: u64,
        size: Option<u64>,
    ) -> Result<InclusionView, Refusal> {
        Ok(samples::inclusion(log, seq, size))
    }

    async fn consistency(
        &self,
        _: &String,
        log: &str,
        from: u64,
        to: u64,
    ) -> Result<ConsistencyView, Refusal> {
        Ok(samples::consistency(log, from, to))
    }

    fn status(&self) -> StatusView {
        samples::status()
    }

    async fn reload(&self, caller: &String, _: ReloadRequest) -> Result<ReloadView, Refusal> {
        let status = samples::status();
        of_a(caller, ReloadView { before: status.active, changed: Vec::new(), status })
    }

    fn readiness(&self) -> Readiness {
        Readiness { ready: self.ready, notes: Vec::new(), active: samples::status() }
    }

    fn metrics_text(&self) -> String {
        "# EOF\n".to_owned()
    }
}
