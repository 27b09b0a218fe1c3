//! Tokens of calls that wait: in memory, until they expire.
//!
//! Owns what is kept of a held call's caller beside its record, and which held calls wait for their caller to come back with a new token.
//! In the ledger there is nothing of this: after a restart every such call waits. Invariant: no token is kept past its own time.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use placet_broker::{CallTokens, SubjectName};
use placet_identity::SubjectToken;
use placet_types::{clock::Timestamp, digest::Digest, ids::RecordId};

use crate::call::Identity;

/// How many held calls have their tokens kept; the caller of one beyond that has to come back.
const KEPT_MAX: usize = 100_000;

/// Tokens of held calls.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    of: HashMap<RecordId, Waiting>,
    /// One copy of a token for all calls that were made with it.
    known: HashMap<Digest, SubjectToken>,
    /// Calls that cannot go on without their caller.
    lacking: HashSet<RecordId>,
}

#[derive(Debug)]
struct Waiting {
    tokens: CallTokens,
    /// Who came back, where somebody did: with fresher authority than is recorded.
    renewed: Option<Box<Identity>>,
}

impl Tokens {
    /// Keeps the tokens of a call that is held.
    pub(crate) fn keep(&self, record_id: RecordId, tokens: &CallTokens) {
        self.lock().put(record_id, tokens.clone(), None);
    }

    /// The caller of a held call is back, with tokens that are kept if the call needs them.
    pub(crate) fn renew(&self, record_id: RecordId, identity: &Identity, is_needed: bool) {
        let mut kept = self.lock();
        kept.lacking.remove(&record_id);
        if let Some(tokens) = identity.tokens.clone().filter(|_| is_needed) {
            kept.put(record_id, tokens, Some(Box::new(identity.clone())));
        }
    }

    /// The tokens that a held call was made with, or renewed with.
    pub(crate) fn of(&self, record_id: RecordId) -> Option<CallTokens> {
        self.lock().of.get(&record_id).map(|waiting| waiting.tokens.clone())
    }

    /// Who came back for a held call.
    pub(crate) fn renewed(&self, record_id: RecordId) -> Option<Identity> {
        self.lock().of.get(&record_id)?.renewed.as_deref().cloned()
    }

    /// A held call cannot go on until its caller is back with a new token: the one that it was tried with did not do. Answers whether it is
    /// so, or the caller has been back meanwhile.
    pub(crate) fn lacks(&self, record_id: RecordId, tried: Option<Digest>) -> bool {
        let mut kept = self.lock();
        let there = kept.of.get(&record_id).map(|waiting| waiting.tokens.subject.digest());
        if tried.is_some() && there.is_some() && there != tried {
            return false;
        }
        kept.of.remove(&record_id);
        if kept.lacking.len() < KEPT_MAX {
            kept.lacking.insert(record_id);
        }
        true
    }

    /// Whether a held call waits for its caller.
    pub(crate) fn is_lacking(&self, record_id: RecordId) -> bool {
        self.lock().lacking.contains(&record_id)
    }

    /// A call is over, or on its way.
    pub(crate) fn forget(&self, record_id: RecordId) {
        let mut kept = self.lock();
        kept.of.remove(&record_id);
        kept.lacking.remove(&record_id);
    }

    /// Drops the tokens of a subject.
    pub(crate) fn revoke(&self, name: &SubjectName) {
        let mut kept = self.lock();
        kept.of.retain(|_, waiting| {
            let subject = &waiting.tokens.subject;
            subject.issuer() != name.issuer || subject.subject() != name.subject
        });
        kept.tidy();
    }

    /// Drops what has expired.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let mut kept = self.lock();
        kept.of.retain(|_, waiting| waiting.tokens.subject.expires_at() > now);
        kept.tidy();
    }

    // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn put(&mut self, record_id: RecordId, tokens: CallTokens, renewed: Option<Box<Identity>>) {
        if self.of.len() >= KEPT_MAX && !self.of.contains_key(&record_id) {
            return;
        }
        let tokens = CallTokens {
            subject: self.one_copy(tokens.subject),
            actor: tokens.actor.map(|actor| self.one_copy(actor)),
        };
        self.of.insert(record_id, Waiting { tokens, renewed });
    }

    fn one_copy(&mut self, token: SubjectToken) -> SubjectToken {
        self.known.entry(token.digest()).or_insert(token).clone()
    }

    /// Drops copies that no call has any more.
    fn tidy(&mut self) {
        let tokens = self.of.values().flat_map(|waiting| {
            std::iter::once(&waiting.tokens.subject).chain(&waiting.tokens.actor)
        });
        let used: HashSet<Digest> = tokens.map(SubjectToken::digest).collect();
        self.known.retain(|digest, _| used.contains(digest));
        self.known.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use placet_broker::CallTokens;
    use placet_identity::{SubjectToken, TokenFacts};
    use placet_types::{clock::Timestamp, digest::Digest, ids::RecordId};

    use super::Tokens;

    fn tokens(text: &str) -> CallTokens {
        let facts = TokenFacts {
            issuer: "https://idp.example".to_owned(),
            subject: "alice".to_owned(),
            client: None,
            expires_at: Timestamp::from_ms(1_000),
        };
        CallTokens { subject: SubjectToken::seal(text, facts), actor: None }
    }

    #[test]
    fn a_token_that_came_while_the_old_one_was_tried_is_not_lost() {
        let kept = Tokens::default();
        let record: RecordId =
            serde_json::from_value(serde_json::json!(Digest::of(b"record").to_string())).unwrap();
        let old = tokens("old");
        kept.keep(record, &old);
        kept.keep(record, &tokens("new"));
        assert!(!kept.lacks(record, Some(old.subject.digest())));
        assert!(!kept.is_lacking(record));
        let there = kept.of(record).unwrap().subject.digest();
        assert_eq!(there, Digest::of(b"new"));
        assert!(kept.lacks(record, Some(there)));
        assert!(kept.is_lacking(record) && kept.of(record).is_none());
        kept.forget(record);
        assert!(!kept.is_lacking(record));
    }
}
