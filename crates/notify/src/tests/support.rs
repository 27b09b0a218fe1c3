//! A chain in memory, a sender that behaves as told, and records as the ledger would write them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;

use async_trait::async_trait;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    log::LogEntry,
    outbox::{Outbox, OutboxChange},
    store::StoreError,
};
use placet_telemetry::metrics::Metrics;
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{ApprovalId, ChannelName, TenantId, ToolCallId},
};
use serde_json::{Value, json};

use crate::{
    config::NotifyConfig,
    ledger_reader::LedgerReader,
    message::{Letter, Preview},
    notifier::Notifier,
    sender::{Failure, MessageSender},
};

/// 2026-11-22T09:00:00Z.
pub(crate) const NINE: i64 = 1_795_338_000_000;
pub(crate) const MINUTE: i64 = 60_000;

#[derive(Debug)]
struct Inner {
    now: i64,
    own: String,
    logs: BTreeMap<String, Vec<LogEntry>>,
    /// The first readable entry of each log whose older entries were taken away.
    first: BTreeMap<String, u64>,
    approvals: BTreeMap<ApprovalId, ApprovalRecord>,
    outbox: Outbox,
    leads: bool,
    refuses: Option<StoreError>,
    hides_approvals: bool,
    previews: Preview,
}

/// A chain that lives as long as the test.
#[derive(Debug, Clone)]
pub(crate) struct Chain(Arc<Mutex<Inner>>);

impl Chain {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now: NINE,
            own: "journal".to_owned(),
            logs: BTreeMap::from([("journal".to_owned(), Vec::new())]),
            first: BTreeMap::new(),
            approvals: BTreeMap::new(),
            outbox: Outbox::default(),
            leads: true,
            refuses: None,
            hides_approvals: false,
            previews: Preview { arguments: Value::Null, masked: BTreeSet::new() },
        })))
    }

    fn inner<T>(&self, with: impl FnOnce(&mut Inner) -> T) -> T {
        with(&mut self.0.lock())
    }

    pub(crate) fn pass_ms(&self, ms: i64) {
        self.inner(|inner| inner.now = inner.now.saturating_add(ms));
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.inner(|inner| inner.leads = leads);
    }

    /// The entries of a log before this one go to an archive that is not available.
    pub(crate) fn takes_away(&self, log: &str, before: u64) {
        self.inner(|inner| inner.first.extend([(log.to_owned(), before)]));
    }

    pub(crate) fn refuses(&self, error: Option<StoreError>) {
        self.inner(|inner| inner.refuses = error);
    }

    /// Whether approvals can be read from now on.
    pub(crate) fn hides_approvals(&self, hides: bool) {
        self.inner(|inner| inner.hides_approvals = hides);
    }

    pub(crate) fn shows(&self, arguments: Value, masked: &[&str]) {
        let masked = masked.iter().map(|place| (*place).to_owned()).collect();
        self.inner(|inner| inner.previews = Preview { arguments, masked });
    }

    /// The sender's notes go into this log from now on.
    pub(crate) fn writes_to(&self, log: &str) {
        self.inner(|inner| log.clone_into(&mut inner.own));
    }

    /// An entry of one log.
    pub(crate) fn append(&self, log: &str, mut payload: Value) {
        payload["version"] = json!(1);
        self.inner(|inner| {
            let at_ms = inner.now;
            let entries = inner.logs.entry(log.to_owned()).or_default();
            entries.push(LogEntry {
                seq: u64::try_from(entries.len()).unwrap().saturating_add(1),
                epoch: 1,
                at_ms,
                kind: 1,
                durable_seq: 0,
                prev: [0; 32],
                payload: payload.to_string().into_bytes(),
                hash: [0; 32],
            });
        });
    }

    /// Appends an approval in its new state, after an event of this kind.
    pub(crate) fn moved_in(&self, log: &str, approval: &ApprovalRecord, kind: AuditKind) {
        let mut event = AuditEvent::new(kind);
        event.approval_id = Some(approval.approval_id.clone());
        event.call_id = Some(approval.call_id.clone());
        self.inner(|inner| {
            inner.approvals.insert(approval.approval_id.clone(), approval.clone());
        });
        self.append(log, json!({ "approvals": [approval], "audit": [event] }));
    }

    pub(crate) fn moved(&self, approval: &ApprovalRecord, kind: AuditKind) {
        self.moved_in("journal", approval, kind);
    }

    /// Appends that a call ended with this outcome.
    pub(crate) fn ended(&self, approval: &ApprovalRecord, outcome: &str) {
        let mut event = AuditEvent::new(AuditKind::Settled);
        event.call_id = Some(approval.call_id.clone());
        event.digests.insert("result".to_owned(), Digest::of(b"result"));
        let record = json!({ "put": { "call_id": approval.call_id, "rev": 5, "state": { "state": outcome } } });
        self.append("journal", json!({ "effects": [record], "audit": [event] }));
    }

    /// The current outbox.
    pub(crate) fn waits(&self) -> Outbox {
        self.inner(|inner| inner.outbox.clone())
    }

    /// How many entries the sender has written.
    pub(crate) fn kept(&self) -> usize {
        self.inner(|inner| {
            let entries = inner.logs.values().flatten();
            let is_kept = |entry: &&LogEntry| {
                let payload: Value = serde_json::from_slice(&entry.payload).unwrap();
                payload.get("outbox").is_some()
            };
            entries.filter(is_kept).count()
        })
    }

    /// The results of messages, oldest first.
    pub(crate) fn notes(&self) -> Vec<AuditEvent> {
        self.inner(|inner| {
            let entries = inner.logs.values().flatten();
            let events = entries.flat_map(|entry| {
                let payload: Value = serde_json::from_slice(&entry.payload).unwrap();
                payload["audit"].as_array().cloned().unwrap_or_default()
            });
            let events = events.map(|event| serde_json::from_value::<AuditEvent>(event).unwrap());
            events.filter(|event| event.kind == AuditKind::Notified).collect()
        })
    }
}

