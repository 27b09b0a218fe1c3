//! Discreet connections: what a target was given as a secret does not come back in what it says.
//!
//! Owns the removal of a contract's secrets from answers, errors and probes, before anything of them is recorded (I15, TM-19). A tool
//! that echoes its headers or its environment is common; what it echoes would stand in the ledger for as long as results are kept.
//! Not here: secrets of other contracts, which this target never had.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use base64::{
    Engine as _,
    engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, Inquiry},
    outcome::{AdapterError, Answer, Outcome, Probe},
};
use placet_identity::Secrets;
use placet_types::contract::{
    Contract, LiveTool,
    file::{EnvValue, TransportFile},
};
use secrecy::{ExposeSecret as _, SecretString};
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
        let given = Given { names, secrets: Arc::clone(&self.secrets), values: Mutex::default() };
        // Before and after: a child that is started in between may have been given either.
        drop(given.scrub());
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
    given: Given,
}

/// How many values of secrets are remembered of a connection: those of the first reading and the newest ones.
const VALUES_MAX: usize = 64;

/// What a target was given: a child has the values in its environment with which it was started, however often they are rotated since.
#[derive(Debug)]
struct Given {
    names: Vec<String>,
    secrets: Arc<Secrets>,
    values: Mutex<Vec<SecretString>>,
}

impl Given {
    /// Everything that the target may have been given so far; reads the secrets as they are now. One that cannot be read was not given to
    /// anybody either.
    fn scrub(&self) -> Scrub {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        for value in self.names.iter().filter_map(|name| self.secrets.get(name).ok()) {
            if values.iter().any(|known| known.expose_secret() == value.expose_secret()) {
                continue;
            }
            if values.len() >= VALUES_MAX {
                values.remove(self.names.len().min(VALUES_MAX.saturating_sub(1)));
            }
            values.push(SecretString::from(value.expose_secret()));
        }
        Scrub::default().and(values.iter().map(|value| value.expose_secret().to_owned()))
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
        self.given.scrub()
    }
}

/// What is looked for; shows nowhere.
#[derive(Default)]
struct Scrub {
    /// The secrets, and as they stand within JSON.
    plain: Vec<String>,
    /// What is in any Base64 of a text that holds one.
    encoded: Vec<String>,
}

impl Scrub {
    fn and(mut self, values: impl IntoIterator<Item = String>) -> Self {
        for value in values.into_iter().filter(|value| value.len() >= BYTES_MIN) {
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                for before in 0..3 {
                    self.encoded.extend(within_base64(engine, &value, before));
                }
            }
            if let Ok(quoted) = serde_json::to_string(&value) {
                let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                let escaped = inner.unwrap_or(&quoted);
                self.plain.extend([escaped.replace('/', "\\/"), escaped.to_owned()]);
            }
            self.plain.push(value);
        }
        // The longer ones first: a secret may be part of another.
        self.plain.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.plain.dedup();
        self.encoded.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.encoded.dedup();
        self
    }

    fn text(&self, text: String) -> String {
        let holds = |secret: &String| text.contains(secret.as_str());
        if !self.plain.iter().chain(&self.encoded).any(holds) {
            return text;
        }
        let text = self.encoded.iter().fold(text, |text, part| without_base64(&text, part));
        self.plain.iter().fold(text, |text, secret| text.replace(secret.as_str(), REMOVED))
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

/// What of a secret stands in the Base64 of every text that has it behind `before` bytes, counted by threes: whatever comes before and
/// after it.
fn within_base64(engine: &GeneralPurpose, secret: &str, before: usize) -> Option<String> {
    let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(secret.bytes()).collect();
    // A digit holds six bits: the first ones are shared with what comes before, the last one with what comes after.
    let shared = before.saturating_mul(8).div_ceil(6);
    let whole = bytes.len().saturating_mul(8).checked_div(6)?;
    let encoded = engine.encode(&bytes);
    encoded.get(shared..whole).map(str::to_owned)
}

/// The text without the Base64 that `part` stands in.
fn without_base64(text: &str, part: &str) -> String {
    let is_digit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_');
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(part) {
        kept.push_str(before.trim_end_matches(is_digit));
        kept.push_str(REMOVED);
        rest = after.trim_start_matches(is_digit).trim_start_matches('=');
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use placet_adapter::outcome::{AdapterError, Answer, Outcome};
    use placet_types::envelope::result::{Citation, Mutation};
    use serde_json::json;

    use base64::{
        Engine as _,
        engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
    };
    use placet_identity::Secrets;

    use super::{Given, REMOVED, Scrub};

    #[test]
    fn a_secret_leaves_no_part_of_an_answer() {
        let scrub = Scrub::default().and(["s3cret-value".to_owned(), "tiny".to_owned()]);
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
        let scrub = Scrub::default().and(["s3cret-value".to_owned()]);
        let refused = AdapterError::Refused("no such key s3cret-value".to_owned());
        let text = format!("{:?}", scrub.outcome(Outcome::NothingHappened(refused)));
        assert!(text.contains(REMOVED) && !text.contains("s3cret-value"), "{text}");
        let unknown = Outcome::Unknown("reset after s3cret-value".to_owned());
        assert!(!format!("{:?}", scrub.outcome(unknown)).contains("s3cret-value"));
    }

    #[test]
    fn a_secret_leaves_nothing_of_itself_in_base64() {
        // With bits that differ between the two alphabets.
        let secret = "s3cret?>~\u{ff}value";
        let scrub = Scrub::default().and([secret.to_owned()]);
        for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
            for (before, after) in [("", ""), ("u:", ""), ("me:", "x"), ("user:", "\n"), ("", "yz")]
            {
                let said =
                    format!("Basic {} kept", engine.encode(format!("{before}{secret}{after}")));
                assert_eq!(
                    scrub.text(said),
                    format!("Basic {REMOVED} kept"),
                    "{before:?} {after:?}"
                );
            }
        }
        let other = format!("Basic {} kept", STANDARD.encode("user:something else"));
        assert_eq!(scrub.text(other.clone()), other);
    }

    #[test]
    fn a_secret_within_json_within_text_is_found() {
        let secret = "a\"b\\c/d\nlong";
        let scrub = Scrub::default().and([secret.to_owned()]);
        let text = json!({ "password": secret }).to_string();
        let slashes = text.replace('/', "\\/");
        for said in [text, slashes] {
            let told = scrub.text(said);
            assert!(!told.contains("long") && told.contains(REMOVED), "{told}");
        }
    }

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
        drop(given.scrub());
        std::fs::write(&file, "second-value").unwrap();
        let told = given.scrub().text("first-value, second-value".to_owned());
        assert_eq!(told, format!("{REMOVED}, {REMOVED}"));
        assert!(!format!("{given:?}").contains("-value"));
    }
}
