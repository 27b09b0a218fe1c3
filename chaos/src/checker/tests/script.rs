//! A history, written line by line.

use std::collections::BTreeMap;

use crate::{
    history::{
        Class, Event, Phase, RunInfo, What,
        journal::{
            ApprovalImage, AttemptImage, AuditImage, JournalEntry, RecordChange, RecordImage,
            Resolved,
        },
        node::{NodeChange, NodeEvent},
        people::{Act, OperatorAct, VoteReply, VoteSent},
        probe::{ApprovalRow, Probe, RecordRow},
        request::{Answer, Loss, Lost, Protocol, Reply, ResultSeen, Sent, Why},
    },
    witness::{
        log::{Arrival, Line, Seen},
        tools,
    },
};
use placet_testkit::moment::Moment;

/// The wall clock when the machine started, in these histories.
pub(super) const EPOCH_MS: i64 = 1_800_000_000_000;

/// The history being written.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    pub(super) events: Vec<Event>,
    pub(super) lines: Vec<Line>,
    pub(super) entries: Vec<JournalEntry>,
    pub(super) epoch: u64,
    us: u64,
    requests: u64,
    effects: u64,
    votes: u64,
}

/// One key and its record.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) image: RecordImage,
    pub(super) tool: &'static str,
    pub(super) token: String,
    pub(super) approval: Option<ApprovalImage>,
}

impl Key {
    pub(super) fn new(tool: &'static str, key: &str, agent: &str) -> Self {
        let image = RecordImage {
            record_id: format!("rec_{agent}_{key}"),
            tenant: "acme".to_owned(),
            agent: agent.to_owned(),
            capability: format!("w/{tool}"),
            key: key.to_owned(),
            call_id: format!("call_{agent}_{key}"),
            arm: 1,
            ..RecordImage::default()
        };
        Self { image, tool, token: format!("plc_{key}"), approval: None }
    }

    pub(super) fn class(&self) -> Class {
        tools::class_of(self.tool).unwrap()
    }
}

impl Script {
    pub(super) fn new() -> Self {
        let mut script = Self { epoch: 1, ..Self::default() };
        let run = RunInfo {
            seed: 7,
            store: "embedded".to_owned(),
            nodes: 1,
            keyed_window_ms: 60_000,
            settle_delay_ms: 200,
        };
        script.say(What::Run(Box::new(run)));
        script.node(NodeChange::Started { pid: 1 });
        script.node(NodeChange::Ready { after_ms: 5 });
        script.say(What::Phase(Phase::Load));
        script
    }

    /// The next moment, ten milliseconds later.
    pub(super) fn tick(&mut self) -> Moment {
        self.wait(10)
    }

    pub(super) fn wait(&mut self, ms: u64) -> Moment {
        self.us += ms * 1_000;
        self.now()
    }

    pub(super) fn now(&self) -> Moment {
        Moment { us: self.us, wall_ms: EPOCH_MS + i64::try_from(self.us / 1_000).unwrap() }
    }

    pub(super) fn say(&mut self, what: What) {
        let at = self.tick();
        self.events.push(Event { at, what });
    }

    pub(super) fn node(&mut self, change: NodeChange) {
        self.say(What::Node(NodeEvent { node: 0, change }));
    }

    pub(super) fn send(&mut self, key: &Key, args: &str, why: Why) -> u64 {
        self.requests += 1;
        let sent = Sent {
            request: self.requests,
            client: 1,
            node: 0,
            over: Protocol::Http,
            tenant: key.image.tenant.clone(),
            agent: key.image.agent.clone(),
            user: None,
            tool: format!("w__{}", key.tool),
            class: key.class(),
            needs_approval: tools::needs_approval(key.tool),
            run_id: "run".to_owned(),
            key: (key.class() != Class::Read).then(|| key.image.key.clone()),
            args: args.to_owned(),
            why,
        };
        self.say(What::Sent(Box::new(sent)));
        self.requests
    }

