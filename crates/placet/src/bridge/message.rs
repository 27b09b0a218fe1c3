//! What the bridge has to know of a JSON-RPC message to pass it on.
//!
//! Owns parsing and the bridge's own error answers. Whether a message is valid is the engine's to judge.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

/// Where a request without a session names its revision.
const REVISION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";

/// A message from the client.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// As received.
    pub(super) text: Bytes,
    /// The id, if it is a request.
    pub(super) id: Option<Value>,
    /// Absent: it is a response.
    pub(super) method: Option<String>,
    /// The revision it names, if any.
    pub(super) revision: Option<String>,
    /// The object it is about, for the header `Mcp-Name`.
    pub(super) name: Option<String>,
}

impl Message {
    /// Reads a line.
    ///
    /// # Errors
    /// The answer to send instead.
    pub(super) fn read(line: &[u8]) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(line)
            .map_err(|error| failed(&Value::Null, -32_700, &format!("no JSON: {error}"), None))?;
        if !document.is_object() {
            let why = "batches are not accepted: send one message";
            return Err(failed(&Value::Null, -32_600, why, None));
        }
        let text = |pointer: &str| document.pointer(pointer)?.as_str().map(str::to_owned);
        let method = text("/method");
        let about = match method.as_deref() {
            Some("tools/call" | "prompts/get") => Some("/params/name"),
            Some("resources/read" | "resources/subscribe" | "resources/unsubscribe") => {
                Some("/params/uri")
            }
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => Some("/params/taskId"),
            _ => None,
        };
        Ok(Self {
            text: Bytes::copy_from_slice(line),
            id: document.get("id").filter(|_| method.is_some()).cloned(),
            revision: text(REVISION),
            name: about.and_then(text).map(|name| header_value(&name)),
            method,
        })
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

/// A value encoded for a header (MCP 2026-07-28, Streamable HTTP, value encoding).
fn header_value(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && value.trim() == value
        && !value.starts_with("=?base64?");
    if is_plain { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) }
}

/// An error answer to the request `id`. The code is that of HTTP, outside the range that JSON-RPC reserves, or JSON-RPC's own.
pub(super) fn failed(id: &Value, code: i32, message: &str, data: Option<&Value>) -> String {
    let mut error = json!({ "code": code, "message": message });
    if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
        error.insert("data".to_owned(), data.clone());
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Message;

    #[test]
    fn what_headers_say_is_read_from_the_message() {
        let line = json!({
            "jsonrpc": "2.0", "id": 7, "method": "resources/read",
            "params": { "uri": "file:///grün", "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } },
        });
        let message = Message::read(line.to_string().as_bytes()).unwrap();
        assert_eq!(message.id, Some(json!(7)));
        assert_eq!(message.revision.as_deref(), Some("2026-07-28"));
        assert_eq!(message.name.as_deref(), Some("=?base64?ZmlsZTovLy9ncsO8bg==?="));
        let call =
            Message::read(br#"{"id":"a","method":"tools/call","params":{"name":"files__read"}}"#);
        assert_eq!(call.unwrap().name.as_deref(), Some("files__read"));
        let response = Message::read(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap();
        assert_eq!((response.id, response.method), (None, None), "it waits for no answer");
    }

    #[test]
    fn what_is_no_message_is_answered() {
        assert!(Message::read(b"[]").unwrap_err().contains("-32600"));
        assert!(Message::read(b"{").unwrap_err().contains("-32700"));
    }
}
