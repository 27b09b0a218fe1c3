//! One line of a server's standard output.
//!
//! Owns the framing, and what a line is: a message, an answer that cannot be read, or something else, which is ignored as the SDKs do.
//! Invariants: no line is kept beyond its limit; an answer that cannot be read fails the request that it answers, and no other.

use bytes::{Buf as _, BytesMut};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage};
use tokio_util::codec::Decoder;

use crate::{
    escapes,
    failure::{StdioFault, UNREADABLE},
    tasks,
};

/// How many times the limit a line may have before we give up on its server.
const SKIPPED_MAX: u64 = 4;
/// The longest key or number that is compared.
const TOKEN_BYTES_MAX: usize = 32;

/// Reads one line; `None`: it is to be ignored.
pub(super) fn read(line: &[u8]) -> Option<ServerJsonRpcMessage> {
    let message = std::str::from_utf8(line).ok().and_then(|text| {
        let text = escapes::whole(text.trim());
        serde_json::from_str::<ServerJsonRpcMessage>(&tasks::carried(&text)).ok()
    });
    message.or_else(|| {
        let mut outline = Outline::default();
        outline.extend(line);
        outline.failed("the answer is no valid json-rpc message")
    })
}

/// The members of an object, as far as is needed to tell which request it answers. It need not be valid JSON: half a character, `NaN`, or
/// more levels than are read do not matter.
#[derive(Debug, Default)]
struct Outline {
    bytes: u64,
    depth: u32,
    is_in_string: bool,
    is_escaped: bool,
    /// Whether something else than an object begins the line.
    is_other: bool,
    /// The string or number that is being read, at the first level.
    token: Vec<u8>,
    /// The member whose value is being read.
    member: Option<Member>,
    is_json_rpc: bool,
    is_answer: bool,
    is_request: bool,
    id: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Id,
    Other,
}

impl Outline {
    fn extend(&mut self, more: &[u8]) {
        self.bytes = self.bytes.saturating_add(u64::try_from(more.len()).unwrap_or(u64::MAX));
        for byte in more {
            if self.is_other {
                break;
            }
            self.take(*byte);
        }
    }

    fn take(&mut self, byte: u8) {
        if self.is_in_string {
            let (escaped, ends) = (self.is_escaped, byte == b'"' && !self.is_escaped);
            self.is_escaped = byte == b'\\' && !escaped;
            self.is_in_string = !ends;
            if !ends {
                self.keep(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.is_in_string = true;
                if self.depth == 1 {
                    self.token.clear();
                }
            }
            b'{' | b'[' => {
                self.is_other |= self.depth == 0 && byte == b'[';
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 && self.member.is_none() => self.begin_member(),
            b',' if self.depth == 1 => self.end_member(),
            _ if byte.is_ascii_whitespace() => {}
            _ => {
                self.is_other |= self.depth == 0;
                self.keep(byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < TOKEN_BYTES_MAX {
            self.token.push(byte);
        }
    }

    fn begin_member(&mut self) {
        let is = |name: &[u8]| self.token == name;
        self.is_json_rpc |= is(b"jsonrpc");
        self.is_answer |= is(b"result") || is(b"error");
        self.is_request |= is(b"method");
        self.member = Some(if is(b"id") { Member::Id } else { Member::Other });
        self.token.clear();
    }

    fn end_member(&mut self) {
        if self.member.take() == Some(Member::Id) {
            // Our requests have numbers.
            self.id = std::str::from_utf8(&self.token).ok().and_then(|text| text.parse().ok());
        }
        self.token.clear();
    }

    /// An error in the place of the answer that this is, if it is one.
    fn failed(&self, why: &'static str) -> Option<ServerJsonRpcMessage> {
        let is_answer = self.is_json_rpc && self.is_answer && !self.is_request && !self.is_other;
        let id = self.id.filter(|_| is_answer && self.depth == 0)?;
        let error = ErrorData::new(UNREADABLE, why, None);
        Some(ServerJsonRpcMessage::Error(JsonRpcError::new(Some(RequestId::Number(id)), error)))
    }
}

/// Lines of limited length.
#[derive(Debug)]
pub(super) struct Lines {
    bytes_max: usize,
    /// What is known of a line that is too long, while it is skipped.
    skipped: Option<Outline>,
    /// How much of the buffer has no line feed.
    searched: usize,
}

impl Lines {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, skipped: None, searched: 0 }
    }

    /// The line that ends at `end` of the buffer.
    fn line(&mut self, from: &mut BytesMut, end: usize) -> Option<ServerJsonRpcMessage> {
        let line = from.split_to(end);
        match self.skipped.take() {
            Some(outline) => outline.failed(
                "the answer is larger than is read: `limits.result_bytes_max` of the contract bounds it",
            ),
            None => read(&line),
        }
    }
}

impl Decoder for Lines {
    /// A message, or `None` for a line that is to be ignored.
    type Item = Option<ServerJsonRpcMessage>;
    type Error = std::io::Error;

    fn decode(&mut self, from: &mut BytesMut) -> Result<Option<Self::Item>, Self::Error> {
        let unsearched = from.get(self.searched..).unwrap_or_default();
        let end = unsearched.iter().position(|byte| *byte == b'\n');
        let end = end.map(|end| end.saturating_add(self.searched));
        let mut arrived = end.unwrap_or(from.len());
        if self.skipped.is_some() || arrived > self.bytes_max {
            let outline = self.skipped.get_or_insert_default();
            outline.extend(&from.split_to(arrived));
            arrived = 0;
            let most =
                u64::try_from(self.bytes_max).unwrap_or(u64::MAX).saturating_mul(SKIPPED_MAX);
            if outline.bytes > most {
                return Err(std::io::Error::other("a line without an end"));
            }
        }
        self.searched = if end.is_some() { 0 } else { from.len() };
        if end.is_none() {
            return Ok(None);
        }
        let line = self.line(from, arrived);
        // Its line feed.
        from.advance(1);
        Ok(Some(line))
    }

    fn decode_eof(&mut self, from: &mut BytesMut) -> Result<Option<Self::Item>, Self::Error> {
        if let Some(line) = self.decode(from)? {
            return Ok(Some(line));
        }
        let rest = from.len();
        Ok((rest > 0 || self.skipped.is_some()).then(|| self.line(from, rest)))
    }
}

/// The line of a message, including its line feed.
pub(super) fn of_message(message: &ClientJsonRpcMessage) -> Result<Vec<u8>, StdioFault> {
    let mut line = serde_json::to_vec(message).map_err(|_error| StdioFault::NotWritten)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use rmcp::model::{JsonRpcError, RequestId, ServerJsonRpcMessage};
    use tokio_util::codec::Decoder as _;

    use super::{Lines, read};

    /// The request whose answer could not be read.
    fn failed(message: Option<&ServerJsonRpcMessage>) -> Option<i64> {
        match message {
            Some(ServerJsonRpcMessage::Error(JsonRpcError {
                id: Some(RequestId::Number(id)),
                ..
            })) => Some(*id),
            _ => None,
        }
    }

    #[test]
    fn a_response_is_a_message() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#" {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        ] {
            assert!(matches!(
                read(text.as_bytes()),
                Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Notification(_))
            ));
        }
    }

