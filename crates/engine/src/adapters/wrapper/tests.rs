//! Connections to a server that echoes everything it was ever sent.

use parking_lot::Mutex;

use placet_adapter::adapter::{Credential, PrepareRequest, SessionOwner, TraceHeaders};
use placet_identity::{SecretSource, Secrets};
use placet_ledger::dispatch::TestDispatch;
use placet_types::{
    clock::Timestamp,
    contract::file::ContractFile,
    digest::Digest,
    envelope::result::Citation,
    ids::{CapabilityId, ToolCallId},
};
use serde_json::json;

use super::*;
use crate::adapters::known_secrets::KnownSecrets;

/// A server: what it was sent, and how it echoes it.
#[derive(Debug, Default)]
struct Parrot {
    shown: Mutex<Vec<String>>,
}

#[derive(Debug, Clone)]
struct Line(Arc<Parrot>);

impl Parrot {
    fn all(&self) -> String {
        self.shown.lock().join(" ")
    }
}

#[async_trait]
impl Connector for Line {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        if contract.adapter.as_str() == "refused" {
            return Err(AdapterError::Refused(self.0.all()));
        }
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl Adapter for Line {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        Err(AdapterError::InvalidResponse(self.0.all()))
    }

    fn generation(&self) -> u64 {
        0
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        if let Some(one) = conditions.credential {
            self.0.shown.lock().push(one.value.expose_secret().to_owned());
        }
        let all = self.0.all();
        let before =
            "x".repeat(usize::try_from(dispatch.args()["before"].as_u64().unwrap()).unwrap());
        let said = || Answer {
            output: json!({ "said": format!("{before}{all}") }),
            citations: vec![Citation {
                uri: "memo://1".to_owned(),
                title: Some(format!("{before}{all}")),
            }],
            ..Answer::default()
        };
        match dispatch.args()["manner"].as_str().unwrap() {
            "fails" => Outcome::Failed(said()),
            "refuses" => Outcome::NotExecuted(AdapterError::Refused(format!("{before}{all}"))),
            "forbids" => Outcome::NotExecuted(AdapterError::Forbidden(format!("{before}{all}"))),
            "breaks" => Outcome::Unknown(format!("{before}{all}")),
            _ => Outcome::Done(said()),
        }
    }

    async fn probe(&self, _inquiry: &Inquiry) -> Probe {
        Probe::Committed(Answer { output: json!(self.0.all()), ..Answer::default() })
    }

    fn is_alive(&self) -> bool {
        true
    }

    async fn close(&self) {}
}

fn contract(adapter: &str, secret: Option<&str>) -> Arc<Contract> {
    let mut file = json!({
        "contract_version": "placet.contract.v1", "adapter": adapter, "environment": "test", "tenants": "all",
        "transport": { "type": "mcp_http", "url": format!("https://tools.example/{adapter}") },
        "protocol_version": "2025-11-25",
        "capabilities": { "look": { "input_schema": {"type": "object"}, "mode": "read_only", "effect": "none" } },
    });
    if let Some(secret) = secret {
        file["credential"] = json!({ "secret": secret });
    }
    let file: ContractFile = serde_json::from_value(file).unwrap();
    Arc::new(Contract::from_file(file).unwrap())
}

struct Place {
    parrot: Arc<Parrot>,
    handed: KnownSecrets,
    contracts: [Arc<Contract>; 4],
}

const STATIC: &str = "static-value-of-another";

impl Place {
    fn new() -> Self {
        let mut garbling = Contract::clone(&contract("garbled", None));
        let errors = json!({ "errors": [{ "type": "unparseable_result", "probability": 1.0 }] });
        garbling.file.error_injection = serde_json::from_value(errors).unwrap();
        let contracts = [
            contract("mail", None),
            contract("post", Some("key")),
            contract("refused", None),
            Arc::new(garbling),
        ];
        let source = SecretSource::Env(STATIC.into());
        let secrets = Arc::new(Secrets::new([("key".to_owned(), source)].into()));
        let handed = KnownSecrets::new(&contracts, &secrets);
        Self { parrot: Arc::default(), handed, contracts }
    }

    async fn to(&self, number: usize) -> Result<Box<dyn Adapter>, AdapterError> {
        let contract = &self.contracts[number];
        let given = self.handed.to(contract).unwrap();
        let line = Arc::new(Line(Arc::clone(&self.parrot)));
        WrappingConnector::new(line, given).connect(Arc::clone(contract)).await
    }
}

fn token(name: &str) -> String {
    format!("eyJhbGciOiJFUzI1NiJ9.{name}.{}", Digest::of(name.as_bytes()))
}

