//! The `ledger:` part of `placet.yaml`: where records are kept, for how long, and how their log is sealed.
//!
//! Owns the keys and their conversion into [`LedgerPlan`]. Invariant: the password of a database is in no file, and is never shown.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use placet_engine::settings::{LedgerSettings, Retention, TenantRetention};
use placet_ledger::proof::note::NoteName;
use placet_store::postgres::{DatabaseUrl, PostgresConfig};
use placet_types::{bounded::Bounded, ids::TenantId};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::file::SecretFile;

/// Where records are stored, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LedgerFile {
    /// `embedded`: in the data folder, for one process. `postgres://user@host:port,host:port/database`: in a PostgreSQL database that any
    /// number of processes share. `--ledger` overrides it.
    pub(crate) store: String,
    /// The password for the database.
    pub(crate) password: Option<SecretFile>,
    /// The name of this process among those that share the database. A process that starts under a name replaces the one that ran under it
    /// before. Absent: derived from the host name and the data folder.
    pub(crate) node: Option<String>,
    /// How long a process may be silent before another one takes over its work, in milliseconds.
    pub(crate) lease_ms: Bounded<1_000, 600_000>,
    /// The maximum time that a read or write waits for the database, in milliseconds.
    pub(crate) wait_ms: Bounded<100, 60_000>,
    /// Database connections for reads. Writes and the lease have connections of their own.
    pub(crate) connections_max: Bounded<1, 1_000>,
    /// The name of this deployment in signed checkpoints and receipts.
    pub(crate) deployment: String,
    /// The file with the key that signs checkpoints and receipts. Absent: `seal.key` next to the ledger, created at the first start.
    pub(crate) seal_key: Option<PathBuf>,
    /// How often a checkpoint is signed, in seconds. The embedded ledger also makes a snapshot then, if one is due.
    pub(crate) checkpoint_every_s: Bounded<1, 86_400>,
    /// The folder to which segments of the embedded journal move once they are older than `audit_days`. Absent: they stay in place.
    pub(crate) archive: Option<PathBuf>,
    /// How long segments of the embedded journal stay in place if there is an `archive`, in days.
    pub(crate) audit_days: Bounded<0, 36_500>,
    /// The folder for backups of the embedded ledger, which are requested from the admin listener. Absent: it makes none.
    pub(crate) backups: Option<PathBuf>,
    /// The minimum time between two backup requests, in seconds. An earlier request gets `RATE_LIMITED`.
    pub(crate) backup_interval_s: Bounded<0, 86_400>,
    /// How many backups are kept. Once a new one is complete, the oldest are deleted.
    pub(crate) backups_max: Bounded<1, 10_000>,
    /// How many operators must agree before a call with an unknown outcome is sent again: 1 or 2.
    pub(crate) rearm_people: Bounded<1, 2>,
    /// How long results and idempotency keys are kept.
    pub(crate) retention: RetentionFile,
    /// Retention for individual tenants, where it differs from `retention`.
    pub(crate) tenants: BTreeMap<TenantId, TenantRetentionFile>,
}

/// How long results are kept, and how long idempotency keys are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetentionFile {
    /// How long a result is kept, in seconds. A later retry gets `RESULT_EXPIRED`.
    pub(crate) results_s: Bounded<1, RETENTION_S_MAX>,
    /// How long an idempotency key that carries its own age (UUID version 7, ULID) is remembered, in seconds. An older one gets
    /// `KEY_TOO_OLD`. Other keys are remembered forever.
    pub(crate) tombstones_s: Bounded<1, RETENTION_S_MAX>,
}

/// Retention for one tenant. An absent key has the value of `retention`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TenantRetentionFile {
    /// How long a result is kept, in seconds. A later retry gets `RESULT_EXPIRED`.
    pub(crate) results_s: Option<Bounded<1, RETENTION_S_MAX>>,
    /// How long an idempotency key that carries its own age (UUID version 7, ULID) is remembered, in seconds.
    pub(crate) tombstones_s: Option<Bounded<1, RETENTION_S_MAX>>,
}

const DAY_S: u64 = 86_400;
/// The longest retention, in seconds.
const RETENTION_S_MAX: u64 = 3_153_600_000;

impl Default for RetentionFile {
    fn default() -> Self {
        Self { results_s: Bounded(30 * DAY_S), tombstones_s: Bounded(400 * DAY_S) }
    }
}

