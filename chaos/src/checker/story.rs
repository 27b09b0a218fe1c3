//! Everything about one key: who asked, what was answered, what the ledger wrote, what the witness saw.
//!
//! Owns joining these sources, and describing the result. A record of the ledger is found by its own fields; a token belongs
//! to the key whose record names it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    history::{
        journal::{AttemptImage, JournalEntry, RecordChange, RecordImage},
        request::{Answer, Loss, Reply, ResultSeen, Sent, Why},
    },
    witness::log::Arrival,
};
use placet_testkit::moment::Moment;

/// What identifies a key from outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyId {
    pub(crate) tenant: String,
    pub(crate) agent: String,
    pub(crate) user: Option<String>,
    /// The operation, as `adapter/capability`.
    pub(crate) capability: String,
    pub(crate) key: String,
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.agent)?;
        if let Some(user) = &self.user {
            write!(f, " for {user}")?;
        }
        write!(f, " {} key {}", self.capability, self.key)
    }
}

impl KeyId {
    /// The key of a request; `None` for a read.
    pub(crate) fn of(sent: &Sent) -> Option<Self> {
        Some(Self {
            tenant: sent.tenant.clone(),
            agent: sent.agent.clone(),
            user: sent.user.clone(),
            capability: sent.tool.replacen("__", "/", 1),
            key: sent.key.clone()?,
        })
    }

    pub(crate) fn of_record(image: &RecordImage) -> Self {
        Self {
            tenant: image.tenant.clone(),
            agent: image.agent.clone(),
            user: image.user.clone(),
            capability: image.capability.clone(),
            key: image.key.clone(),
        }
    }
}

