//! What the tests of the adapters share: a contract, a call under it, and an endpoint whose answers are written down.

use std::{sync::Arc, time::Duration};

use placet_adapter::{
    adapter::{Conditions, Connector as _, Dispatch, SessionLease, TestDispatch, TraceHeaders},
    outcome::Outcome,
};
use placet_types::{
    clock::Timestamp,
    contract::{Contract, file::ContractFile},
    ids::{CapabilityId, ToolCallId},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{HttpConnector, HttpSettings};

/// A contract over this transport with the read `look` and the write `pay`.
pub(crate) fn contract(kind: &str, url: &str, change: impl FnOnce(&mut Value)) -> Arc<Contract> {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": { "message": { "type": "string" } },
    });
    let mut file = json!({
        "contract_version": "placet.contract.v1", "adapter": "bank", "environment": "dev", "tenants": ["acme"],
        "transport": { "type": kind, "url": url, "private_network": true },
        "protocol_version": if kind == "rest" { "rest/1" } else { "1.0" },
        "capabilities": {
            "look": { "input_schema": schema, "mode": "read_only", "effect": "none" },
            "pay": {
                "input_schema": schema, "mode": "destructive", "effect": "write", "dedup": { "class": "opaque" },
            },
        },
    });
    if kind == "rest" {
        file["capabilities"]["look"]["rest"] = json!({ "method": "GET", "path": "/look" });
        file["capabilities"]["pay"]["rest"] = json!({ "method": "POST", "path": "/pay" });
        file["capabilities"]["pay_once"] = file["capabilities"]["pay"].clone();
        file["capabilities"]["pay_once"]["dedup"] =
            json!({ "class": "keyed", "window_ms": 60_000 });
    }
    change(&mut file);
    let file: ContractFile = serde_json::from_value(file).unwrap();
    Arc::new(Contract::from_file(file).unwrap())
}

/// A dispatch of a call of `pay`.
pub(crate) fn dispatch(contract: &Contract, args: &Value) -> Dispatch {
    Dispatch::for_test(TestDispatch {
        call_id: ToolCallId::new("call_1").unwrap(),
        tenant: "acme".parse().unwrap(),
        capability: CapabilityId::new(contract.adapter.clone(), "pay".parse().unwrap()).unwrap(),
        contract_digest: contract.digest,
        args: args.as_object().unwrap().clone(),
        token: "plc_1".to_owned(),
        deadline_at: Timestamp::from_ms(4_000_000_000_000),
    })
}

/// The outcome of a call of `pay` that may take so long, and whose late answer is listened for.
pub(crate) async fn paid(kind: &str, url: &str, timeout_ms: u64, listen_ms: u64) -> Outcome {
    let contract = contract(kind, url, |_| {});
    let connector = HttpConnector::new(HttpSettings::default());
    let adapter = connector.connect(Arc::clone(&contract)).await.unwrap();
    let conditions = Conditions {
        timeout_ms,
        listen_ms,
        credential: None,
        seat: SessionLease::default(),
        trace: TraceHeaders::default(),
        examples: Arc::default(),
        observer: None,
    };
    adapter.invoke(dispatch(&contract, &json!({ "message": "pay" })), conditions).await
}

/// An endpoint that answers each request after a pause: with these bodies in turn, then with the last one. Returns its URL.
pub(crate) async fn endpoint(pause: Duration, bodies: &[Value]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let bodies: Vec<String> = bodies.iter().map(Value::to_string).collect();
    tokio::spawn(async move {
        let mut number = 0_usize;
        while let Ok((stream, _)) = listener.accept().await {
            let body = bodies.get(number).or(bodies.last()).cloned().unwrap_or_default();
            number = number.saturating_add(1);
            tokio::spawn(answered(stream, pause, body));
        }
    });
    url
}

async fn answered(mut stream: TcpStream, pause: Duration, body: String) {
    let mut buffer = [0_u8; 8_192];
    let _read = stream.read(&mut buffer).await;
    tokio::time::sleep(pause).await;
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n";
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let _sent = stream.write_all(answer.as_bytes()).await;
    let _closed = stream.shutdown().await;
}
