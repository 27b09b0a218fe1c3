//! One call of the witness: its effect, and its answer.
//!
//! Owns the order of the two for every manner of misbehaving. Invariant: an answer that something happened goes out after
//! the effect is durable; an answer that nothing happened belongs to an arrival that never has an effect.

use std::{io, sync::Arc, time::Duration};

use placet_testkit::moment::Moment;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    answer,
    control::Manner,
    http::{Reaction, Then},
    log::{Arrival, Seen},
    state::{Applied, Shared},
    tools::{self, ASK, DECLINED, Tool},
};
use crate::history::{Class, canonical::fingerprint};

const TOKEN_META: &str = "dev.placet/idempotency-key";
const KEY_META: &str = "dev.placet/caller-key";
const ATTEMPT_META: &str = "dev.placet/attempt";

/// A call as it came in.
#[derive(Debug)]
pub(super) struct Call {
    id: Value,
    name: String,
    args: Value,
    token: String,
    key: String,
    attempt: u64,
    credential: Option<String>,
}

impl Call {
    pub(super) fn read(message: &Value, id: &Value, credential: Option<&str>) -> Option<Self> {
        let params = message.get("params")?;
        let meta = |name: &str| params.get("_meta").and_then(|meta| meta.get(name));
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            id: id.clone(),
            name: params.get("name")?.as_str()?.to_owned(),
            args: params.get("arguments").cloned().unwrap_or_else(|| json!({})),
            token: text(meta(TOKEN_META)),
            key: text(meta(KEY_META)),
            attempt: meta(ATTEMPT_META).and_then(Value::as_u64).unwrap_or_default(),
            credential: credential.map(str::to_owned),
        })
    }

    /// Performs the call, and returns how to answer it.
    pub(super) async fn take(self, shared: &Arc<Shared>) -> io::Result<Reaction> {
        match (self.name.as_str(), tools::tool(&self.name)) {
            (ASK, _) => Ok(self.asked(shared).await),
            (_, Some(tool)) if tool.class == Class::Read => self.looked(shared).await,
            (_, Some(tool)) => self.change(tool, shared).await,
            (_, None) => Ok(answer::error(&self.id, -32_602, "no such tool")),
        }
    }

    /// Answers a probe for a token.
    async fn asked(&self, shared: &Shared) -> Reaction {
        let token = self.args.get("token").and_then(Value::as_str).unwrap_or_default().to_owned();
        let applied = match shared.known(&token) {
            Some(known) => known.applied.lock().await.clone(),
            None => None,
        };
        let state = if applied.is_some() { "committed" } else { "not_found" };
        shared.log.note(Seen::Asked { token, state: state.to_owned() });
        let mut said = json!({"state": state});
        if let (Some(applied), Some(fields)) = (applied, said.as_object_mut()) {
            fields.insert("result".to_owned(), answer::of_effect(&applied));
        }
        answer::result(&self.id, &answer::of_structured(&said, state))
    }

    async fn looked(&self, shared: &Shared) -> io::Result<Reaction> {
        shared.log.note(Seen::Read { tool: self.name.clone() });
        let said = json!({"args": fingerprint(&self.args), "tool": self.name});
        let result = answer::of_structured(&said, "found");
        let Some(manner) = shared.manner(self.item()) else {
            return Ok(answer::result(&self.id, &result));
        };
        if let Manner::Exit | Manner::ExitBefore = manner {
            return self.die(shared).await;
        }
        self.misbehave(manner, &result).await
    }

    fn item(&self) -> &str {
        self.args.get("item").and_then(Value::as_str).unwrap_or_default()
    }

    /// A call of a tool with effects.
    async fn change(self, tool: &Tool, shared: &Arc<Shared>) -> io::Result<Reaction> {
        let started = Moment::now();
        let arrival = Arrival {
            tool: tool.name.to_owned(),
            class: tool.class,
            arrival: Shared::arrives(&shared.token(&self.token)),
            token: self.token.clone(),
            attempt: self.attempt,
            key: self.key.clone(),
            args: fingerprint(&self.args),
        };
        shared.log.note(Seen::Arrived(arrival.clone()));
        let Some(manner) = shared.manner(self.item()) else {
            let applied = shared.apply(&arrival, started).await?;
            return Ok(answer::result(&self.id, &answer::of_effect(&applied)));
        };
        let (token, how) = (arrival.token.clone(), format!("{manner:?}"));
        shared.log.note(Seen::Misbehaved { token, manner: how });
        if let Some(without) = self.without_effect(manner, &arrival, shared).await? {
            return Ok(without);
        }
        if let Manner::DelayedEffect { ms } = manner {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                sleep(Duration::from_millis(ms)).await;
                shared.apply(&arrival, started).await
            });
            return Ok(Reaction::nothing(Then::Reset));
        }
        if let Manner::Slow { ms } = manner {
            sleep(Duration::from_millis(ms)).await;
        }
        let applied = shared.apply(&arrival, started).await?;
        if manner == Manner::Exit {
            return self.die(shared).await;
        }
        self.misbehave(manner, &self.result_of(manner, &applied)).await
    }

    /// The answer for a manner that prevents the effect.
    async fn without_effect(
        &self,
        manner: Manner,
        arrival: &Arrival,
        shared: &Shared,
    ) -> io::Result<Option<Reaction>> {
        let refused = || shared.log.durable(Seen::Refused(arrival.clone()));
        Ok(match manner {
            Manner::Hang { ms } => {
                sleep(Duration::from_millis(ms)).await;
                Some(Reaction::nothing(Then::Close))
            }
            Manner::RefuseBefore => {
                refused().await?;
                Some(answer::error(&self.id, DECLINED, "the item is not acceptable"))
            }
            Manner::Error => {
                refused().await?;
                Some(answer::result(&self.id, &answer::of_failure()))
            }
            Manner::ExitBefore => Some(self.die(shared).await?),
            Manner::Slow { .. }
            | Manner::HangThen { .. }
            | Manner::ResetAfter { .. }
            | Manner::FailAfterEffect { .. }
            | Manner::Truncated
            | Manner::Twice
            | Manner::Late { .. }
            | Manner::RefuseAfterEffect
            | Manner::DelayedEffect { .. }
            | Manner::Exit
            | Manner::Huge { .. }
            | Manner::Leak => None,
        })
    }

    fn result_of(&self, manner: Manner, applied: &Applied) -> Value {
        let mut result = answer::of_effect(applied);
        let text = if let Manner::Huge { bytes } = manner {
            "x".repeat(usize::try_from(bytes).unwrap_or_default())
        } else if manner == Manner::Leak {
            format!("it came with {}", self.credential.as_deref().unwrap_or("nothing"))
        } else {
            return result;
        };
        if let Some(content) = result.get_mut("content") {
            *content = json!([{"type": "text", "text": text}]);
        }
        result
    }

    /// Ends the process; this connection gets no further answer.
    async fn die(&self, shared: &Shared) -> io::Result<Reaction> {
        shared.exit();
        std::future::pending().await
    }

    async fn misbehave(&self, manner: Manner, result: &Value) -> io::Result<Reaction> {
        Ok(match manner {
            Manner::HangThen { ms } | Manner::Hang { ms } => {
                sleep(Duration::from_millis(ms)).await;
                Reaction::nothing(Then::Close)
            }
            Manner::Late { ms } => {
                sleep(Duration::from_millis(ms)).await;
                answer::result(&self.id, result)
            }
            Manner::ResetAfter { bytes } => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                let whole = answer::result(&self.id, result);
                // A whole answer would not be cut.
                let bytes = bytes.min(whole.bytes.len().saturating_sub(1));
                whole.cut(bytes, Then::Reset)
            }
            Manner::FailAfterEffect { status } => Reaction::empty(status),
            Manner::Truncated => answer::truncated(&self.id, result),
            Manner::Twice => answer::twice(&self.id, result),
            Manner::DelayedEffect { .. } => Reaction::nothing(Then::Reset),
            Manner::RefuseBefore => answer::error(&self.id, DECLINED, "the item is not acceptable"),
            Manner::RefuseAfterEffect => {
                answer::error(&self.id, -32_602, "the result does not fit the output schema")
            }
            Manner::Error => answer::result(&self.id, &answer::of_failure()),
            Manner::Slow { .. }
            | Manner::Exit
            | Manner::ExitBefore
            | Manner::Huge { .. }
            | Manner::Leak => answer::result(&self.id, result),
        })
    }
}
