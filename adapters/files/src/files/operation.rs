//! The operations with their checked arguments.
//!
//! Owns the reading of arguments. The engine has validated them against the contract's schema; they are read strictly again,
//! because a contract is written by hand and this is the last place before the file system.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use placet_adapter::outcome::AdapterError;
use placet_types::digest::Digest;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::path::RelativePath;

/// The most bytes one `write` takes.
pub(crate) const CONTENT_BYTES_MAX: usize = 1_048_576;
/// The most entries that one `list` returns.
pub(crate) const ENTRIES_MAX: usize = 10_000;

/// One operation, ready to be performed.
#[derive(Debug)]
pub(crate) enum Operation {
    List(List),
    Stat(Stat),
    Read(Read),
    Write(Write),
    Delete(Delete),
}

#[derive(Debug)]
pub(crate) struct List {
    pub(crate) path: RelativePath,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

#[derive(Debug)]
pub(crate) struct Stat {
    pub(crate) path: RelativePath,
}

#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) path: RelativePath,
    pub(crate) offset: u64,
    pub(crate) length: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) path: RelativePath,
    pub(crate) content: Vec<u8>,
    pub(crate) create_directories: bool,
    pub(crate) overwrite: bool,
    pub(crate) expected_digest: Option<Digest>,
}

#[derive(Debug)]
pub(crate) struct Delete {
    pub(crate) path: RelativePath,
    pub(crate) expected_digest: Option<Digest>,
}

impl Operation {
    pub(crate) fn parse(capability: &str, args: &Map<String, Value>) -> Result<Self, AdapterError> {
        match capability {
            "list" => arguments::<ListArguments>(args)?.check().map(Self::List),
            "stat" => arguments::<StatArguments>(args)?.check().map(Self::Stat),
            "read" => arguments::<ReadArguments>(args)?.check().map(Self::Read),
            "write" => arguments::<WriteArguments>(args)?.check().map(Self::Write),
            "delete" => arguments::<DeleteArguments>(args)?.check().map(Self::Delete),
            other => {
                Err(AdapterError::Misconfigured(format!("`files` has no capability `{other}`")))
            }
        }
    }

    /// Whether the injected fault's pause applies: whether there is an effect to pause after.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Delete(_))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    limit: Option<usize>,
}

impl ListArguments {
    fn check(self) -> Result<List, AdapterError> {
        let path = path(self.path.as_deref().unwrap_or("."))?;
        let limit = self.limit.unwrap_or(1_000);
        if !(1..=ENTRIES_MAX).contains(&limit) {
            return Err(refused("`limit` is 1 to 10,000"));
        }
        Ok(List { path, offset: self.offset, limit })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatArguments {
    path: String,
}

impl StatArguments {
    fn check(self) -> Result<Stat, AdapterError> {
        Ok(Stat { path: path(&self.path)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    length: Option<u64>,
}

impl ReadArguments {
    fn check(self) -> Result<Read, AdapterError> {
        Ok(Read { path: path(&self.path)?, offset: self.offset, length: self.length })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    create_directories: bool,
    #[serde(default)]
    overwrite: bool,
    #[serde(default)]
    expected_digest: Option<String>,
}

#[derive(Deserialize, Default)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

impl WriteArguments {
    fn check(self) -> Result<Write, AdapterError> {
        let content = match self.encoding {
            Encoding::Utf8 => self.content.into_bytes(),
            Encoding::Base64 => STANDARD
                .decode(&self.content)
                .map_err(|error| refused(&format!("`content` is not base64: {error}")))?,
        };
        if content.len() > CONTENT_BYTES_MAX {
            return Err(refused("`content` is larger than 1,048,576 bytes"));
        }
        Ok(Write {
            path: path(&self.path)?,
            content,
            create_directories: self.create_directories,
            overwrite: self.overwrite,
            expected_digest: digest(self.expected_digest.as_deref())?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteArguments {
    path: String,
    #[serde(default)]
    expected_digest: Option<String>,
}

impl DeleteArguments {
    fn check(self) -> Result<Delete, AdapterError> {
        Ok(Delete {
            path: path(&self.path)?,
            expected_digest: digest(self.expected_digest.as_deref())?,
        })
    }
}

fn arguments<T: DeserializeOwned>(args: &Map<String, Value>) -> Result<T, AdapterError> {
    T::deserialize(args)
        .map_err(|error| refused(&format!("the arguments are not those of the tool: {error}")))
}

fn path(text: &str) -> Result<RelativePath, AdapterError> {
    RelativePath::parse(text).map_err(refused)
}

fn digest(text: Option<&str>) -> Result<Option<Digest>, AdapterError> {
    text.map(|text| text.parse().map_err(|error| refused(&format!("`expected_digest`: {error}"))))
        .transpose()
}

fn refused(why: &str) -> AdapterError {
    AdapterError::Refused(why.to_owned())
}

#[cfg(test)]
mod tests {
    use placet_adapter::outcome::AdapterError;
    use serde_json::{Value, json};

    use super::{CONTENT_BYTES_MAX, Operation};

    fn parse(capability: &str, args: &Value) -> Result<Operation, AdapterError> {
        Operation::parse(capability, args.as_object().unwrap())
    }

    #[test]
    fn arguments_outside_the_schema_are_refused() {
        for (capability, args) in [
            ("list", json!({"path": "/"})),
            ("list", json!({"limit": 0})),
            ("list", json!({"limit": 10_001})),
            ("list", json!({"offset": -1})),
            ("stat", json!({})),
            ("read", json!({"path": 1})),
            ("read", json!({"path": "a", "more": true})),
            ("read", json!({"path": "a", "length": 1.5})),
            ("write", json!({"path": "a"})),
            ("write", json!({"path": "a", "content": "!", "encoding": "base64"})),
            ("write", json!({"path": "a", "content": "x", "encoding": "latin-1"})),
            ("write", json!({"path": "a", "content": "x", "expected_digest": "sha256:12"})),
            ("write", json!({"path": "a", "content": "x".repeat(CONTENT_BYTES_MAX + 1)})),
            ("delete", json!({"path": "a/../b"})),
        ] {
            let outcome = parse(capability, &args);
            assert!(
                matches!(outcome, Err(AdapterError::Refused(_))),
                "{capability} {args} gave {outcome:?}"
            );
        }
    }

    #[test]
    fn an_unknown_capability_is_a_fault_of_the_contract() {
        assert!(matches!(parse("format", &json!({})), Err(AdapterError::Misconfigured(_))));
    }

    #[test]
    fn a_write_replaces_nothing_unless_it_says_so() {
        let Ok(Operation::Write(write)) =
            parse("write", &json!({"path": "a", "content": "aGk=", "encoding": "base64"}))
        else {
            panic!("refused");
        };
        assert_eq!(write.content, b"hi");
        assert!(!write.overwrite && !write.create_directories && write.expected_digest.is_none());
    }
}
