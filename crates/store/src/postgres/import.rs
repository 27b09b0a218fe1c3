//! Importing another store's ledger into an empty database.
//!
//! Owns the one transaction of an import. Not here: the form of an export (`crate::transfer`), reading it (`transfer`). Invariants: the
//! chain of every log is checked; each record is named by the entry that made it what it is; the database stays empty unless
//! the import was finished; epochs that were used elsewhere are not used again.

use std::collections::BTreeMap;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, query, raw_sql};

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::audit::subjects_of;
use placet_ledger::directive::Directive;
use placet_ledger::log::LogEntry;
use placet_ledger::proof::tiles::Appender;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::RunRecord;
use placet_ledger::store::{EffectChange, StoreError};
use placet_types::digest::Digest;
use placet_types::ids::{RecordId, TenantId};

use super::config::PostgresConfig;
use super::connect::{Connector, Purpose};
use super::directives;
use super::error::{Hitch, OpenError};
use super::limits::{self, Kind, Limits};
use super::log::no_log;
use super::rows::{self, EffectRows, Entry, column};
use super::snapshot::of_sql;
use super::state::Head;
use super::{schema, write};
use crate::embedded::decode_entry;
use crate::seal::entry_hash;
use crate::transfer::ExportedLog;

/// Where the identifiers of logs begin that belong to no single epoch: no epoch will ever get that high.
const FOREIGN: u64 = 1 << 62;

/// For how many leases an import may be silent, since it may read the export from anywhere.
const SILENT_LEASES: u32 = 4;

/// A log that is being written.
#[derive(Debug)]
struct ImportedLog {
    id: u64,
    head: Head,
    at_ms: i64,
    tree: Appender,
}

/// An import in one transaction. Dropping it before [`Import::finish`] leaves the database as it was.
#[derive(Debug)]
pub(super) struct Import {
    connection: PgConnection,
    logs: BTreeMap<String, ImportedLog>,
    /// The highest epoch that anything names.
    epoch_max: u64,
}

fn of_hitch(hitch: Hitch) -> StoreError {
    match hitch {
        Hitch::Split(error) | Hitch::Stop(error) => error,
        Hitch::Again => StoreError::Conflict,
        Hitch::Full => StoreError::NoSpace,
        Hitch::Busy(why) | Hitch::Away(why) => StoreError::Unreachable(why),
    }
}

/// The epoch whose log has this name.
fn epoch_of(log: &str) -> Option<u64> {
    let digits = log.strip_prefix("epoch-")?;
    digits.parse().ok().filter(|epoch: &u64| epoch.to_string() == digits && *epoch < FOREIGN)
}

impl Import {
    /// Begins; the tables are made where they are missing. Refused where nodes have used the database.
    pub(super) async fn begin(config: &PostgresConfig) -> Result<Self, OpenError> {
        config.check()?;
        let connector = Connector::new(config.url.clone(), config.wait);
        let connected = connector.connect(Purpose::Writing).await;
        let mut connection = connected.map_err(|error| error.into_open(&config.url))?;
        schema::make(&mut connection, config).await?;
        let refused = || OpenError::refused("take an import");
        let silence = config.lease.saturating_mul(SILENT_LEASES);
        let limits = Limits { lock: config.wait, silence, statement: None };
        limits::begin(&mut connection, Kind::Writing, limits).await.map_err(refused())?;
        // The row keeps every start of a node out until the import has ended, or has fallen silent.
        let lock = raw_sql("SELECT 1 FROM placet.ledger WHERE id = 1 FOR UPDATE");
        lock.execute(&mut connection).await.map_err(refused())?;
        let used = query("SELECT epoch FROM placet.epochs LIMIT 1").fetch_optional(&mut connection);
        if used.await.map_err(refused())?.is_some() {
            let why =
                "nodes have used the database already; an import needs an empty one".to_owned();
            return Err(OpenError::Schema { why });
        }
        Ok(Self { connection, logs: BTreeMap::new(), epoch_max: 0 })
    }