    pub(super) fn reply(&mut self, request: u64, key: &Key, answer: Answer) -> &mut Reply {
        let (status, code, execution) = match answer {
            Answer::Succeeded => (200, None, None),
            Answer::Conflict => (422, Some("IDEMPOTENCY_CONFLICT"), Some("not_executed")),
            Answer::Unknown => (409, Some("OUTCOME_UNKNOWN"), Some("unknown")),
            Answer::InProgress => (409, Some("IN_PROGRESS"), Some("unknown")),
            Answer::Denied => (403, Some("APPROVAL_DENIED"), Some("not_executed")),
            Answer::Refused => (502, Some("ADAPTER_FAILED"), Some("not_executed")),
            Answer::Expired => (410, Some("RESULT_EXPIRED"), Some("not_executed")),
            _ => (202, None, None),
        };
        let approval = key.approval.as_ref().map(|approval| approval.approval_id.clone());
        let reply = Reply {
            request,
            status,
            answer,
            code: code.map(str::to_owned),
            execution: execution.map(str::to_owned),
            replayed: false,
            call_id: Some(key.image.call_id.clone()),
            approval_id: approval.filter(|_| answer == Answer::Pending),
            result: None,
            leaks: Vec::new(),
        };
        self.say(What::Reply(Box::new(reply)));
        let Some(Event { what: What::Reply(reply), .. }) = self.events.last_mut() else { panic!() };
        reply
    }

    pub(super) fn success(&mut self, request: u64, key: &Key, args: &str, replayed: bool) {
        let result = ResultSeen {
            digest: format!("result of {}", key.image.record_id),
            token: Some(key.token.clone()).filter(|_| key.class() != Class::Read),
            args: Some(args.to_owned()),
        };
        let reply = self.reply(request, key, Answer::Succeeded);
        reply.replayed = replayed;
        reply.result = Some(result);
    }

    pub(super) fn lost(&mut self, request: u64, how: Loss) {
        self.say(What::Lost(Lost { request, how }));
    }

    /// Writes an entry to the log, now.
    pub(super) fn write(
        &mut self,
        changes: Vec<RecordChange>,
        approvals: Vec<ApprovalImage>,
        audit: Vec<AuditImage>,
    ) {
        let at_ms = self.tick().wall_ms;
        let seq = u64::try_from(self.entries.len()).unwrap() + 1;
        self.entries.push(JournalEntry {
            log: "journal".to_owned(),
            seq,
            epoch: self.epoch,
            at_ms,
            hash: format!("hash {seq}"),
            prev: format!("hash {}", seq - 1),
            changes,
            approvals,
            audit,
            ..JournalEntry::default()
        });
    }

    pub(super) fn audit(&mut self, kind: &str, call: &str, bundle: Option<&str>) {
        let digests = bundle.map(|bundle| ("bundle".to_owned(), bundle.to_owned()));
        let audit = AuditImage {
            kind: kind.to_owned(),
            tenant: Some("acme".to_owned()),
            call_id: Some(call.to_owned()),
            record_id: None,
            code: None,
            digests: BTreeMap::from_iter(digests),
        };
        self.write(Vec::new(), Vec::new(), vec![audit]);
    }

    /// The record moves to `state`.
    pub(super) fn moves(&mut self, key: &mut Key, state: &str) {
        self.moves_with(key, state, |_| {});
    }

    pub(super) fn moves_with(
        &mut self,
        key: &mut Key,
        state: &str,
        change: impl FnOnce(&mut RecordImage),
    ) {
        let now = self.now().wall_ms;
        let image = &mut key.image;
        image.rev += 1;
        image.state = state.to_owned();
        image.resolved = None;
        image.approval_id = key.approval.as_ref().map(|approval| approval.approval_id.clone());
        if state == "dispatched" {
            image.attempts += 1;
            image.attempt = Some(AttemptImage {
                number: image.attempts,
                token: key.token.clone(),
                class: match tools::class_of(key.tool).unwrap() {
                    Class::Keyed => "keyed",
                    Class::Queryable => "queryable",
                    Class::Opaque | Class::Read => "opaque",
                }
                .to_owned(),
                epoch: self.epoch,
                owner: self.epoch,
                request: format!("request of {}", image.record_id),
                bundle: "bundle".to_owned(),
                approval_id: image.approval_id.clone(),
                grant: None,
                deadline_ms: now + 500,
            });
        }
        let is_attempt = matches!(state, "dispatched" | "indeterminate");
        if !is_attempt {
            image.attempt = None;
        }
        image.result = matches!(state, "succeeded" | "failed_final")
            .then(|| format!("stored {}", image.record_id));
        change(image);
        let image = image.clone();
        let next = |one: &mut ApprovalImage| {
            one.rev += 1;
            one.clone()
        };
        let approvals = key.approval.iter_mut().map(next).collect();
        self.write(vec![RecordChange::Put(Box::new(image))], approvals, Vec::new());
    }

