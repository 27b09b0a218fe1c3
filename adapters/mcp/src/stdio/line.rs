//! One line of a server's standard output.
//!
//! Owns the classification: a message, something harmless, noise, or a violation that ends the connection.

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use serde_json::Value;

use crate::failure::StdioFault;
use crate::tasks;

/// The kinds of lines.
#[derive(Debug)]
pub(super) enum Line {
    /// A JSON-RPC message.
    Message(Box<ServerJsonRpcMessage>),
    /// An empty line, or an unknown notification.
    Ignorable,
    /// Text that is not a JSON object: a banner on the wrong stream.
    Noise,
    /// Claims to be a message and is not valid.
    Broken,
}

/// Reads one line.
pub(super) fn read(text: &str) -> Line {
    let text = text.trim();
    if text.is_empty() {
        return Line::Ignorable;
    }
    if let Ok(message) = serde_json::from_str::<ServerJsonRpcMessage>(&tasks::carried(text)) {
        return Line::Message(Box::new(message));
    }
    if !text.starts_with(['{', '[']) {
        return Line::Noise;
    }
    let is_notification = serde_json::from_str::<Value>(text).is_ok_and(|value| {
        value.get("method").is_some_and(Value::is_string) && value.get("id").is_none()
    });
    if is_notification { Line::Ignorable } else { Line::Broken }
}

/// The line of a message, including its line feed.
pub(super) fn of_message(message: &ClientJsonRpcMessage) -> Result<Vec<u8>, StdioFault> {
    let mut line = serde_json::to_vec(message).map_err(|_error| StdioFault::NotWritten)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::{Line, read};

    #[test]
    fn a_response_is_a_message() {
        assert!(matches!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Line::Message(_)));
        assert!(matches!(
            read(r#" {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
            Line::Message(_)
        ));
    }

    #[test]
    fn a_banner_is_noise_and_not_the_end() {
        assert!(matches!(read("Server listening"), Line::Noise));
        assert!(matches!(read("   "), Line::Ignorable));
    }

    #[test]
    fn what_claims_to_be_a_message_and_is_none_is_broken() {
        for text in
            ["{", "{}", "[1]", r#"{"id":1,"result":"#, r#"{"jsonrpc":"1.0","id":1,"result":{}}"#]
        {
            assert!(matches!(read(text), Line::Broken), "{text}");
        }
    }
}
