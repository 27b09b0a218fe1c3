//! The approval service of the engine of a test: what it shows, and what it was asked.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::sync::broadcast;

use placet_approvals::views::{
    ApprovalDetail, BulkDecisionRequest, BulkDecisionView, BulkRefusal, DeskAct, DeskEntryView,
    DeskEvent, DeskLoad, DeskRequest, EditRequest, EntriesPage, EntriesQuery, EntryStanding,
    InboxItem, InboxQuery, InboxView, TimelineView,
};
use placet_identity::VerifiedToken;
use placet_types::{
    desk::DeskKind,
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::DeskId,
};

use super::{Feed, samples};

/// What the approval service shows and was asked.
#[derive(Debug, Default)]
pub(crate) struct FakeDesk {
    /// The approval there is; absent: the sample.
    pub(crate) detail: Option<ApprovalDetail>,
    /// How many lines like it the inbox has.
    pub(crate) waiting: Option<usize>,
    /// How many further entries of each kind there are, each older than the one before and over.
    pub(crate) over: usize,
    /// What the next deed is refused with.
    pub(crate) refuses: Option<Refusal>,
    /// Whether the caller may do nothing with any entry.
    pub(crate) may_nothing: bool,
    pub(crate) asked: Vec<InboxQuery>,
    pub(crate) edits: Vec<EditRequest>,
    pub(crate) togethers: Vec<BulkDecisionRequest>,
    pub(crate) arranged: Vec<DeskRequest>,
    pub(crate) acts: Vec<DeskAct>,
    pub(crate) signed_in: Vec<VerifiedToken>,
}

impl FakeDesk {
    pub(crate) fn refuse_if_told(&mut self) -> Result<(), Refusal> {
        self.refuses.take().map_or(Ok(()), Err)
    }

    pub(super) fn inbox(&mut self, caller: &str, query: InboxQuery) -> InboxView {
        let total = if caller == "tenant-a" { self.waiting.unwrap_or(1) } else { 0 };
        let shown = total.saturating_sub(query.offset).min(query.limit);
        let approval = self.detail.clone().map_or_else(samples::approval, |shown| shown.approval);
        let progress = samples::detail().standing.progress;
        let is_over = !matches!(query.state.as_deref(), None | Some("pending" | "approved"));
        let next_after = (is_over && total > shown).then(|| approval.approval_id.clone());
        let incomplete = query.search.as_deref() == Some("rare");
        self.asked.push(query);
        InboxView {
            approvals: vec![
                InboxItem {
                    approval,
                    mine: true,
                    progress,
                    summary: "path: <b>a.txt</b>".to_owned()
                };
                shown
            ],
            total: (!is_over).then_some(total),
            next_after,
            incomplete,
            mine: total,
            load: DeskLoad {
                waiting_by_age: [3, 2, 1, 0, 4],
                waiting_by_group: BTreeMap::from([("owners".parse().unwrap(), 10)]),
                decided_in_ms: vec![30_000, 400_000, 5_000_000],
                freezes: Vec::new(),
                reviews_due: 1,
            },
        }
    }

    pub(super) fn together(&mut self, request: BulkDecisionRequest) -> BulkDecisionView {
        let refused = request.approvals.iter().skip(1).map(|item| BulkRefusal {
            approval_id: item.approval_id.clone(),
            code: ErrorCode::ApprovalVoid,
            message: "it changed <meanwhile>".to_owned(),
        });
        let view =
            BulkDecisionView { decided: vec![samples::approval()], refused: refused.collect() };
        self.togethers.push(request);
        view
    }

    pub(super) fn entries(&self, caller: &str, kind: Option<DeskKind>) -> Vec<DeskEntryView> {
        let kinds = DeskKind::ALL.into_iter().filter(|each| kind.is_none_or(|kind| kind == *each));
        let mut entries: Vec<DeskEntryView> =
            if caller == "tenant-a" { kinds.map(entry).collect() } else { Vec::new() };
        if self.may_nothing {
            for entry in &mut entries {
                entry.standing = EntryStanding::default();
            }
        }
        entries
    }