    /// Asks people for approval.
    pub(super) fn holds(&mut self, key: &mut Key) {
        key.approval = Some(ApprovalImage {
            approval_id: format!("apr_{}", key.image.key),
            record_id: key.image.record_id.clone(),
            request: format!("request of {}", key.image.record_id),
            rev: 0,
            state: "pending".to_owned(),
            requesters: vec![key.image.agent.clone()],
            quorum: 1,
            agreed: Vec::new(),
            refused: Vec::new(),
            expires_ms: EPOCH_MS + 3_600_000,
        });
        self.moves(key, "pending_approval");
    }

    /// Ben decides, and the record moves on.
    pub(super) fn votes(&mut self, key: &mut Key, approve: bool) {
        self.votes += 1;
        let vote = self.votes;
        let approval_id = key.approval.as_ref().unwrap().approval_id.clone();
        let sent = VoteSent {
            vote,
            approval_id,
            tenant: "acme".to_owned(),
            approver: "ben".to_owned(),
            approve,
        };
        self.say(What::VoteSent(sent));
        let approval = key.approval.as_mut().unwrap();
        approval.state = if approve { "approved" } else { "denied" }.to_owned();
        if approve { &mut approval.agreed } else { &mut approval.refused }.push("ben".to_owned());
        let state = approval.state.clone();
        self.moves(key, &state);
        self.say(What::VoteReply(VoteReply { vote, status: 200, state: Some(state) }));
    }

    fn arrival(&self, key: &Key, args: &str) -> Arrival {
        Arrival {
            tool: key.tool.to_owned(),
            class: key.class(),
            token: key.token.clone(),
            attempt: u64::from(key.image.attempts),
            key: key.image.key.clone(),
            arrival: u64::from(key.image.attempts),
            args: args.to_owned(),
        }
    }

    pub(super) fn line(&mut self, what: Seen) {
        let at = self.tick();
        self.lines.push(Line { at, what });
    }

    pub(super) fn arrives(&mut self, key: &Key, args: &str) {
        let arrival = self.arrival(key, args);
        self.line(Seen::Arrived(arrival));
    }

    pub(super) fn happens(&mut self, key: &Key, args: &str) {
        let started = self.tick();
        self.effects += 1;
        let (arrival, effect) = (self.arrival(key, args), self.effects);
        self.lines.push(Line { at: started, what: Seen::Arrived(arrival.clone()) });
        self.line(Seen::Effect { arrival, started, effect });
    }

    pub(super) fn operator(&mut self, key: &Key, act: Act, who: &str) {
        self.say(What::Operator(OperatorAct {
            record_id: key.image.record_id.clone(),
            tenant: key.image.tenant.clone(),
            operator: who.to_owned(),
            act,
            status: Some(200),
        }));
    }

    pub(super) fn resolved(
        by: &str,
        attempt: Option<u32>,
        operator: Option<&str>,
    ) -> Option<Resolved> {
        Some(Resolved { by: by.to_owned(), attempt, operator: operator.map(str::to_owned) })
    }

