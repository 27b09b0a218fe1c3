//! What the tests of this crate share: contracts, dispatches, secrets.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use placet_adapter::{
    adapter::{
        Adapter, Conditions, Connector, Dispatch, PrepareRequest, SessionLease, SessionOwner,
        TestDispatch, TraceHeaders,
    },
    outcome::{AdapterError, Answer, Outcome},
};
use placet_types::{
    clock::Timestamp,
    contract::{Contract, file::ContractFile},
    digest::Digest,
    ids::{CapabilityId, CapabilityName, TenantId, ToolCallId},
};

use crate::connector::{
    Endpoint, McpConnector, McpSettings, SecretLookup, SecretVersions, SessionLimits,
};

pub(super) const TOKEN: &str = "dispatch-token-1";
pub(super) const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Debug)]
pub(super) struct Secrets;

#[async_trait::async_trait]
impl SecretLookup for Secrets {
    async fn secret(&self, name: &str) -> Result<SecretVersions, String> {
        match name {
            "known" => Ok(SecretVersions { newest: "s3cret-canary".into(), previous: None }),
            // The server knows only the one before, as during a rotation.
            "rotated" => Ok(SecretVersions {
                newest: "s3cret-newer".into(),
                previous: Some("s3cret-canary".into()),
            }),
            _ => Err("it is not configured".to_owned()),
        }
    }
}

pub(super) fn connector(data_dir: &Path) -> McpConnector {
    connector_with(data_dir, SessionLimits::default())
}

/// A connector with these session limits.
pub(super) fn connector_with(data_dir: &Path, sessions: SessionLimits) -> McpConnector {
    McpConnector::new(McpSettings {
        data_dir: data_dir.to_owned(),
        client_name: "placet".to_owned(),
        client_version: "0.0.0".to_owned(),
        secrets: Arc::new(Secrets),
        trust: placet_egress::Trust::default(),
        own_listeners: Vec::new(),
        sessions,
    })
}

/// A contract over `transport` whose tools are reads, but for those called `write_…`, `keyed` and `secretive`.
pub(super) fn contract(transport: Value, change: impl FnOnce(&mut Value)) -> Arc<Contract> {
    let read = json!({"input_schema": {"type": "object"}, "mode": "read_only", "effect": "none"});
    let write = |dedup: Value| {
        json!({
            "input_schema": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "name": {"type": "string", "x-sensitive": true}},
            },
            "mode": "destructive", "effect": "write", "dedup": dedup,
        })
    };
    let mut file = json!({
        "contract_version": "placet.contract.v1", "adapter": "peer", "environment": "test", "tenants": "all",
        "transport": transport, "protocol_version": "2025-11-25",
        "limits": {"connect_ms_max": 5_000, "result_bytes_max": 4_096},
        "capabilities": {},
    });
    let capabilities = file["capabilities"].as_object_mut().unwrap();
    for name in [
        "echo",
        "slow",
        "sources",
        "big",
        "number",
        "change",
        "ask",
        "count",
        "flood",
        "cancelled",
        "fail",
        "both",
        "twice",
        "tries",
    ] {
        capabilities.insert(name.to_owned(), read.clone());
    }
    for name in ["error", "die", "garbage", "other_kind", "input_required"] {
        capabilities.insert(name.to_owned(), write(json!({"class": "opaque"})));
    }
    change(&mut file);
    let file: ContractFile = serde_json::from_value(file).unwrap();
    Arc::new(Contract::from_file(file).unwrap())
}

/// Turns a tool of [`contract`] into a write.
pub(super) fn make_write(file: &mut Value, name: &str, dedup: Value) {
    file["capabilities"][name] = json!({
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "name": {"type": "string", "x-sensitive": true}},
        },
        "mode": "destructive", "effect": "write", "dedup": dedup,
    });
}

pub(super) fn python(mode: &str) -> Value {
    json!({"type": "mcp_stdio", "command": "python3", "args": ["-u", "-c", include_str!("peer.py"), mode]})
}

pub(super) async fn connect(contract: &Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
    connector(&std::env::temp_dir()).connect(Arc::clone(contract)).await
}

pub(super) fn endpoint(contract: &Contract) -> Endpoint {
    Endpoint {
        adapter: contract.adapter.clone(),
        transport: contract.transport.clone(),
        credential: contract.credential.clone(),
        limits: contract.limits.clone(),
    }
}

pub(super) fn dispatch(contract: &Contract, tool: &str, args: Value) -> Dispatch {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    Dispatch::for_test(TestDispatch {
        call_id: ToolCallId::new("call_1").unwrap(),
        tenant: "acme".parse().unwrap(),
        capability: CapabilityId::new(contract.adapter.clone(), tool.parse().unwrap()).unwrap(),
        contract_digest: contract.digest,
        args,
        token: TOKEN.to_owned(),
        deadline_at: Timestamp::from_ms(4_000_000_000_000),
    })
}

pub(super) fn within(timeout_ms: u64) -> Conditions {
    Conditions {
        timeout_ms,
        listen_ms: 0,
        credential: None,
        seat: SessionLease::default(),
        examples: Default::default(),
        observer: None,
        trace: TraceHeaders {
            traceparent: Some(TRACEPARENT.to_owned()),
            tracestate: Some("a=b".to_owned()),
        },
    }
}

pub(super) async fn call(
    adapter: &dyn Adapter,
    contract: &Contract,
    tool: &str,
    args: Value,
) -> Outcome {
    let outcome = send(adapter, dispatch(contract, tool, args), within(10_000)).await;
    // Counted as the engine does.
    match contract.capabilities.get(&tool.parse::<CapabilityName>().unwrap()) {
        Some(capability) => outcome.under(capability),
        None => outcome,
    }
}

/// Sends a call without an owner, as the engine does: it is prepared first.
pub(super) async fn send(
    adapter: &dyn Adapter,
    dispatch: Dispatch,
    conditions: Conditions,
) -> Outcome {
    send_for(adapter, dispatch, conditions, SessionOwner::rehearsal()).await
}

/// The same with an owner.
pub(super) async fn send_for(
    adapter: &dyn Adapter,
    dispatch: Dispatch,
    mut conditions: Conditions,
    owner: SessionOwner,
) -> Outcome {
    let (timeout_ms, credential) = (conditions.timeout_ms, conditions.credential.as_ref());
    match adapter.prepare(PrepareRequest { timeout_ms, credential, owner }).await {
        Ok(seat) => conditions.seat = seat,
        Err(error) => return Outcome::NotExecuted(error),
    }
    adapter.invoke(dispatch, conditions).await
}

pub(super) fn done(outcome: Outcome) -> Answer {
    let Outcome::Done(answer) = outcome else { panic!("not done: {outcome:?}") };
    answer
}

pub(super) fn in_seconds(seconds: u64) -> Instant {
    Instant::now().checked_add(Duration::from_secs(seconds)).unwrap()
}

/// The owner of a user's credentials.
pub(super) fn owner(name: &str) -> SessionOwner {
    owner_in("acme", name)
}

/// The same, in a tenant.
pub(super) fn owner_in(tenant: &str, name: &str) -> SessionOwner {
    SessionOwner::minted(&TenantId::new(tenant).unwrap(), Digest::of(name.as_bytes()))
}
