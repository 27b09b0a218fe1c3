//! The sender: reads the log, puts notices into the outbox, sends them, and stores the results.
//!
//! Owns the turns. Does not own how a message is delivered ([`crate::sender`]). Invariants: only the node that leads sends; nothing is
//! taken as sent before the ledger says so; whatever fails here is tried again or given up visibly, and holds no call up.

mod state;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    log::AuditLog,
    outbox::{MessageKey, OutboxChange},
    store::{Store, StoreError},
};
use placet_telemetry::metrics::Metrics;
use placet_types::ids::ChannelName;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    config::{NotifyConfig, Show},
    ledger_reader::{LedgerBook, LedgerReader},
    message::{Content, Letter, Message, Scope},
    notice::About,
    outbox::{After, Failure, Taken},
    sender::MessageSender,
};
use state::State;

/// The longest pause after the ledger was unavailable.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The sender.
#[derive(Debug)]
pub struct Notifier {
    config: Arc<NotifyConfig>,
    book: Arc<dyn LedgerReader>,
    sender: Arc<dyn MessageSender>,
    metrics: Metrics,
    state: Option<State>,
    sends: JoinSet<Result<(), Failure>>,
    sending: HashMap<Id, (ChannelName, u64)>,
    unkept: VecDeque<Unkept>,
}

/// What the ledger still has to store.
type Unkept = (OutboxChange, Option<AuditEvent>);

impl Notifier {
    /// A sender over this ledger that has read nothing of it yet.
    pub fn new(
        config: Arc<NotifyConfig>,
        store: Arc<dyn Store>,
        log: Arc<dyn AuditLog>,
        sender: Arc<dyn MessageSender>,
        metrics: Metrics,
    ) -> Self {
        Self::reading(config, Arc::new(LedgerBook { store, log }), sender, metrics)
    }

    pub(crate) fn reading(
        config: Arc<NotifyConfig>,
        book: Arc<dyn LedgerReader>,
        sender: Arc<dyn MessageSender>,
        metrics: Metrics,
    ) -> Self {
        Self {
            config,
            book,
            sender,
            metrics,
            state: None,
            sends: JoinSet::new(),
            sending: HashMap::new(),
            unkept: VecDeque::new(),
        }
    }