    #[test]
    fn what_is_no_message_is_ignored() {
        for text in [
            "Server listening",
            "   ",
            "{",
            "{}",
            "[1]",
            "[INFO] ready",
            "{'a': 1}",
            r#"{"level":"warn","id":3,"error":"retrying"}"#,
            r#"[3,"started",null,null]"#,
            r#"{"jsonrpc":"2.0","id":3,"result":"#,
            r#"DEBUG {"jsonrpc":"2.0","id":3,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":3,"result":NaN}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"elicitation/create","result":NaN}"#,
        ] {
            assert!(read(text.as_bytes()).is_none(), "{text}");
        }
        assert!(read(b"\xff\xfe").is_none());
    }

    #[test]
    fn an_answer_that_cannot_be_read_fails_its_request_alone() {
        let deep = "[".repeat(500) + &"]".repeat(500);
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":3,"result":{{"structuredContent":{deep}}}}}"#),
            r#"{"jsonrpc":"2.0","result":{"id":4,"a":"\q \" } ,\\"},"id": 3 }"#.to_owned(),
            r#"{"jsonrpc":"1.0","id":3,"result":{}}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":3,"result":{"x":NaN,"id":4}}"#.to_owned(),
            r#"{"error":{"id":4},"jsonrpc":"2.0","id":3}"#.to_owned(),
        ] {
            assert_eq!(failed(read(text.as_bytes()).as_ref()), Some(3), "{text}");
        }
        let half = b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"a\":\"\xff\"}}";
        assert_eq!(failed(read(half).as_ref()), Some(3));
        let cut = br#"{"jsonrpc":"2.0","id":3,"result":{"a":"\ud83d"}}"#;
        assert!(failed(read(cut).as_ref()).is_none(), "half of a pair is replaced");
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        let long = "x".repeat(10_000);
        for (line, id) in [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{long}","id":9}}}}"#), Some(7)),
            (format!(r#"{{"result":{{"a":"{long}","id":9}},"jsonrpc":"2.0","id":8}}"#), Some(8)),
            (format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"a":"{long}","id":9}}}}"#), None),
            (long.clone(), None),
        ] {
            let (mut lines, mut buffer) = (Lines::new(4_000), BytesMut::new());
            let mut found = Vec::new();
            let next = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
            for part in format!("{line}\n{next}\n{next}").as_bytes().chunks(777) {
                buffer.extend_from_slice(part);
                while let Some(one) = lines.decode(&mut buffer).unwrap() {
                    found.push(one);
                }
                assert!(buffer.len() <= 4_777, "no more is kept than the limit and what came last");
            }
            // The last one needs no line feed.
            found.extend(lines.decode_eof(&mut buffer).unwrap());
            assert!(lines.decode_eof(&mut buffer).unwrap().is_none());
            let [first, Some(_), Some(_)] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(failed(first.as_ref()), id);
        }
        let (mut lines, mut endless) = (Lines::new(10), BytesMut::from(&[b'x'; 200][..]));
        assert!(lines.decode(&mut endless).is_err());
    }
}
