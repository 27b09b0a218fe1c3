//! The messages that people are to be sent, as rows.
//!
//! Owns the two tables' statements. A message is JSON in one column. Not here: who sends it (`placet-notify`).

use std::collections::BTreeMap;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Row as _, query};

use placet_ledger::outbox::{MessageKey, Outbox, OutboxChange, WaitingMessage};
use placet_ledger::store::StoreError;
use serde_json::Value;

use super::batch::Piece;
use super::error::Hitch;
use super::pool::Pool;
use super::read::{all, one};
use super::rows::{self, json};

/// Writes a batch's changes to the outbox.
pub(super) async fn put(connection: &mut PgConnection, pieces: &[&Piece]) -> Result<(), Hitch> {
    let changes: Vec<&OutboxChange> =
        pieces.iter().filter_map(|piece| piece.changes.outbox.as_deref()).collect();
    if let Some(read_to) = changes.iter().rev().find_map(|change| change.read_to.as_ref()) {
        query(
            "INSERT INTO placet.outbox_read (id, record) VALUES (1, $1) \
             ON CONFLICT (id) DO UPDATE SET record = excluded.record",
        )
        .bind(json(read_to)?)
        .execute(&mut *connection)
        .await?;
    }
    // By key, as every node does it; a message sent within the same batch is not written.
    let mut messages: BTreeMap<&MessageKey, Option<&Value>> = BTreeMap::new();
    for change in changes {
        messages.extend(change.put.iter().map(|message| (&message.key, Some(&message.body))));
        messages.extend(change.done.iter().map(|key| (key, None)));
    }
    let (mut channels, mut of, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let (mut gone_channels, mut gone_of) = (Vec::new(), Vec::new());
    for (key, body) in messages {
        let (channel, about) = (key.channel.as_str(), key.of.as_str());
        if let Some(body) = body {
            channels.push(channel);
            of.push(about);
            records.push(json(body)?);
        } else {
            gone_channels.push(channel);
            gone_of.push(about);
        }
    }
    if !records.is_empty() {
        query(
            "INSERT INTO placet.outbox (channel, about, record) SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) \
             ON CONFLICT (channel, about) DO UPDATE SET record = excluded.record",
        )
        .bind(channels)
        .bind(of)
        .bind(records)
        .execute(&mut *connection)
        .await?;
    }
    if !gone_of.is_empty() {
        query(
            "DELETE FROM placet.outbox AS o USING unnest($1::text[], $2::text[]) AS n (channel, about) \
             WHERE o.channel = n.channel AND o.about = n.about",
        )
        .bind(gone_channels)
        .bind(gone_of)
        .execute(connection)
        .await?;
    }
    Ok(())
}

/// All waiting messages, and how far the logs were read.
pub(super) async fn read(pool: &Pool) -> Result<Outbox, StoreError> {
    let found = pool.rows(|| query("SELECT record FROM placet.outbox_read")).await?;
    let read_to = one(&found, rows::parsed)?;
    let found = pool
        .rows(|| query("SELECT channel, about, record FROM placet.outbox ORDER BY channel, about"));
    Ok(Outbox { read_to, waiting: all(&found.await?, of_row)? })
}

fn of_row(row: &PgRow) -> Result<WaitingMessage, String> {
    let column = |name| row.try_get::<String, _>(name).map_err(|error| error.to_string());
    let channel =
        column("channel")?.parse().map_err(|_invalid| "a channel has no name".to_owned())?;
    let key = MessageKey { channel, of: column("about")? };
    Ok(WaitingMessage { key, body: rows::parsed(row)? })
}
