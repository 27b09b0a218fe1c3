//! Credentials of a running engine: what is taken back.
//!
//! Owns what an operator's word means for tokens in memory and for what was minted with them. Mints nothing.

use placet_broker::{BrokerFigures, SubjectName};

use super::Engine;

impl Engine {
    /// Drops everything that was minted for a subject and the tokens of its calls that wait, and exchanges its tokens no more for as long
    /// as any of them can live. Its held calls stay held. Says how many credentials were dropped.
    pub fn revoke_subject(&self, subject: &SubjectName) -> usize {
        let dropped = self.context.broker.revoke(subject);
        self.context.tokens.revoke(subject);
        tracing::warn!(issuer = %subject.issuer, subject = %subject.subject, dropped, "a subject's tokens are not exchanged any more");
        dropped
    }

    /// How often credentials were minted, reused and refused.
    #[must_use]
    pub fn credential_figures(&self) -> BrokerFigures {
        self.context.broker.figures()
    }
}