    pub(super) fn page(&self, caller: &str, query: &EntriesQuery) -> EntriesPage {
        let mut entries = self.entries(caller, query.kind);
        if let Some(newest) = entries.first().cloned() {
            let over = (1..=self.over).rev().map(|age| DeskEntryView {
                desk_id: format!("over-{age}").parse().unwrap(),
                state: "ended".to_owned(),
                in_force: false,
                created_at: newest
                    .created_at
                    .plus_ms(i64::try_from(age).unwrap().saturating_mul(-60_000)),
                ..newest.clone()
            });
            entries = over.filter(|_| !query.only_open).chain(entries).collect();
        }
        if query.newest_first {
            entries.reverse();
        }
        entries.retain(|entry| query.made_before.is_none_or(|before| entry.created_at < before));
        if let Some(after) = &query.after {
            let place = entries.iter().position(|entry| entry.desk_id == *after).unwrap();
            entries.drain(..=place);
        }
        let more = entries.len() >= query.limit;
        entries.truncate(query.limit);
        let next_after = entries.last().filter(|_| more).map(|last| last.desk_id.clone());
        EntriesPage { entries, next_after }
    }

    pub(super) fn entry(&self, id: &DeskId) -> Result<DeskEntryView, Refusal> {
        let all = self.entries("tenant-a", None);
        let found = all.into_iter().find(|entry| entry.desk_id == *id);
        found.ok_or_else(|| Refusal::new(ErrorCode::NotFound, "no such entry"))
    }
}

/// An entry of a kind; its id is the kind's name.
pub(super) fn entry(kind: DeskKind) -> DeskEntryView {
    let digest = Digest::of(b"entry");
    let body = match kind {
        DeskKind::Grant => json!({
            "kind": "grant", "approval_id": "approval-1", "chain": samples::chain(), "capability": "files/delete",
            "mode": "destructive", "contract_digest": digest, "uses_max": 3,
            "pattern": { "/path": { "starts_with": "<i>reports/" }, "/count": { "at_most": 5 } },
        }),
        DeskKind::BreakGlass => json!({ "kind": "break_glass", "ticket": "INC-1 <script>" }),
        DeskKind::Freeze => json!({ "kind": "freeze", "name": "Year's end <b>" }),
        DeskKind::Delegation => json!({ "kind": "delegation", "to": "ana", "groups": ["owners"] }),
        DeskKind::Revocation => json!({ "kind": "revocation", "subject": "bob <i>" }),
    };
    serde_json::from_value(json!({
        "desk_id": kind.as_str(), "state": if kind == DeskKind::BreakGlass { "proposed" } else { "active" },
        "in_force": true, "review_due": kind == DeskKind::BreakGlass, "by": "ana", "reason": "because <u>",
        "created_at": 0, "starts_at": 0, "expires_at": 86_400_000, "body": body,
        "requirement": samples::requirement(), "votes": [], "uses": 1, "digest": digest,
        "standing": { "may_agree": true, "may_refuse": true, "may_end": true, "may_review": true },
    }))
    .unwrap()
}

pub(super) fn timeline() -> TimelineView {
    let step = json!({
        "log": "journal", "seq": 4, "at": 5, "kind": "approval_asked", "by": "agent-1 <b>",
        "audiences": { "tok_1": ["https://mail.example <i>", "placet"] },
        "digests": { "request": Digest::of(b"request") }, "hash": "00ff",
    });
    TimelineView { steps: vec![serde_json::from_value(step).unwrap()], incomplete: true }
}

/// What happens in the approval service, for anyone who follows.
#[derive(Debug, Clone)]
pub(crate) struct Happening(pub(crate) broadcast::Sender<DeskEvent>);

impl Default for Happening {
    fn default() -> Self {
        Self(broadcast::Sender::new(2))
    }
}

impl Happening {
    pub(super) fn feed(&self) -> FakeFeed {
        FakeFeed(self.0.subscribe())
    }

    /// Something happens.
    pub(crate) fn happen(&self) {
        let event = json!({ "kind": "voted", "groups": ["owners"], "at": 1 });
        self.0.send(serde_json::from_value(event).unwrap()).unwrap();
    }
}

#[derive(Debug)]
pub(crate) struct FakeFeed(broadcast::Receiver<DeskEvent>);

impl Feed for FakeFeed {
    async fn next(&mut self) -> Option<DeskEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }

    fn is_over(&self) -> bool {
        false
    }
}
