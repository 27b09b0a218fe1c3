//! Numbers between two bounds, which their schema names too.
//!
//! Owns the reading of them. Does not check a number that code makes.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// A number that is not read unless it is between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Bounded<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Bounded<MIN, MAX> {
    /// The number as a size, of which this machine may have fewer.
    pub fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Reads a size between two bounds, for a field that is no [`Bounded`].
///
/// # Errors
/// When the number is not between them.
pub fn size<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(
    deserializer: D,
) -> Result<usize, D::Error> {
    Bounded::<MIN, MAX>::deserialize(deserializer).map(Bounded::size)
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if (MIN..=MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(D::Error::custom(format!("{number} is not between {MIN} and {MAX}")))
        }
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Bounded<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("number_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "uint64", "minimum": MIN, "maximum": MAX })
    }
}