async fn call(
    adapter: &dyn Adapter,
    manner: &str,
    before: usize,
    credential: Option<&str>,
) -> Outcome {
    let args = json!({ "manner": manner, "before": before });
    let dispatch = Dispatch::for_test(TestDispatch {
        call_id: ToolCallId::new("call_1").unwrap(),
        tenant: "acme".parse().unwrap(),
        capability: CapabilityId::new("mail".parse().unwrap(), "look".parse().unwrap()).unwrap(),
        contract_digest: Digest::of(b"contract"),
        args: args.as_object().unwrap().clone(),
        token: "token".to_owned(),
        deadline_at: Timestamp::from_ms(4_000_000_000_000),
    });
    let credential = credential.map(|value| Credential {
        header: "authorization".to_owned(),
        value: format!("Bearer {value}").into(),
        origin: None,
        ends: None,
    });
    let owner = SessionOwner::rehearsal();
    let approach = PrepareRequest { timeout_ms: 1_000, credential: credential.as_ref(), owner };
    let seat = match adapter.prepare(approach).await {
        Ok(seat) => seat,
        Err(error) => return Outcome::NotExecuted(error),
    };
    let trace = TraceHeaders::default();
    let examples = Arc::default();
    let conditions = Conditions {
        timeout_ms: 1_000,
        listen_ms: 0,
        credential,
        seat,
        trace,
        examples,
        observer: None,
    };
    adapter.invoke(dispatch, conditions).await
}

/// Contains no part of the secret, not even half of it.
fn is_clean(said: &str) -> bool {
    let ends = ["alice", "bob"].map(|name| Digest::of(name.as_bytes()).to_string());
    let parts = ends.iter().flat_map(|end| [end.split_at(20).0, end.split_at(40).1]);
    !parts.chain(["eyJ", "static-value"]).any(|part| said.contains(part))
}

#[tokio::test]
async fn what_a_server_was_shown_in_other_calls_is_in_no_answer_error_or_probe() {
    let place = Place::new();
    let (mail, post) = (place.to(0).await.unwrap(), place.to(1).await.unwrap());
    drop(call(mail.as_ref(), "does", 0, Some(&token("alice"))).await);
    drop(call(post.as_ref(), "does", 0, Some(STATIC)).await);
    for connection in [&mail, &post] {
        for manner in ["does", "fails", "refuses", "forbids", "breaks"] {
            let outcome = call(connection.as_ref(), manner, 0, Some(&token("bob"))).await;
            let said = format!("{outcome:?}");
            assert!(said.contains(REMOVED) && is_clean(&said), "{manner}: {said}");
        }
        let inquiry = Inquiry {
            capability: CapabilityId::new("mail".parse().unwrap(), "look".parse().unwrap())
                .unwrap(),
            token: "token".to_owned(),
            timeout_ms: 1_000,
        };
        let found = format!("{:?}", connection.probe(&inquiry).await);
        assert!(found.contains(REMOVED) && is_clean(&found), "{found}");
        let refused = connection.discover().await.unwrap_err().to_string();
        assert!(refused.contains(REMOVED) && is_clean(&refused), "{refused}");
    }
    let refused = place.to(2).await.unwrap_err().to_string();
    assert!(refused.contains(REMOVED) && is_clean(&refused), "{refused}");
}

#[tokio::test]
async fn a_secret_that_a_long_reason_is_cut_at_leaves_nothing() {
    let place = Place::new();
    let mail = place.to(0).await.unwrap();
    for before in (0..700).step_by(7) {
        for manner in ["does", "refuses", "breaks"] {
            let outcome = call(mail.as_ref(), manner, before, Some(&token("alice"))).await;
            let said = format!("{outcome:?}");
            assert!(is_clean(&said), "{manner} {before}: {said}");
            let Outcome::Done(answer) = outcome else {
                assert!(said.len() < 800, "a reason is cut: {said}");
                continue;
            };
            assert!(answer.citations[0].title.as_ref().unwrap().len() < 600, "a title is cut");
        }
        place.parrot.shown.lock().clear();
    }
}

#[tokio::test]
async fn a_secret_that_a_garbled_result_is_cut_at_leaves_nothing() {
    let place = Place::new();
    let garbling = place.to(3).await.unwrap();
    for before in 0..80 {
        let outcome = call(garbling.as_ref(), "does", before, Some(&token("alice"))).await;
        let Outcome::Done(answer) = outcome else { panic!("not done") };
        let said = answer.output.to_string();
        assert!(said.contains("<garbled: ") && is_clean(&said), "{before}: {said}");
        place.parrot.shown.lock().clear();
    }
}

#[tokio::test]
async fn an_answer_that_is_searched_elsewhere_is_searched_as_well() {
    let place = Place::new();
    let mail = place.to(0).await.unwrap();
    let outcome = call(mail.as_ref(), "does", 200_000, Some(&token("alice"))).await;
    let Outcome::Done(answer) = outcome else { panic!("not done") };
    let said = answer.output["said"].as_str().unwrap();
    assert_eq!(said, format!("{}Bearer {REMOVED}", "x".repeat(200_000)));
}