impl Default for LedgerFile {
    fn default() -> Self {
        Self {
            store: EMBEDDED.to_owned(),
            password: None,
            node: None,
            lease_ms: Bounded(15_000),
            wait_ms: Bounded(5_000),
            connections_max: Bounded(16),
            deployment: "placet".to_owned(),
            seal_key: None,
            checkpoint_every_s: Bounded(300),
            archive: None,
            audit_days: Bounded(7 * 365),
            backups: None,
            backup_interval_s: Bounded(60),
            backups_max: Bounded(8),
            rearm_people: Bounded(2),
            retention: RetentionFile::default(),
            tenants: BTreeMap::new(),
        }
    }
}

/// The name of the ledger in the data folder.
const EMBEDDED: &str = "embedded";

/// Which ledger.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// The one in the data folder.
    Embedded,
    /// A database.
    Postgres(Box<PostgresConfig>),
}

/// The ledger as configured.
#[derive(Debug, Clone)]
pub(crate) struct LedgerPlan {
    file: LedgerFile,
    /// The password, or why it is not available.
    password: Option<Result<SecretString, String>>,
    /// The name in checkpoints and receipts.
    pub(crate) deployment: NoteName,
    /// The sealing key's file, where one is named.
    pub(crate) seal_key: Option<PathBuf>,
    /// The archive, where there is one.
    pub(crate) archive: Option<PathBuf>,
    /// The folder of backups, where there is one.
    pub(crate) backups: Option<PathBuf>,
}

impl LedgerPlan {
    /// Reads the section; `password` is the secret that it names, or why that is not available.
    pub(crate) fn read(
        file: LedgerFile,
        base: &Path,
        password: Option<Result<SecretString, String>>,
    ) -> Result<Self, (&'static str, String)> {
        let deployment = NoteName::new(file.deployment.clone())
            .map_err(|error| ("ledger.deployment", error.to_string()))?;
        let seal_key = file.seal_key.as_ref().map(|path| base.join(path));
        let archive = file.archive.as_ref().map(|path| base.join(path));
        let backups = file.backups.as_ref().map(|path| base.join(path));
        let plan = Self { file, password, deployment, seal_key, archive, backups };
        if !matches!(plan.password, Some(Err(_))) {
            plan.choice("check").map_err(|why| ("ledger.store", why))?;
        }
        Ok(plan)
    }

    /// `--ledger` takes precedence over the file.
    pub(crate) fn set_store(&mut self, store: &str) {
        store.clone_into(&mut self.file.store);
    }

    /// Which ledger; `default_node` is the name of this process if none was given.
    ///
    /// # Errors
    /// What is wrong with the address; it quotes no password.
    pub(crate) fn choice(&self, default_node: &str) -> Result<Choice, String> {
        if self.file.store == EMBEDDED {
            return Ok(Choice::Embedded);
        }
        let address = self.with_password()?;
        let url = DatabaseUrl::parse(address.expose_secret()).map_err(|error| error.to_string())?;
        let node = self.file.node.clone().unwrap_or_else(|| default_node.to_owned());
        let mut config = PostgresConfig::new(url, node);
        config.lease = Duration::from_millis(self.file.lease_ms.0);
        config.wait = Duration::from_millis(self.file.wait_ms.0);
        config.connections_max = u32::try_from(self.file.connections_max.0).unwrap_or(u32::MAX);
        Ok(Choice::Postgres(Box::new(config)))
    }

    /// The address with the password in it.
    fn with_password(&self) -> Result<SecretString, String> {
        let address = &self.file.store;
        let Some(password) = &self.password else {
            return Ok(SecretString::from(address.clone()));
        };
        let password = password.as_ref().map_err(|error| format!("`ledger.password`: {error}"))?;
        let (scheme, rest) = address
            .split_once("://")
            .ok_or("it is neither `embedded` nor an address that begins with `postgres://`")?;
        let (user, hosts) =
            rest.split_once('@').ok_or("a password needs a user, `postgres://user@…`")?;
        if user.contains(':') {
            return Err("it has a password already; write it in `ledger.password` only".to_owned());
        }
        let password = password.expose_secret().trim_end_matches(['\r', '\n']);
        let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
        Ok(SecretString::from(format!("{scheme}://{user}:{password}@{hosts}")))
    }

    /// The interval between checkpoints.
    pub(crate) fn checkpoint_every(&self) -> Duration {
        Duration::from_secs(self.file.checkpoint_every_s.0)
    }

    /// The minimum time between two requests for a backup.
    pub(crate) fn backup_interval(&self) -> Duration {
        Duration::from_secs(self.file.backup_interval_s.0)
    }

