//! What a contract says about error answers: which of them mean that a call was not executed.
//!
//! Owns the rule for calls that may have reached their target. Does not read answers (adapters do) and records nothing. Invariant: an
//! answer that the contract does not name counts only if it is given before a handler can run.

use std::{collections::BTreeSet, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ensure, file::TransportFile};
use crate::mode::Effect;

/// The most answers of each kind.
const ANSWERS_MAX: usize = 16;
const STATUS_MIN: u16 = 400;
const STATUS_MAX: u16 = 599;

/// Error answers of an MCP server that mean that a call was not executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotExecuted {
    /// JSON-RPC error codes that the server never returns once the tool has begun.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(length(max = 16))]
    pub jsonrpc: BTreeSet<i32>,
    /// HTTP statuses from 400 to 599, in addition to those that always count.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(length(max = 16))]
    pub http: BTreeSet<u16>,
}

/// An error with which a target answered a call that was sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorAnswer {
    /// A JSON-RPC error, with its code.
    JsonRpc(i32),
    /// An HTTP status of failure.
    Http(HttpError),
}

/// A failure status of HTTP, and what came with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpError {
    /// The status.
    pub status: u16,
    /// Whether a `WWW-Authenticate` header came with it (RFC 9110, section 11.6.1).
    pub has_challenge: bool,
    /// Whether a `Retry-After` header came with it (RFC 9110, section 10.2.3).
    pub has_retry_after: bool,
    /// Whether its body is, or may be, a JSON-RPC message: then a handler of the server wrote it.
    pub has_json_rpc: bool,
}

impl HttpError {
    /// A status without further information.
    pub const fn bare(status: u16) -> Self {
        Self { status, has_challenge: false, has_retry_after: false, has_json_rpc: false }
    }

    /// Whether the status is given before a handler can run: by what checks credentials, methods, sizes and rates.
    pub const fn is_before_handler(&self) -> bool {
        match self.status {
            401 | 405 | 413 => true,
            403 => self.has_challenge,
            429 => self.has_retry_after && !self.has_json_rpc,
            _ => false,
        }
    }
}

impl fmt::Display for ErrorAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JsonRpc(code) => write!(f, "json-rpc error {code}"),
            Self::Http(error) => write!(f, "http status {}", error.status),
        }
    }
}

impl NotExecuted {
    /// Checks that a capability with this effect may name such answers, and that its target gives them.
    pub(super) fn check(&self, effect: Effect, transport: &TransportFile) -> Result<(), String> {
        let Self { jsonrpc, http } = self;
        let counts = [jsonrpc.len(), http.len()];
        ensure(effect == Effect::Write, "`not_executed` goes with `effect: write` only")?;
        ensure(counts != [0, 0], "`not_executed` must name an answer, or be left out")?;
        ensure(
            counts.iter().all(|count| *count <= ANSWERS_MAX),
            "`not_executed` must name at most 16 answers of a kind",
        )?;
        ensure(
            http.iter().all(|status| (STATUS_MIN..=STATUS_MAX).contains(status)),
            "`not_executed.http` must be statuses of failure, 400 to 599",
        )?;
        let (has_jsonrpc, has_http) = match transport {
            TransportFile::Internal { .. } => (false, false),
            TransportFile::McpStdio { .. } => (true, false),
            TransportFile::Rest { .. } | TransportFile::Lm { .. } => (false, true),
            TransportFile::McpHttp { .. } | TransportFile::A2a { .. } => (true, true),
        };
        ensure(
            (has_jsonrpc || jsonrpc.is_empty()) && (has_http || http.is_empty()),
            "`not_executed` names answers that its transport never gives",
        )
    }

