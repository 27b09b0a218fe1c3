//! The messages that people are to be sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use placet_ledger::outbox::{MessageKey, Outbox, OutboxChange, ReadTo, WaitingMessage};
use placet_ledger::store::{Admission, Changes, Durability, Store};
use placet_types::clock::Timestamp;
use serde_json::json;

fn message(channel: &str, of: &str, text: &str) -> WaitingMessage {
    let key = MessageKey { channel: channel.parse().unwrap(), of: of.to_owned() };
    WaitingMessage { key, body: json!({ "text": text }) }
}

fn read_to(seq: u64) -> ReadTo {
    ReadTo { places: BTreeMap::from([("journal".to_owned(), seq)]), as_of: Timestamp::from_ms(7) }
}

async fn keep(store: &dyn Store, change: OutboxChange) {
    let mut changes = Changes::new(Durability::Synced, Admission::Completion);
    changes.outbox = Some(Box::new(change));
    store.commit(changes).await.unwrap();
}

async fn waits(store: &dyn Store) -> Outbox {
    let mut outbox = store.outbox().await.unwrap();
    outbox.waiting.sort_by(|one, other| one.key.cmp(&other.key));
    outbox
}

pub(crate) async fn a_message_is_kept_until_it_is_done(store: Arc<dyn Store>) {
    assert_eq!(waits(&*store).await, Outbox::default());
    // More than fit on one page of a list, over channels of which one name begins like another.
    let mut put: Vec<_> =
        (0..600).map(|number| message("ops", &format!("apr_{number:03}"), "held")).collect();
    put.push(message("ops-eu", "apr_1", "held"));
    let change = OutboxChange { read_to: Some(read_to(4)), put: put.clone(), ..Default::default() };
    keep(&*store, change).await;
    assert_eq!(waits(&*store).await, Outbox { read_to: Some(read_to(4)), waiting: put.clone() });
    // What is done goes, what is new comes, what is put again is as it was put last; how far was read stays where nothing is said.
    let done = put.drain(..598).map(|message| message.key).collect();
    put[0] = message("ops", "apr_598", "voted");
    let change = OutboxChange { put: vec![put[0].clone()], done, ..OutboxChange::default() };
    keep(&*store, change).await;
    assert_eq!(waits(&*store).await, Outbox { read_to: Some(read_to(4)), waiting: put.clone() });
    let done = put.drain(..).map(|message| message.key).collect();
    let change = OutboxChange { read_to: Some(read_to(9)), done, ..OutboxChange::default() };
    keep(&*store, change).await;
    assert_eq!(waits(&*store).await, Outbox { read_to: Some(read_to(9)), waiting: put });
}