    /// Names a log whose entries will come.
    pub(super) fn log(&mut self, name: &str) -> Result<(), StoreError> {
        let place = u64::try_from(self.logs.len()).unwrap_or(u64::MAX);
        let id = epoch_of(name).unwrap_or_else(|| FOREIGN.saturating_add(place));
        if self.logs.contains_key(name) {
            return Err(StoreError::Damaged(format!("there are two logs `{name}`")));
        }
        if id < FOREIGN {
            self.epoch_max = self.epoch_max.max(id);
        }
        let log = ImportedLog { id, head: Head::NONE, at_ms: 0, tree: Appender::default() };
        self.logs.insert(name.to_owned(), log);
        Ok(())
    }

    /// The next entries of a log.
    pub(super) async fn entries(
        &mut self,
        name: &str,
        entries: &[LogEntry],
    ) -> Result<(), StoreError> {
        let log = self.logs.get_mut(name).ok_or_else(|| no_log(name))?;
        let (mut made, mut subjects) = (BTreeMap::new(), Vec::new());
        for entry in entries {
            let follows =
                log.head.seq.checked_add(1) == Some(entry.seq) && log.head.hash == entry.prev;
            if !follows || entry_hash(entry) != entry.hash {
                let why = format!("entry {} of log `{name}` breaks the chain", entry.seq);
                return Err(StoreError::Damaged(why));
            }
            log.head = Head { seq: entry.seq, hash: entry.hash };
            log.at_ms = log.at_ms.max(entry.at_ms);
            log.tree.append(&entry.hash);
            self.epoch_max = self.epoch_max.max(entry.epoch);
            let read = decode_entry(entry.kind, &entry.payload);
            let read = read.map_err(|error| StoreError::Damaged(error.to_string()))?;
            subjects.extend(subjects_of(&read.audit).into_iter().map(|it| (it, entry.seq)));
            for effect in read.effects {
                if let EffectChange::Put(record) = effect {
                    made.insert(record.record_id, (record.rev, entry.seq, entry.at_ms));
                }
            }
        }
        let tiles = log.tree.take();
        write::put_tiles(&mut self.connection, log.id, &tiles).await.map_err(of_hitch)?;
        let id = log.id;
        let put = write::put_entries(&mut self.connection, id, entries, &subjects);
        put.await.map_err(of_hitch)?;
        self.places(id, made).await
    }

    /// Reserves rows for the records that entries made, until the records themselves come. Of several entries the latest counts.
    async fn places(
        &mut self,
        log: u64,
        made: BTreeMap<RecordId, (u64, u64, i64)>,
    ) -> Result<(), StoreError> {
        let (mut ids, mut revs, mut seqs, mut times) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (record_id, (rev, seq, at_ms)) in made {
            ids.push(rows::id_bytes(&record_id));
            revs.push(column(rev));
            seqs.push(column(seq));
            times.push(at_ms);
        }
        let kept = query(
            "INSERT INTO placet.effects AS e (record_id, tenant, call_id, state, is_open, is_settled, rev, updated_ms, epoch, \
               seq, record) \
             SELECT n.record_id, '', '', '', false, false, n.rev, n.at_ms, $1, n.seq, '' \
             FROM unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[]) AS n (record_id, rev, seq, at_ms) \
             ON CONFLICT (record_id) DO UPDATE SET rev = excluded.rev, updated_ms = excluded.updated_ms, \
               epoch = excluded.epoch, seq = excluded.seq \
             WHERE (e.updated_ms, e.rev) <= (excluded.updated_ms, excluded.rev)",
        );
        let kept = kept.bind(column(log)).bind(ids).bind(revs).bind(seqs).bind(times);
        kept.execute(&mut self.connection).await.map(drop).map_err(|error| of_sql(&error))
    }

