//! Discreet connections: what a target was given as a secret does not come back in what it says.
//!
//! Owns the removal of a contract's secrets from answers, errors and probes, before anything of them is recorded (I15, TM-19). A tool
//! that echoes its headers or its environment is common; what it echoes would stand in the ledger for as long as results are kept.
//! Not here: secrets of other contracts, which this target never had.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, Inquiry},
    outcome::{AdapterError, Outcome, Probe},
    scrub::Scrub,
};
use placet_identity::Secrets;
use placet_types::contract::{
    Contract, LiveTool,
    file::{EnvValue, TransportFile},
};
use secrecy::{ExposeSecret as _, SecretString};

/// A connector whose connections are discreet.
#[derive(Debug)]
pub(crate) struct DiscreetConnector {
    inner: Arc<dyn Connector>,
    secrets: Arc<Secrets>,
}

impl DiscreetConnector {
    pub(crate) fn new(inner: Arc<dyn Connector>, secrets: Arc<Secrets>) -> Self {
        Self { inner, secrets }
    }
}

#[async_trait]
impl Connector for DiscreetConnector {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        let names = secrets_of(&contract);
        let given = Given { names, secrets: Arc::clone(&self.secrets), values: Mutex::default() };
        // Before and after: a child that is started in between may have been given either.
        drop(given.remember());
        let contract_has_none = contract.credential.is_none();
        let inner = self.inner.connect(contract).await;
        let scrub = given.scrub();
        let inner = inner.map_err(|error| scrub.error(error))?;
        if given.names.is_empty() && contract_has_none {
            return Ok(inner);
        }
        Ok(Box::new(Discreet { inner, given }))
    }
}

/// The names of the secrets that a contract's target is given.
fn secrets_of(contract: &Contract) -> Vec<String> {
    let credential = contract.credential.iter().filter_map(|credential| credential.secret.as_ref());
    credential.chain(in_environment(contract)).cloned().collect()
}

/// The names of the secrets in the environment of a contract's child process.
pub(crate) fn in_environment(contract: &Contract) -> Vec<&String> {
    match &contract.transport {
        TransportFile::McpStdio { env, .. } => env
            .values()
            .filter_map(|value| match value {
                EnvValue::Secret { secret } => Some(secret),
                EnvValue::Literal(_) => None,
            })
            .collect(),
        TransportFile::Internal { .. } | TransportFile::McpHttp { .. } => Vec::new(),
    }
}

/// A connection to a target that was given secrets.
#[derive(Debug)]
struct Discreet {
    inner: Box<dyn Adapter>,
    given: Given,
}

/// How many values of secrets are remembered of a connection: those of the first reading and the newest ones.
const VALUES_MAX: usize = 64;

/// What a target was given: a child has the values in its environment with which it was started, however often they are rotated since.
#[derive(Debug)]
struct Given {
    names: Vec<String>,
    secrets: Arc<Secrets>,
    values: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    values: Vec<SecretString>,
    /// What looks for them; none after one was added.
    scrub: Option<Arc<Scrub>>,
}

impl Given {
    /// Notes what the target may have been given so far. Nothing is read: what nobody has read was not given to anybody either.
    fn remember(&self) -> MutexGuard<'_, Values> {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        let mut known = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let Values { values, scrub } = &mut *known;
        for value in self.names.iter().flat_map(|name| self.secrets.known(name)) {
            if values.iter().any(|known| known.expose_secret() == value.expose_secret()) {
                continue;
            }
            if values.len() >= VALUES_MAX {
                values.remove(self.names.len().min(VALUES_MAX.saturating_sub(1)));
            }
            values.push(value);
            *scrub = None;
        }
        known
    }

    fn has(&self, value: &SecretString) -> bool {
        let known = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        known.values.iter().any(|known| known.expose_secret() == value.expose_secret())
    }

    /// What looks for everything that the target may have been given so far.
    fn scrub(&self) -> Arc<Scrub> {
        let mut known = self.remember();
        let Values { values, scrub } = &mut *known;
        Arc::clone(scrub.get_or_insert_with(|| Arc::new(Scrub::of(values.iter()))))
    }
}

#[async_trait]
impl Adapter for Discreet {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        self.inner.discover().await.map_err(|error| self.scrub().error(error))
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        // Before and after: a secret may be rotated while the call is out.
        drop(self.given.remember());
        let own = conditions.credential.as_ref().map(|one| {
            let value = one.value.expose_secret();
            SecretString::from(value.strip_prefix("Bearer ").unwrap_or(value))
        });
        let outcome = self.inner.invoke(dispatch, conditions).await;
        let outcome = self.scrub().outcome(outcome);
        // A static secret is among those already.
        let minted = own.filter(|own| !self.given.has(own));
        minted.map(|own| Scrub::of([&own])).unwrap_or_default().outcome(outcome)
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        drop(self.given.remember());
        match self.inner.probe(inquiry).await {
            Probe::Committed(answer) => Probe::Committed(self.scrub().answer(answer)),
            other @ (Probe::NotFound | Probe::Unknown) => other,
        }
    }

    fn is_alive(&self) -> bool {
        self.inner.is_alive()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

impl Discreet {
    fn scrub(&self) -> Arc<Scrub> {
        self.given.scrub()
    }
}

#[cfg(test)]
mod tests {
    use placet_adapter::scrub::REMOVED;
    use placet_identity::Secrets;

    use super::Given;

    #[test]
    fn a_secret_that_was_rotated_since_is_still_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "first-value").unwrap();
        let source = placet_identity::SecretSource::File(file.clone());
        let secrets = Secrets::new([("key".to_owned(), source)].into());
        let given = Given {
            names: vec!["key".to_owned()],
            secrets: std::sync::Arc::new(secrets),
            values: std::sync::Mutex::default(),
        };
        given.secrets.get("key").unwrap();
        drop(given.scrub());
        std::fs::write(&file, "second-value").unwrap();
        given.secrets.get("key").unwrap();
        let told = given.scrub().text("first-value, second-value".to_owned());
        assert_eq!(told, format!("{REMOVED}, {REMOVED}"));
        assert!(!format!("{given:?}").contains("-value"));
    }
}
