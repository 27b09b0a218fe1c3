//! The strict parser.
//!
//! Owns the reading of JSON text into values, with every limit checked before memory is spent. It does not know where the
//! text came from.
//!
//! Invariant: a text is accepted only if every conforming JSON parser reads the same value from it.

use serde_json::{Map, Value};

use super::{DEPTH_CEILING, JsonError, JsonLimits, clip, number, pointer_token};

/// What is echoed of a number.
const LITERAL_ECHO_BYTES_MAX: usize = 40;

pub(super) fn parse(text: &str, limits: &JsonLimits) -> Result<Value, JsonError> {
    let mut parser = Parser { text, position: 0, budget: Budget { limits, nodes: 0 } };
    let value = parser.value(0)?;
    parser.skip_whitespace();
    if parser.position < text.len() {
        return Err(JsonError::TrailingBytes { offset: parser.position });
    }
    Ok(value)
}

/// The same rules over a value that is already built.
pub(super) fn check(value: &Value, limits: &JsonLimits) -> Result<Value, JsonError> {
    let mut budget = Budget { limits, nodes: 0 };
    check_node(value, 0, &mut budget)
}

fn check_node(value: &Value, depth: usize, budget: &mut Budget<'_>) -> Result<Value, JsonError> {
    budget.node()?;
    match value {
        Value::Null | Value::Bool(_) => Ok(value.clone()),
        Value::Number(given) => match number::check_number(given) {
            Ok(number) => Ok(Value::Number(number)),
            Err(not_exact) => Err(number_error(&number::text(given), not_exact)),
        },
        Value::String(text) => budget.string(text.len()).map(|()| value.clone()),
        Value::Array(elements) => {
            let depth = budget.enter(depth)?;
            budget.members(elements.len())?;
            let check_element = |(index, element): (usize, &Value)| {
                check_node(element, depth, budget).map_err(|error| error.under(&index.to_string()))
            };
            elements
                .iter()
                .enumerate()
                .map(check_element)
                .collect::<Result<Vec<_>, _>>()
                .map(Value::Array)
        }
        Value::Object(members) => {
            let depth = budget.enter(depth)?;
            budget.members(members.len())?;
            let mut checked = Map::new();
            for (key, member) in members {
                budget.string(key.len())?;
                let member = check_node(member, depth, budget).map_err(|error| error.under(key))?;
                checked.insert(key.clone(), member);
            }
            Ok(Value::Object(checked))
        }
    }
}

/// What of the limits is used up.
struct Budget<'a> {
    limits: &'a JsonLimits,
    nodes: usize,
}

impl Budget<'_> {
    fn node(&mut self) -> Result<(), JsonError> {
        self.nodes = self.nodes.saturating_add(1);
        let nodes_max = self.limits.nodes_max;
        if self.nodes > nodes_max { Err(JsonError::TooManyNodes { nodes_max }) } else { Ok(()) }
    }

    fn enter(&self, depth: usize) -> Result<usize, JsonError> {
        let depth_max = self.limits.depth_max.min(DEPTH_CEILING);
        if depth >= depth_max {
            return Err(JsonError::TooDeep { pointer: String::new(), depth_max });
        }
        Ok(depth.saturating_add(1))
    }

    fn members(&self, members: usize) -> Result<(), JsonError> {
        let members_max = self.limits.members_max;
        if members > members_max {
            return Err(JsonError::TooManyMembers { pointer: String::new(), members_max });
        }
        Ok(())
    }

    fn string(&self, bytes: usize) -> Result<(), JsonError> {
        let string_bytes_max = self.limits.string_bytes_max;
        if bytes > string_bytes_max {
            return Err(JsonError::StringTooLong { pointer: String::new(), string_bytes_max });
        }
        Ok(())
    }
}

fn number_error(literal: &str, number::NotExact(repair): number::NotExact) -> JsonError {
    JsonError::Number {
        pointer: String::new(),
        literal: clip(literal, LITERAL_ECHO_BYTES_MAX),
        repair,
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    budget: Budget<'a>,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.budget.node()?;
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
        let depth = self.budget.enter(depth)?;
        self.advance(1);
        let mut members = Map::new();
        if self.closes(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.budget.members(members.len().saturating_add(1))?;
            self.skip_whitespace();
            if self.peek() != Some(b'"') {
                return Err(self.syntax("a key in double quotes"));
            }
            let key = self.string()?;
            if members.contains_key(&key) {
                return Err(JsonError::DuplicateKey { pointer: pointer_token(&key) });
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
        let depth = self.budget.enter(depth)?;
        self.advance(1);
        let mut elements = Vec::new();
        if self.closes(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            self.budget.members(elements.len().saturating_add(1))?;
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
        match number::strict_number(literal) {
            Ok(number) => Ok(Value::Number(number)),
            Err(not_exact) => Err(number_error(literal, not_exact)),
        }
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
            self.budget.string(text.len().saturating_add(run))?;
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
            Some(Err(_)) | None => Err(JsonError::LoneSurrogate { pointer: String::new(), offset }),
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

    fn syntax(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { pointer: String::new(), offset: self.position, expected }
    }
}