    /// Adds the final probes.
    pub(super) fn probes(&mut self, keys: &[&Key]) {
        self.say(What::Phase(Phase::Probing));
        let row = |key: &&Key| RecordRow {
            record_id: key.image.record_id.clone(),
            call_id: key.image.call_id.clone(),
            state: key.image.state.clone(),
            attempts: key.image.attempts,
            token: key.image.attempt.as_ref().map(|attempt| attempt.token.clone()),
            agent: key.image.agent.clone(),
            capability: key.image.capability.clone(),
        };
        let records = keys.iter().map(row).collect();
        let approvals =
            keys.iter().filter_map(|key| key.approval.as_ref()).map(|approval| ApprovalRow {
                approval_id: approval.approval_id.clone(),
                call_id: String::new(),
                state: approval.state.clone(),
            });
        let approvals = approvals.collect();
        self.probe(Probe::Records { tenant: "acme".to_owned(), node: 0, records });
        self.probe(Probe::Approvals { tenant: "acme".to_owned(), node: 0, approvals });
        for entry in self.entries.clone() {
            self.probe(Probe::Entry(Box::new(entry)));
        }
        let (entries, head) = (self.entries.len() as u64, format!("hash {}", self.entries.len()));
        self.probe(Probe::LogEnd { log: "journal".to_owned(), entries, head: head.clone() });
        let check = "audit verify".to_owned();
        self.probe(Probe::Verified {
            check,
            node: Some(0),
            ok: true,
            entries: Some(entries),
            head: Some(head),
            problem: None,
        });
        self.probe(Probe::Budget {
            tenant: "acme".to_owned(),
            agent: "scribe".to_owned(),
            user: None,
            run_id: "run".to_owned(),
            used: 50,
            limit: 100,
        });
        self.probe(Probe::Gauge { node: 0, name: "queue".to_owned(), value: 3, cap: 10 });
        self.probe(Probe::Secrets { files: 3, bytes: 1_000, hits: Vec::new() });
        self.say(What::Phase(Phase::Ended));
    }

    pub(super) fn probe(&mut self, probe: Probe) {
        self.say(What::Probe(Box::new(probe)));
    }
}

/// Doctoring.
impl Script {
    pub(super) fn keep_probes(&mut self, keep: impl Fn(&Probe) -> bool) {
        self.events
            .retain(|event| if let What::Probe(probe) = &event.what { keep(probe) } else { true });
    }

    pub(super) fn each_probe(&mut self, mut change: impl FnMut(&mut Probe)) {
        for event in &mut self.events {
            if let What::Probe(probe) = &mut event.what {
                change(probe);
            }
        }
    }

    pub(super) fn each_entry(&mut self, mut change: impl FnMut(&mut JournalEntry)) {
        self.each_probe(|probe| {
            if let Probe::Entry(entry) = probe {
                change(entry)
            }
        });
    }

    /// Changes a key's record in every entry where it has this state.
    pub(super) fn each_put(
        &mut self,
        key: &str,
        state: &str,
        mut change: impl FnMut(&mut RecordImage),
    ) {
        let mut changed = 0;
        self.each_entry(|entry| {
            for one in &mut entry.changes {
                if let RecordChange::Put(image) = one
                    && image.key == key
                    && image.state == state
                {
                    change(image);
                    changed += 1;
                }
            }
        });
        assert!(changed > 0, "{key} is never {state}");
    }

    /// Removes the entries that put a key's record into this state.
    pub(super) fn forget(&mut self, key: &str, state: &str) {
        let hit = |one: &RecordChange| matches!(one, RecordChange::Put(image) if image.key == key && image.state == state);
        self.each_entry(|entry| entry.changes.retain(|one| !hit(one)));
    }

    /// Changes the answers to requests of a key.
    pub(super) fn each_reply(&mut self, key: &str, mut change: impl FnMut(&Sent, &mut Reply)) {
        let requests: BTreeMap<u64, Sent> = self
            .events
            .iter()
            .filter_map(|event| {
                if let What::Sent(sent) = &event.what {
                    Some((sent.request, (**sent).clone()))
                } else {
                    None
                }
            })
            .filter(|(_, sent)| {
                sent.key.as_deref() == Some(key) || sent.tool == format!("w__{key}")
            })
            .collect();
        let mut changed = 0;
        for event in &mut self.events {
            if let What::Reply(reply) = &mut event.what
                && let Some(sent) = requests.get(&reply.request)
            {
                change(sent, reply);
                changed += 1;
            }
        }
        assert!(changed > 0, "{key} has no replies");
    }

    /// Repeats the effect of a token.
    pub(super) fn double(&mut self, token: &str) {
        let is = |line: &&Line| matches!(&line.what, Seen::Effect { arrival, .. } if arrival.token == token);
        let mut again = self.lines.iter().find(is).expect("the token has an effect").clone();
        if let Seen::Effect { effect, started, .. } = &mut again.what {
            *effect = 99;
            *started = again.at;
        }
        again.at.us += 1;
        self.lines.push(again);
    }

    /// Removes the effects of a token.
    pub(super) fn undo(&mut self, token: &str) {
        self.lines.retain(
            |line| !matches!(&line.what, Seen::Effect { arrival, .. } if arrival.token == token),
        );
    }
}