    /// Whether an error answer means that the call was not executed.
    pub fn counts(&self, answer: &ErrorAnswer) -> bool {
        match answer {
            ErrorAnswer::JsonRpc(code) => self.jsonrpc.contains(code),
            ErrorAnswer::Http(error) => {
                self.http.contains(&error.status) || error.is_before_handler()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ErrorAnswer, HttpError, NotExecuted};
    use crate::contract::{Contract, file::ContractFile};

    fn declared(
        not_executed: &Value,
        change: impl FnOnce(&mut Value),
    ) -> Result<NotExecuted, String> {
        let mut file = json!({
            "contract_version": "placet.contract.v1", "adapter": "bank", "environment": "test", "tenants": ["acme"],
            "transport": {"type": "mcp_http", "url": "https://bank.example/mcp"},
            "protocol_version": "2025-11-25", "limits": {"calls_per_minute_max": 60},
            "capabilities": {"pay": {
                "input_schema": {"type": "object", "additionalProperties": false}, "mode": "destructive",
                "effect": "write", "dedup": {"class": "opaque"}, "not_executed": not_executed,
            }},
        });
        change(&mut file);
        let file: ContractFile = serde_json::from_value(file).map_err(|error| error.to_string())?;
        let contract = Contract::from_file(file).map_err(|error| error.to_string())?;
        Ok(contract.capabilities.values().next().unwrap().not_executed.clone())
    }

    #[test]
    fn without_a_word_only_answers_before_a_handler_count() {
        let none = NotExecuted::default();
        for code in [-32_700, -32_603, -32_602, -32_601, -32_600, -32_000, 1] {
            assert!(!none.counts(&ErrorAnswer::JsonRpc(code)), "{code}");
        }
        let counted = |with: HttpError| {
            let all = (400..600).map(|status| HttpError { status, ..with });
            let counted = all.filter(|error| none.counts(&ErrorAnswer::Http(*error)));
            counted.map(|error| error.status).collect::<Vec<_>>()
        };
        let bare = HttpError::bare(0);
        assert_eq!(counted(bare), [401, 405, 413]);
        assert_eq!(counted(HttpError { has_challenge: true, ..bare }), [401, 403, 405, 413]);
        let busy = HttpError { has_retry_after: true, ..bare };
        assert_eq!(counted(busy), [401, 405, 413, 429]);
        assert_eq!(counted(HttpError { has_json_rpc: true, ..busy }), [401, 405, 413]);
    }

    #[test]
    fn what_the_contract_names_counts_and_nothing_near_it() {
        let named = declared(&json!({"jsonrpc": [-32_601, 7], "http": [409]}), |_| {}).unwrap();
        for code in [-32_601, 7] {
            assert!(named.counts(&ErrorAnswer::JsonRpc(code)));
        }
        assert!(!named.counts(&ErrorAnswer::JsonRpc(-32_602)));
        assert!(named.counts(&ErrorAnswer::Http(HttpError::bare(409))));
        assert!(!named.counts(&ErrorAnswer::Http(HttpError::bare(410))));
        assert!(!named.counts(&ErrorAnswer::JsonRpc(409)));
    }

    #[test]
    fn declarations_that_cannot_hold_are_refused() {
        let long: Vec<i32> = (1..=17).collect();
        for (declaration, problem) in [
            (json!({}), "must name an answer"),
            (json!({"http": [200]}), "400 to 599"),
            (json!({"http": [600]}), "400 to 599"),
            (json!({"jsonrpc": long}), "at most 16"),
            (json!({"grpc": [1]}), "unknown field"),
        ] {
            let error = declared(&declaration, |_| {}).unwrap_err();
            assert!(error.contains(problem), "{declaration}: {error}");
        }
        let read = declared(&json!({"http": [409]}), |file| {
            let pay = file["capabilities"]["pay"].as_object_mut().unwrap();
            pay.remove("dedup");
            pay.insert("mode".to_owned(), json!("read_only"));
            pay.insert("effect".to_owned(), json!("none"));
        });
        assert!(read.unwrap_err().contains("effect: write"));
        let over = |transport: Value| {
            declared(&json!({"http": [409]}), |file| {
                file["transport"] = transport;
                file["transport"]["process"] = json!({"network": "unconfined"});
            })
        };
        let stdio = over(json!({"type": "mcp_stdio", "command": "/bin/true"}));
        assert!(stdio.unwrap_err().contains("never gives"));
        let internal = declared(&json!({"jsonrpc": [1]}), |file| {
            file["transport"] = json!({"type": "internal", "builtin": "files", "root": "files"});
        });
        assert!(internal.unwrap_err().contains("never gives"));
    }

    #[test]
    fn a_declaration_is_part_of_the_digest_of_its_contract() {
        let digest = |not_executed: Option<Value>| {
            let mut file = json!({
                "contract_version": "placet.contract.v1", "adapter": "bank", "environment": "test",
                "transport": {"type": "mcp_http", "url": "https://bank.example/mcp"},
                "protocol_version": "2025-11-25",
                "capabilities": {"pay": {
                    "input_schema": {"type": "object"}, "mode": "destructive", "effect": "write",
                    "dedup": {"class": "opaque"},
                }},
            });
            if let Some(not_executed) = not_executed {
                file["capabilities"]["pay"]["not_executed"] = not_executed;
            }
            serde_json::from_value::<ContractFile>(file).unwrap().digest()
        };
        let some = digest(Some(json!({"http": [409]})));
        assert_ne!(some, digest(None));
        assert_ne!(some, digest(Some(json!({"http": [410]}))));
    }
}