#[async_trait]
impl LedgerReader for Chain {
    fn now(&self) -> Timestamp {
        self.inner(|inner| Timestamp::from_ms(inner.now))
    }

    async fn leads(&self) -> Result<bool, StoreError> {
        self.inner(|inner| inner.refuses.clone().map_or(Ok(inner.leads), Err))
    }

    async fn heads(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        self.inner(|inner| {
            let heads = inner.logs.iter();
            Ok(heads
                .map(|(log, entries)| (log.clone(), u64::try_from(entries.len()).unwrap()))
                .collect())
        })
    }

    async fn entries(
        &self,
        log: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.inner(|inner| {
            if inner.first.get(log).is_some_and(|first| from < *first) {
                return Err(StoreError::Damaged("the segment is in an archive".to_owned()));
            }
            let before = usize::try_from(from.saturating_sub(1)).unwrap();
            let entries = inner.logs.get(log).into_iter().flatten();
            Ok(entries.skip(before).take(limit).cloned().collect())
        })
    }

    async fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, StoreError> {
        self.inner(|inner| match inner.hides_approvals {
            true => Err(StoreError::Unreachable("down".to_owned())),
            false => Ok(inner.approvals.get(id).cloned()),
        })
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        self.inner(|inner| {
            Ok(inner.approvals.values().find(|one| one.call_id == *call_id).cloned())
        })
    }

    async fn waiting(&self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRecord>, StoreError> {
        self.inner(|inner| {
            let all = inner.approvals.values().filter(|one| one.state == ApprovalState::Pending);
            Ok(all
                .filter(|one| after.as_ref().is_none_or(|after| one.approval_id > *after))
                .cloned()
                .collect())
        })
    }

    async fn preview(&self, _: &TenantId, _: Digest) -> Result<Preview, StoreError> {
        self.inner(|inner| Ok(inner.previews.clone()))
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        Ok(self.waits())
    }

    async fn keep(
        &self,
        change: OutboxChange,
        event: Option<AuditEvent>,
    ) -> Result<(), StoreError> {
        if let Some(error) = self.inner(|inner| inner.refuses.clone()) {
            return Err(error);
        }
        let log = self.inner(|inner| {
            inner.outbox.take(&change);
            inner.own.clone()
        });
        let audit: Vec<AuditEvent> = event.into_iter().collect();
        self.append(&log, json!({ "outbox": change, "audit": audit }));
        Ok(())
    }
}

/// A message that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) channel: String,
    pub(crate) letter: Letter,
}

impl Arrived {
    /// Its content: `call_1 held`, or several of these.
    pub(crate) fn says(&self) -> String {
        self.words().join(", ")
    }

    /// The same, each thing by itself.
    pub(crate) fn words(&self) -> Vec<String> {
        let told = self.letter.message.told().iter();
        told.map(|told| format!("{} {}", told.notice.subject(), told.notice.kind)).collect()
    }
}

/// A sender that writes down what it delivers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Boy {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    tried: Arc<Mutex<Vec<String>>>,
    refused: Arc<Mutex<BTreeMap<String, Failure>>>,
}