    /// How many backups are kept.
    pub(crate) fn backups_max(&self) -> usize {
        self.file.backups_max.size()
    }

    /// For how long segments stay in place.
    pub(crate) fn audit_for(&self) -> Duration {
        Duration::from_secs(self.file.audit_days.0.saturating_mul(DAY_S))
    }

    /// The settings for the pipeline.
    pub(crate) fn settings(&self) -> LedgerSettings {
        let ms = |seconds: Bounded<1, RETENTION_S_MAX>| seconds.0.saturating_mul(1_000);
        let RetentionFile { results_s, tombstones_s } = self.file.retention;
        let tenants = self.file.tenants.iter().map(|(tenant, own)| {
            let (results_ms, tombstones_ms) = (own.results_s.map(ms), own.tombstones_s.map(ms));
            (tenant.clone(), TenantRetention { results_ms, tombstones_ms })
        });
        let tenants: BTreeMap<_, _> = tenants.collect();
        let default = Retention::default();
        let shortest =
            tenants.values().filter_map(|own| own.results_ms).fold(ms(results_s), u64::min);
        // The shorter the retention, the more often sweeps have to run.
        let sweep_every_ms = shortest.div_euclid(4).clamp(250, default.sweep_every_ms);
        LedgerSettings {
            rearm_people: u8::try_from(self.file.rearm_people.0).unwrap_or(2),
            retention: Retention {
                results_ms: ms(results_s),
                tombstones_ms: ms(tombstones_s),
                tenants,
                sweep_every_ms,
                ..default
            },
            ..LedgerSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use secrecy::{ExposeSecret as _, SecretString};

    use super::{Choice, LedgerFile, LedgerPlan};

    fn plan(store: &str, password: Option<&str>) -> Result<LedgerPlan, (&'static str, String)> {
        let file = LedgerFile { store: store.to_owned(), ..LedgerFile::default() };
        LedgerPlan::read(file, Path::new(""), password.map(|text| Ok(SecretString::from(text))))
    }

    #[test]
    fn the_default_is_the_ledger_in_the_data_folder() {
        let plan = plan("embedded", None).unwrap();
        assert!(matches!(plan.choice("here"), Ok(Choice::Embedded)));
    }

    #[test]
    fn a_password_goes_into_the_address_and_shows_nowhere() {
        let plan = plan("postgres://placet@db.example/ledger", Some("s3cret/@:ü\n")).unwrap();
        let made = plan.with_password().unwrap();
        assert_eq!(
            made.expose_secret(),
            "postgres://placet:s3cret%2F%40%3A%C3%BC@db.example/ledger"
        );
        let Ok(Choice::Postgres(config)) = plan.choice("here") else { panic!("not a database") };
        assert_eq!(config.node, "here");
        assert!(!format!("{plan:?} {config:?}").contains("s3cret"));
    }

    #[test]
    fn retention_of_a_tenant_differs_only_in_what_is_said() {
        let text =
            "retention: { results_s: 8, tombstones_s: 90 }\ntenants: { acme: { results_s: 2 } }";
        let file: LedgerFile = crate::yaml::parse(Path::new("placet.yaml"), text).unwrap();
        let retention = LedgerPlan::read(file, Path::new(""), None).unwrap().settings().retention;
        assert_eq!((retention.results_ms, retention.tombstones_ms), (8_000, 90_000));
        let own = retention.tenants.values().next().unwrap();
        assert_eq!((own.results_ms, own.tombstones_ms), (Some(2_000), None));
        assert_eq!(retention.sweep_every_ms, 500);
        let text = "tenants: { acme: { results_s: 0 } }";
        let wrong = crate::yaml::parse::<LedgerFile>(Path::new("placet.yaml"), text).unwrap_err();
        assert_eq!(wrong.key.as_deref(), Some("tenants.acme.results_s"), "{wrong}");
    }

    #[test]
    fn an_address_that_cannot_be_used_names_its_key_and_quotes_no_password() {
        for (store, password) in [
            ("sqlite:///x", None),
            ("postgres://db.example/ledger", Some("s3cret")),
            ("postgres://placet:s3cret@db.example/ledger", Some("s3cret")),
            ("somewhere", Some("s3cret")),
            ("", None),
        ] {
            let (key, why) = plan(store, password).unwrap_err();
            assert_eq!(key, "ledger.store");
            assert!(!why.contains("s3cret"), "{why}");
        }
    }
}
