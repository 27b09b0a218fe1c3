//! The strict parser.
//!
//! Owns the reading of JSON text into values, with every limit checked before memory is spent. It does not know where the
//! text came from.
//!
//! Invariant: a text is accepted only if every conforming JSON parser reads the same value from it.

use serde_json::{Map, Value};

use super::{DEPTH_CEILING, JsonError, JsonFault, JsonLimits, clip, number};

/// The most bytes echoed of a number.
const LITERAL_ECHO_BYTES_MAX: usize = 40;

pub(super) fn parse(text: &str, limits: &JsonLimits) -> Result<Value, JsonError> {
    let mut parser = Parser { text, position: 0, limits, nodes: 0 };
    let value = parser.value(0)?;
    parser.skip_whitespace();
    if parser.position < text.len() {
        let problem = format!("the value ends at byte {}, but more follows", parser.position);
        return Err(JsonError::new(JsonFault::TrailingBytes, problem));
    }
    Ok(value)
}

fn limited(used: usize, max: usize, what: &str) -> Result<(), JsonError> {
    if used <= max {
        return Ok(());
    }
    Err(JsonError::new(JsonFault::Limit, format!("{what}, at most {max} are accepted")))
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    limits: &'a JsonLimits,
    nodes: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.nodes = self.nodes.saturating_add(1);
        limited(self.nodes, self.limits.nodes_max, "too many values")?;
        self.skip_whitespace();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.syntax("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        let depth = self.enter(depth)?;
        self.advance(1);
        let mut members = Map::new();
        if self.closes(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.another(members.len())?;
            self.skip_whitespace();
            if self.peek() != Some(b'"') {
                return Err(self.syntax("a key in double quotes"));
            }
            let key = self.string()?;
            if members.contains_key(&key) {
                let problem = "the key is there twice, each key may be there once";
                return Err(JsonError::new(JsonFault::DuplicateKey, problem).under(&key));
            }
            if !self.closes(b':') {
                return Err(self.syntax("`:`"));
            }
            let member = self.value(depth).map_err(|error| error.under(&key))?;
            members.insert(key, member);
            if self.closes(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.closes(b',') {
                return Err(self.syntax("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonError> {
        let depth = self.enter(depth)?;
        self.advance(1);
        let mut elements = Vec::new();
        if self.closes(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            self.another(elements.len())?;
            elements
                .push(self.value(depth).map_err(|error| error.under(&elements.len().to_string()))?);
            if self.closes(b']') {
                return Ok(Value::Array(elements));
            }
            if !self.closes(b',') {
                return Err(self.syntax("`,` or `]`"));
            }
        }
    }

    /// Goes one level deeper.
    fn enter(&self, depth: usize) -> Result<usize, JsonError> {
        let depth = depth.saturating_add(1);
        let depth_max = self.limits.depth_max.min(DEPTH_CEILING);
        limited(depth, depth_max, "nested too deeply").map(|()| depth)
    }

    /// Checks that an array or object may have one more member.
    fn another(&self, members: usize) -> Result<(), JsonError> {
        limited(members.saturating_add(1), self.limits.members_max, "too many members")
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.position;
        if self.peek() == Some(b'-') {
            self.advance(1);
        }
        if self.peek() == Some(b'0') {
            self.advance(1);
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.syntax("a number without leading zeros"));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.advance(1);
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.advance(1);
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.advance(1);
            }
            self.digits()?;
        }
        let literal = self.text.get(start..self.position).unwrap_or_default();
        number::strict_number(literal).map(Value::Number).map_err(|repair| {
            let shown = clip(literal, LITERAL_ECHO_BYTES_MAX);
            let problem = format!("the number `{shown}` cannot be carried exactly: {repair}");
            JsonError::new(JsonFault::Number, problem)
        })
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(self.syntax("a digit"));
        }
        self.advance(digits);
        Ok(())
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.advance(1);
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let run = rest
                .bytes()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
                .unwrap_or(rest.len());
            let bytes = text.len().saturating_add(run);
            limited(bytes, self.limits.string_bytes_max, "too many bytes in a string")?;
            text.push_str(rest.get(..run).unwrap_or_default());
            self.advance(run);
            match self.peek() {
                Some(b'"') => {
                    self.advance(1);
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.syntax("an escape instead of the control character")),
                None => return Err(self.syntax("the closing quote")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let offset = self.position;
        self.advance(1);
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(offset),
            _ => return Err(self.syntax("one of `\"\\/bfnrtu` after the backslash")),
        };
        self.advance(1);
        Ok(character)
    }

    fn unicode_escape(&mut self, offset: usize) -> Result<char, JsonError> {
        let first = self.code_unit()?;
        let mut units = vec![first];
        if matches!(first, 0xd800..=0xdbff) && self.rest().starts_with("\\u") {
            self.advance(1);
            units.push(self.code_unit()?);
        }
        match char::decode_utf16(units).next() {
            Some(Ok(character)) => Ok(character),
            Some(Err(_)) | None => {
                let problem = format!("the escape at byte {offset} is half of a surrogate pair");
                Err(JsonError::new(JsonFault::LoneSurrogate, problem))
            }
        }
    }

    /// Reads `uXXXX`.
    fn code_unit(&mut self) -> Result<u16, JsonError> {
        self.advance(1);
        let digits = self
            .rest()
            .get(..4)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.advance(4);
                Ok(unit)
            }
            None => Err(self.syntax("four hexadecimal digits")),
        }
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, JsonError> {
        if !self.rest().starts_with(word) {
            return Err(self.syntax("`true`, `false` or `null`"));
        }
        self.advance(word.len());
        Ok(value)
    }

    /// Skips whitespace, and the given byte if it comes next.
    fn closes(&mut self, byte: u8) -> bool {
        self.skip_whitespace();
        let closes = self.peek() == Some(byte);
        if closes {
            self.advance(1);
        }
        closes
    }

    fn skip_whitespace(&mut self) {
        let blank = self
            .rest()
            .bytes()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
        self.advance(blank);
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn advance(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes);
    }

    fn syntax(&self, expected: &str) -> JsonError {
        let problem = format!("not JSON at byte {}: {expected} expected", self.position);
        JsonError::new(JsonFault::Syntax, problem)
    }
}