impl Boy {
    /// Everything about a subject fails in this way, or no longer fails.
    pub(crate) fn refuse(&self, subject: &str, failure: Option<Failure>) {
        let mut refused = self.refused.lock();
        match failure {
            Some(failure) => refused.insert(subject.to_owned(), failure),
            None => refused.remove(subject),
        };
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().clone()
    }

    /// What arrived, as words.
    pub(crate) fn said(&self) -> Vec<String> {
        self.arrived().iter().map(Arrived::says).collect()
    }

    pub(crate) fn tries(&self) -> usize {
        self.tried.lock().len()
    }
}

#[async_trait]
impl MessageSender for Boy {
    async fn deliver(
        &self,
        channel: &ChannelName,
        letter: &Letter,
        _: Timestamp,
    ) -> Result<String, Failure> {
        let one = Arrived { channel: channel.to_string(), letter: letter.clone() };
        self.tried.lock().push(one.says());
        let refused = self.refused.lock().clone();
        let told = letter.message.told().iter();
        if let Some(failure) = told.filter_map(|told| refused.get(told.notice.subject())).next() {
            return Err(failure.clone());
        }
        self.arrived.lock().push(one);
        Ok("taken".to_owned())
    }
}

/// A configuration, changed by `changes`, whose channel `ops` gets everything.
pub(crate) fn config(changes: Value) -> NotifyConfig {
    let mut ops = json!({ "to": { "type": "slack", "url": "https://hooks.example/x" } });
    ops.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let all = [
        "held",
        "edited",
        "voted",
        "escalated",
        "approved",
        "denied",
        "expired",
        "void",
        "finished",
        "break_glass",
        "freeze",
        "grant",
        "credential_refused",
    ];
    let config = json!({
        "channels": { "ops": ops },
        "routes": [{ "events": all, "channels": ["ops"] }],
    });
    read(config)
}

pub(crate) fn read(config: Value) -> NotifyConfig {
    let config: NotifyConfig = serde_json::from_value(config).unwrap();
    config.check(|_| Ok(())).unwrap();
    config
}

/// A sender on the chain.
pub(crate) fn sender(config: &NotifyConfig, chain: &Chain, boy: &Boy) -> Notifier {
    Notifier::reading(
        Arc::new(config.clone()),
        Arc::new(chain.clone()),
        Arc::new(boy.clone()),
        Metrics::new(),
    )
}

/// One turn, and everything that follows from it.
pub(crate) async fn turn(sender: &mut Notifier) {
    while sender.turn().await.unwrap() {}
    sender.settle().await;
}

/// A pending approval.
pub(crate) fn approval(number: u32) -> ApprovalRecord {
    serde_json::from_value(json!({
        "version": 1,
        "approval_id": format!("apr_{number}"),
        "record_id": Digest::of(&number.to_be_bytes()),
        "call_id": format!("call_{number}"),
        "chain": {
            "actor": { "kind": "agent", "id": "desk-bot", "tenant_id": "acme" },
            "on_behalf_of": { "kind": "user", "id": "ana", "tenant_id": "acme" },
        },
        "capability": "bank/credit",
        "mode": "destructive",
        "request_digest": Digest::of(b"request"),
        "proposal": Digest::of(b"proposal"),
        "bundle_digest": Digest::of(b"bundle"),
        "requirement": {
            "groups": { "finance": 1 },
            "quorum": 1,
            "expires_in_ms": 3_600_000,
            "reasons": [{ "policy": "gate-money", "reason": "Money leaves the house" }],
        },
        "created_at": NINE,
        "expires_at": NINE + 60 * MINUTE,
        "rev": 1,
        "votes": [],
        "state": { "state": "pending" },
    }))
    .unwrap()
}

/// The same approval in another state.
pub(crate) fn then(approval: &ApprovalRecord, state: ApprovalState) -> ApprovalRecord {
    ApprovalRecord { rev: approval.rev.saturating_add(1), state, ..approval.clone() }
}

/// A vote by somebody, with words that nobody else may read.
pub(crate) fn voted(approval: &ApprovalRecord, by: &str, state: ApprovalState) -> ApprovalRecord {
    let mut next = then(approval, state);
    next.votes.push(
        serde_json::from_value(json!({
            "approver": by, "groups": ["finance"], "groups_as_of": NINE, "choice": "approve",
            "reason": "CANARY of a person", "at": NINE, "shown_digest": Digest::of(b"proposal"),
        }))
        .unwrap(),
    );
    next
}
