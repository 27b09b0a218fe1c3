//! Discreet connections: what a target was given as a secret does not come back in what it says.
//!
//! Owns the removal of a contract's secrets from answers, errors and probes, before anything of them is recorded (I15, TM-19). A tool
//! that echoes its headers or its environment is common; what it echoes would stand in the ledger for as long as results are kept.
//! Not here: secrets of other contracts, which this target never had.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, Inquiry},
    outcome::{AdapterError, Answer, Outcome, Probe},
};
use placet_identity::Secrets;
use placet_types::contract::{
    Contract, LiveTool,
    file::{EnvValue, TransportFile},
};
use secrecy::ExposeSecret as _;
use serde_json::Value;

/// What stands in the place of a secret.
const REMOVED: &str = "[secret removed]";
/// Shorter values are not looked for: they stand in any text by chance.
const BYTES_MIN: usize = 6;

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
        let inner = self.inner.connect(contract).await;
        let secrets = Arc::clone(&self.secrets);
        let scrub = Scrub::new(&names, &secrets);
        let inner = inner.map_err(|error| scrub.error(error))?;
        if names.is_empty() {
            return Ok(inner);
        }
        Ok(Box::new(Discreet { inner, names, secrets }))
    }
}

/// The names of the secrets that a contract's target is given.
fn secrets_of(contract: &Contract) -> Vec<String> {
    let credential = contract.credential.iter().map(|credential| &credential.secret);
    let in_env = match &contract.transport {
        TransportFile::McpStdio { env, .. } => env
            .values()
            .filter_map(|value| match value {
                EnvValue::Secret { secret } => Some(secret),
                EnvValue::Literal(_) => None,
            })
            .collect(),
        TransportFile::Internal { .. } | TransportFile::McpHttp { .. } => Vec::new(),
    };
    credential.chain(in_env).cloned().collect()
}

/// A connection to a target that was given secrets.
#[derive(Debug)]
struct Discreet {
    inner: Box<dyn Adapter>,
    names: Vec<String>,
    secrets: Arc<Secrets>,
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
        // Read before and after: a secret may be rotated while the call is out.
        let before = self.scrub().and(conditions.credential.as_ref().map(|one| {
            let value = one.value.expose_secret();
            value.strip_prefix("Bearer ").unwrap_or(value).to_owned()
        }));
        let outcome = self.inner.invoke(dispatch, conditions).await;
        self.scrub().outcome(before.outcome(outcome))
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        let before = self.scrub();
        match self.inner.probe(inquiry).await {
            Probe::Committed(answer) => {
                Probe::Committed(self.scrub().answer(before.answer(answer)))
            }
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
    fn scrub(&self) -> Scrub {
        Scrub::new(&self.names, &self.secrets)
    }
}

/// What is looked for; shows nowhere.
struct Scrub(Vec<String>);

impl Scrub {
    /// The secrets of these names as they are now; one that cannot be read was not given to anybody either.
    fn new(names: &[String], secrets: &Secrets) -> Self {
        let values = names.iter().filter_map(|name| secrets.get(name).ok());
        Self(Vec::new()).and(values.map(|value| value.expose_secret().to_owned()))
    }

    fn and(mut self, values: impl IntoIterator<Item = String>) -> Self {
        for value in values.into_iter().filter(|value| value.len() >= BYTES_MIN) {
            self.0.push(STANDARD.encode(&value));
            self.0.push(value);
        }
        self
    }

    fn text(&self, text: String) -> String {
        if !self.0.iter().any(|secret| text.contains(secret.as_str())) {
            return text;
        }
        self.0.iter().fold(text, |text, secret| text.replace(secret.as_str(), REMOVED))
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => Value::Object(
                fields
                    .into_iter()
                    .map(|(name, value)| (self.text(name), self.value(value)))
                    .collect(),
            ),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    fn answer(&self, answer: Answer) -> Answer {
        let Answer { output, mut citations, mut mutations } = answer;
        for citation in &mut citations {
            citation.uri = self.text(std::mem::take(&mut citation.uri));
            citation.title = citation.title.take().map(|title| self.text(title));
        }
        for mutation in &mut mutations {
            mutation.action = self.text(std::mem::take(&mut mutation.action));
            mutation.target = self.text(std::mem::take(&mut mutation.target));
        }
        Answer { output: self.value(output), citations, mutations }
    }

    fn error(&self, error: AdapterError) -> AdapterError {
        match error {
            AdapterError::Unavailable(text) => AdapterError::Unavailable(self.text(text)),
            AdapterError::Drifted(text) => AdapterError::Drifted(self.text(text)),
            AdapterError::CredentialRefused(text) => {
                AdapterError::CredentialRefused(self.text(text))
            }
            AdapterError::Garbled(text) => AdapterError::Garbled(self.text(text)),
            AdapterError::Misconfigured(text) => AdapterError::Misconfigured(self.text(text)),
            AdapterError::Refused(text) => AdapterError::Refused(self.text(text)),
        }
    }

    fn outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Done(answer) => Outcome::Done(self.answer(answer)),
            Outcome::Failed(answer) => Outcome::Failed(self.answer(answer)),
            Outcome::NothingHappened(error) => Outcome::NothingHappened(self.error(error)),
            Outcome::Unknown(reason) => Outcome::Unknown(self.text(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use placet_adapter::outcome::{AdapterError, Answer, Outcome};
    use placet_types::envelope::result::{Citation, Mutation};
    use serde_json::json;

    use super::{REMOVED, Scrub};

    #[test]
    fn a_secret_leaves_no_part_of_an_answer() {
        let scrub = Scrub(Vec::new()).and(["s3cret-value".to_owned(), "tiny".to_owned()]);
        let answer = Answer {
            output: json!({
                "headers": {"authorization": "Bearer s3cret-value", "s3cret-value": [1, "s3cret-value"]},
                "basic": "czNjcmV0LXZhbHVl", "kept": "tiny things"
            }),
            citations: vec![Citation {
                uri: "https://a/?k=s3cret-value".to_owned(),
                title: Some("s3cret-value".to_owned()),
            }],
            mutations: vec![Mutation {
                action: "write".to_owned(),
                target: "s3cret-value".to_owned(),
            }],
        };
        let Outcome::Done(said) = scrub.outcome(Outcome::Done(answer)) else { panic!("not done") };
        let text = format!("{said:?}");
        assert!(!text.contains("s3cret") && !text.contains("czNjcmV0"), "{text}");
        assert_eq!(said.output["headers"]["authorization"], format!("Bearer {REMOVED}"));
        assert_eq!(said.output["kept"], "tiny things");
    }

    #[test]
    fn a_secret_leaves_no_error() {
        let scrub = Scrub(Vec::new()).and(["s3cret-value".to_owned()]);
        let refused = AdapterError::Refused("no such key s3cret-value".to_owned());
        let text = format!("{:?}", scrub.outcome(Outcome::NothingHappened(refused)));
        assert!(text.contains(REMOVED) && !text.contains("s3cret-value"), "{text}");
        let unknown = Outcome::Unknown("reset after s3cret-value".to_owned());
        assert!(!format!("{:?}", scrub.outcome(unknown)).contains("s3cret-value"));
    }
}