    /// Effect records, whose entries have come before.
    pub(super) async fn effects(&mut self, records: &[EffectRecord]) -> Result<(), StoreError> {
        let mut rows = EffectRows::default();
        for record in records {
            // The row already names the entry.
            rows.push(record, record.rev, Entry { epoch: 0, seq: 0 }).map_err(of_hitch)?;
            if let Some(attempt) = record.state.attempt() {
                self.epoch_max = self.epoch_max.max(attempt.duty()).max(attempt.epoch);
            }
        }
        rows.fill(&mut self.connection).await.map_err(|hitch| {
            if matches!(hitch, Hitch::Again) {
                let why = "the entries do not come to the records of the export".to_owned();
                return StoreError::Damaged(why);
            }
            of_hitch(hitch)
        })
    }

    /// Records that need no entry: approvals, entries of the approval service, runs.
    pub(super) async fn records(
        &mut self,
        approvals: Vec<ApprovalRecord>,
        entries: Vec<Directive>,
        runs: Vec<RunRecord>,
    ) -> Result<(), Hitch> {
        let rows: Vec<_> = approvals.into_iter().map(|approval| (approval.into(), 0)).collect();
        rows::put_approvals(&mut self.connection, &rows).await?;
        let rows: Vec<_> = entries.into_iter().map(|directive| (directive.into(), 0)).collect();
        directives::put(&mut self.connection, &rows).await?;
        let rows: Vec<_> = runs.into_iter().map(|run| (run.into(), false)).collect();
        rows::put_runs(&mut self.connection, &rows).await
    }

    /// Contents.
    pub(super) async fn contents(&mut self, contents: &[(TenantId, Vec<u8>)]) -> Result<(), Hitch> {
        let contents: Vec<(&str, Digest, &[u8])> = contents
            .iter()
            .map(|(tenant, bytes)| (tenant.as_str(), Digest::of(bytes), bytes.as_slice()))
            .collect();
        write::put_contents(&mut self.connection, contents).await
    }

    /// Ends the import: from here on nodes may start. Where the connection is lost at the very end, the database is either
    /// empty or complete.
    pub(super) async fn finish(mut self, expected: &[ExportedLog]) -> Result<(), StoreError> {
        let as_expected = expected.iter().all(|wanted| {
            self.logs.get(&wanted.log).is_some_and(|log| {
                log.head.seq == wanted.size
                    && (wanted.size == 0 || hex::encode(log.head.hash) == wanted.head)
            })
        });
        if !as_expected {
            let why = "the logs do not end as the export's header says".to_owned();
            return Err(StoreError::Damaged(why));
        }
        self.put_logs().await.map_err(|error| of_sql(&error))?;
        self.put_end().await.map_err(|error| of_sql(&error))?;
        // It is kept: a connection that is not closed in order ends all the same.
        drop(self.connection.close().await);
        Ok(())
    }

    async fn put_end(&mut self) -> Result<(), sqlx::Error> {
        // A row that is still empty was made by an entry and removed by a later one.
        let empty = raw_sql("DELETE FROM placet.effects WHERE record = ''");
        empty.execute(&mut self.connection).await?;
        let ledger = query("UPDATE placet.ledger SET next_epoch = $1 WHERE id = 1");
        let next = column(self.epoch_max.saturating_add(1));
        ledger.bind(next).execute(&mut self.connection).await?;
        raw_sql("COMMIT").execute(&mut self.connection).await.map(drop)
    }

    async fn put_logs(&mut self) -> Result<(), sqlx::Error> {
        for (name, log) in &self.logs {
            query(
                "INSERT INTO placet.epochs (epoch, log, node, started_ms, lease_until, closed_ms, policy_epoch, head_seq, \
                   head_hash, head_at_ms, root, lease_ms) \
                 VALUES ($1, $2, 'imported', $3, clock_timestamp(), $3, 0, $4, $5, $3, $6, 1)",
            )
            .bind(column(log.id))
            .bind(name)
            .bind(log.at_ms)
            .bind(column(log.head.seq))
            .bind(log.head.hash.as_slice())
            .bind(log.tree.frontier().root().as_bytes().as_slice())
            .execute(&mut self.connection)
            .await?;
        }
        Ok(())
    }
}