/// One request and how it ended.
#[derive(Debug, Clone)]
pub(crate) struct Op<'a> {
    pub(crate) at: Moment,
    pub(crate) sent: &'a Sent,
    pub(crate) end: Option<(Moment, End<'a>)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum End<'a> {
    Reply(&'a Reply),
    Lost(Loss),
}

/// Codes that are about the call itself, not only about the request that got them.
const OF_THE_CALL: [&str; 4] =
    ["ADAPTER_UNAVAILABLE", "ADAPTER_FAILED", "APPROVAL_DENIED", "APPROVAL_EXPIRED"];
/// Those after which the key never runs.
const FOR_GOOD: [&str; 2] = ["APPROVAL_DENIED", "APPROVAL_EXPIRED"];

impl<'a> Op<'a> {
    pub(crate) fn reply(&self) -> Option<(Moment, &'a Reply)> {
        match self.end {
            Some((at, End::Reply(reply))) => Some((at, reply)),
            Some((_, End::Lost(_))) | None => None,
        }
    }

    pub(crate) fn answer(&self) -> Option<Answer> {
        self.reply().map(|(_, reply)| reply.answer)
    }

    /// The result in a successful answer.
    pub(crate) fn success(&self) -> Option<(Moment, &'a ResultSeen)> {
        let (at, reply) = self.reply()?;
        let result = reply.result.as_ref()?;
        (reply.answer == Answer::Succeeded).then_some((at, result))
    }

    /// Whether the answer says that the request did nothing.
    pub(crate) fn says_nothing_happened(&self) -> bool {
        // For a held call this is true at that moment only: it runs once people approve.
        self.reply().is_some_and(|(_, reply)| {
            reply.answer != Answer::Pending && reply.execution.as_deref() == Some("not_executed")
        })
    }

    /// Whether the answer says that the call has not happened, no matter which request sent it.
    pub(crate) fn says_call_did_not_happen(&self) -> bool {
        self.says_nothing_happened() && self.has_code(&OF_THE_CALL)
    }

    /// Whether the answer says that the call will never happen.
    pub(crate) fn says_never(&self) -> bool {
        self.says_nothing_happened() && self.has_code(&FOR_GOOD)
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        let code = self.reply().and_then(|(_, reply)| reply.code.as_deref());
        code.is_some_and(|code| codes.contains(&code))
    }

    /// Whether it may have reached the engine.
    pub(crate) fn may_have_arrived(&self) -> bool {
        !matches!(self.end, Some((_, End::Lost(Loss::NotConnected))))
    }

    /// Whether it is a call, and not a poll.
    pub(crate) fn is_call(&self) -> bool {
        self.sent.why != Why::Poll
    }
}

/// An entry's change of the record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<'a> {
    pub(crate) entry: &'a JournalEntry,
    pub(crate) change: &'a RecordChange,
}

impl<'a> Written<'a> {
    /// The record's new state; `None` when it is gone.
    pub(crate) fn image(&self) -> Option<&'a RecordImage> {
        match self.change {
            RecordChange::Put(image) => Some(image),
            RecordChange::Removed { .. } | RecordChange::Forgotten { .. } => None,
        }
    }

    /// The name of the state, `absent` or `forgotten`.
    pub(crate) fn state(&self) -> &'a str {
        match self.change {
            RecordChange::Put(image) => &image.state,
            RecordChange::Removed { .. } => "absent",
            RecordChange::Forgotten { .. } => "forgotten",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect<'a> {
    /// When the call had come in.
    pub(crate) started: Moment,
    /// When the effect was durable.
    pub(crate) at: Moment,
    pub(crate) arrival: &'a Arrival,
    pub(crate) number: u64,
}

/// A call that came to the witness, and whether it was refused there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Came<'a> {
    pub(crate) at: Moment,
    pub(crate) arrival: &'a Arrival,
    pub(crate) refused: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Story<'a> {
    pub(crate) ops: Vec<Op<'a>>,
    pub(crate) written: Vec<Written<'a>>,
    pub(crate) effects: Vec<Effect<'a>>,
    pub(crate) came: Vec<Came<'a>>,
    /// Moments at which the witness said «not found» about a token of the key.
    pub(crate) not_found: Vec<(Moment, &'a str)>,
}

impl<'a> Story<'a> {
    /// The attempts in the ledger, by token and number, each as first recorded.
    pub(crate) fn attempts(
        &self,
    ) -> BTreeMap<(&'a str, u32), (&'a JournalEntry, &'a AttemptImage)> {
        let mut attempts = BTreeMap::new();
        for written in self.written.iter().filter(|written| written.state() == "dispatched") {
            if let Some(attempt) = written.image().and_then(|image| image.attempt.as_ref()) {
                attempts
                    .entry((attempt.token.as_str(), attempt.number))
                    .or_insert((written.entry, attempt));
            }
        }
        attempts
    }

    /// The first success that was answered, and when.
    pub(crate) fn first_success(&self) -> Option<(&Op<'a>, Moment)> {
        let successes = self.ops.iter().filter_map(|op| op.success().map(|(at, _)| (op, at)));
        successes.min_by_key(|(_, at)| *at)
    }

    /// How often operators agreed to send the call again.
    pub(crate) fn rearms(&self) -> usize {
        self.written.iter().filter(|written| written.state() == "rearmed").count()
    }

    /// Whether an operator ended the record.
    pub(crate) fn ended_by_operator(&self) -> bool {
        let by = |written: &Written<'_>| {
            let resolved = written.image().and_then(|image| image.resolved.as_ref());
            resolved.is_some_and(|resolved| resolved.by == "operator")
        };
        self.written.iter().any(by)
    }

    /// The final state of the record, according to the log.
    pub(crate) fn last(&self) -> Option<&Written<'a>> {
        self.written.last()
    }

    /// The events of the key, in order, as text.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut told: Vec<(i64, u64, String)> = Vec::new();
        for op in &self.ops {
            let sent = op.sent;
            let what = format!(
                "request {} ({:?}, node {}) sent, args {}",
                sent.request,
                sent.why,
                sent.node,
                short(&sent.args)
            );
            told.push((op.at.wall_ms, op.at.us, what));
            match op.end {
                Some((at, End::Reply(reply))) => told.push((at.wall_ms, at.us, describe(reply))),
                Some((at, End::Lost(how))) => {
                    told.push((
                        at.wall_ms,
                        at.us,
                        format!("request {} lost: {how:?}", sent.request),
                    ));
                }
                None => {}
            }
        }
        for came in &self.came {
            let refused = if came.refused { ", refused before anything happened" } else { "" };
            let what = format!(
                "upstream got attempt {} of token {}{refused}",
                came.arrival.attempt, came.arrival.token
            );
            told.push((came.at.wall_ms, came.at.us, what));
        }
        for effect in &self.effects {
            let what = format!(
                "EFFECT {} of token {} attempt {}",
                effect.number, effect.arrival.token, effect.arrival.attempt
            );
            told.push((effect.at.wall_ms, effect.at.us, what));
        }
        for (at, token) in &self.not_found {
            told.push((at.wall_ms, at.us, format!("upstream said it does not know token {token}")));
        }
        told.extend(self.written.iter().map(|written| {
            let (entry, rev) = (written.entry, written.change.rev());
            let what = format!(
                "ledger {}#{} epoch {}: {} rev {rev}",
                entry.log,
                entry.seq,
                entry.epoch,
                written.state()
            );
            (entry.at_ms, 0, what)
        }));
        told.sort_by_key(|(ms, us, _)| (*ms, *us));
        let begin = told.first().map_or(0, |(ms, _, _)| *ms);
        told.into_iter()
            .map(|(ms, _, what)| format!("+{} ms {what}", ms.saturating_sub(begin)))
            .collect()
    }
}

/// Whether enough different people agreed, none of whom requests.
pub(super) fn people_agreed<'a>(
    agreed: &[String],
    quorum: u32,
    requesters: impl IntoIterator<Item = &'a String>,
) -> Result<(), String> {
    let people: BTreeSet<&String> = agreed.iter().collect();
    let enough = people.len() >= usize::try_from(quorum).unwrap_or(usize::MAX);
    if !enough || people.is_empty() {
        return Err(format!("it had {} of {quorum} agreements", people.len()));
    }
    match requesters.into_iter().find(|one| people.contains(one)) {
        Some(own) => Err(format!("{own} agreed to their own request")),
        None => Ok(()),
    }
}

/// A digest, short enough to compare by eye.
pub(crate) fn short(digest: &str) -> String {
    digest.trim_start_matches("sha256:").chars().take(8).collect()
}

fn describe(reply: &Reply) -> String {
    let code = reply.code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
    let replayed = if reply.replayed { " replayed" } else { "" };
    let result = reply.result.as_ref().map(|result| format!(" result {}", short(&result.digest)));
    format!(
        "request {} answered {} {:?}{code}{replayed}{}",
        reply.request,
        reply.status,
        reply.answer,
        result.unwrap_or_default()
    )
}