    /// Sends until the ledger has stopped or belongs to another node, and answers which.
    pub async fn run(mut self) -> StoreError {
        let poll = Duration::from_millis(self.config.poll_ms);
        let mut pause = poll;
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                pause = match self.turn().await {
                    Ok(more) if more => Duration::ZERO,
                    Ok(_) => poll,
                    Err(
                        error @ (StoreError::Stopped(_)
                        | StoreError::Uncertain(_)
                        | StoreError::Fenced),
                    ) => {
                        return error;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the ledger could not be asked for what people are to be told");
                        pause.saturating_mul(2).clamp(poll, PAUSE_MAX)
                    }
                };
                next = Instant::now().checked_add(pause).unwrap_or_else(Instant::now);
            }
            tokio::select! {
                () = sleep_until(next) => {}
                Some(done) = self.sends.join_next_with_id() => {
                    self.ended(done);
                    if let Err(error) = self.keep().await {
                        tracing::warn!(%error, "what was sent could not be kept yet");
                    }
                    self.send();
                }
            }
        }
    }

    /// One reading of the chain, and everything that follows from it. Returns whether there is more to read.
    ///
    /// # Errors
    /// [`StoreError`] when the ledger is unavailable; the next turn begins where this one did.
    pub async fn turn(&mut self) -> Result<bool, StoreError> {
        self.keep().await?;
        if !self.book.leads().await? {
            // Another node knows, or will learn, what was sent here.
            self.sends.abort_all();
            self.sending.clear();
            self.state = None;
            return Ok(false);
        }
        let mut state = match self.state.take() {
            Some(state) => state,
            None => State::recalled(Arc::clone(&self.config), self.book.as_ref()).await?,
        };
        let read = state.read_on(self.book.as_ref()).await;
        let overflow = state.overflow();
        self.unkept.extend(state.change().map(|change| (change, None)));
        self.state = Some(state);
        for (channel, message) in overflow {
            tracing::warn!(%channel, "a message is given up: too many wait for the channel");
            self.metrics.count_notification(channel.as_str(), "given_up");
            self.unkept.push_back(ended_with(&channel, &message, false));
        }
        self.keep().await?;
        self.send();
        read
    }

    /// Sends what is due.
    fn send(&mut self) {
        let now = self.book.now();
        let Some(state) = &mut self.state else { return };
        for (name, outbox) in &mut state.outboxes {
            outbox.gather(now);
            for taken in outbox.take(now) {
                let key = taken.key;
                let shows = self.config.channels.get(name).map(|channel| channel.show);
                let delivery = deliver(
                    Arc::clone(&self.book),
                    Arc::clone(&self.sender),
                    name.clone(),
                    taken,
                    shows == Some(Show::Preview),
                );
                let task = self.sends.spawn(delivery);
                self.sending.insert(task.id(), (name.clone(), key));
            }
            self.metrics.set_notifications_waiting(name.as_str(), outbox.len());
        }
    }

    /// An attempt has ended.
    fn ended(&mut self, done: Result<(Id, Result<(), Failure>), JoinError>) {
        let (id, result) = match done {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(Failure::passing("the attempt was broken off"))),
        };
        let Some((channel, key)) = self.sending.remove(&id) else { return };
        let now = self.book.now();
        let Some(state) = &mut self.state else { return };
        let Some(outbox) = state.outboxes.get_mut(&channel) else { return };
        let why = result.as_ref().err().map(|failure| failure.why.clone());
        let (word, note) = match outbox.done(key, result, now) {
            None => return,
            Some(After::Again) => ("failed", None),
            Some(After::Sent(message)) => ("sent", Some(ended_with(&channel, &message, true))),
            Some(After::GivenUp(message)) => {
                ("given_up", Some(ended_with(&channel, &message, false)))
            }
        };
        if let Some(why) = why {
            tracing::warn!(%channel, result = word, why, "a message to people was not taken");
        }
        self.metrics.count_notification(channel.as_str(), word);
        self.unkept.extend(note);
    }

    /// Has the ledger store what it does not have yet.
    async fn keep(&mut self) -> Result<(), StoreError> {
        while let Some((change, event)) = self.unkept.front() {
            self.book.keep(change.clone(), event.clone()).await?;
            self.unkept.pop_front();
        }
        Ok(())
    }

    /// Waits for all running attempts; for tests.
    #[cfg(test)]
    pub(crate) async fn settle(&mut self) {
        while let Some(done) = self.sends.join_next_with_id().await {
            self.ended(done);
            self.keep().await.unwrap();
            self.send();
        }
    }
}

async fn deliver(
    book: Arc<dyn LedgerReader>,
    sender: Arc<dyn MessageSender>,
    channel: ChannelName,
    taken: Taken,
    shows_arguments: bool,
) -> Result<(), Failure> {
    let Taken { message, .. } = taken;
    let preview = match &message.content {
        Content::One(told) if shows_arguments && told.scope == Scope::Full => {
            match &told.notice.about {
                About::Call(call) if told.notice.kind.asks() => {
                    // The message is still useful without them.
                    book.preview(&told.notice.tenant, call.proposal).await.ok()
                }
                About::Call(_) | About::Directive(_) | About::Credential(_) => None,
            }
        }
        Content::One(_) | Content::Digest(_) | Content::Test => None,
    };
    let letter = Letter { message, preview };
    sender.deliver(&channel, &letter, book.now()).await.map(|_answer| ())
}

/// What is kept of a message that was sent or given up.
fn ended_with(channel: &ChannelName, message: &Message, is_sent: bool) -> Unkept {
    let mut event = AuditEvent::new(AuditKind::Notified);
    let told = message.told().iter();
    let done = told.map(|told| MessageKey { channel: channel.clone(), of: told.notice.of.clone() });
    let change = OutboxChange { done: done.collect(), ..OutboxChange::default() };
    let what = match message.told() {
        [told] => {
            event.tenant = Some(told.notice.tenant.clone());
            match &told.notice.about {
                About::Call(call) => {
                    event.call_id = Some(call.call_id.clone());
                    event.approval_id = Some(call.approval_id.clone());
                    event.capability = Some(call.operation.clone());
                }
                About::Directive(directives) => {
                    event.directives.insert(directives.directive_id.clone());
                }
                About::Credential(credential) => {
                    event.capability.clone_from(&credential.operation);
                }
            }
            told.notice.kind.to_string()
        }
        many => format!("{} messages in one", many.len()),
    };
    let word = if is_sent { "told over" } else { "given up for" };
    event.note = Some(format!("{word} `{channel}`: {what}"));
    (change, Some(event))
}
