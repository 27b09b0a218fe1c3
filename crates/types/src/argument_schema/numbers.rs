//! `x-cedar`: which Cedar type a contract maps a `number` to.
//!
//! Owns the check that a number has that type. Does not make Cedar values: the policy crate does.

use jsonschema::{Keyword, ValidationError, paths::Location};
use serde_json::{Map, Number, Value};

/// The keyword of a schema, with `long` or `decimal`.
pub const NUMBER_KEYWORD: &str = "x-cedar";
/// The largest whole number that all JSON readers agree on (RFC 8259, section 6).
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
/// The largest number that is passed to policy as a decimal.
const DECIMAL_MAX: f64 = 900_000_000_000.0;
/// The decimal places of Cedar's `decimal`.
const PLACES_MAX: usize = 4;

/// The required type of a number.
#[derive(Debug, Clone, Copy)]
enum Mapped {
    Long,
    Decimal,
}

impl Mapped {
    fn holds(self, number: &Number) -> bool {
        let Some(double) = number.as_f64() else { return false };
        match self {
            Self::Long => double.fract() == 0.0 && double.abs() <= WHOLE_MAX,
            Self::Decimal => {
                let text = number.to_string();
                let places = text.split_once('.').map_or(0, |(_, places)| places.len());
                !text.contains(['e', 'E']) && places <= PLACES_MAX && double.abs() <= DECIMAL_MAX
            }
        }
    }

    const fn rule(self) -> &'static str {
        match self {
            Self::Long => "must be a whole number of at most 9007199254740991",
            Self::Decimal => {
                "must have at most 4 decimal places, and be from -900000000000 to 900000000000"
            }
        }
    }
}

impl<'i> Keyword<'i> for Mapped {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) { Ok(()) } else { Err(ValidationError::custom(self.rule())) }
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        // Which type a value has is checked by `type`.
        !matches!(instance, Value::Number(number) if !self.holds(number))
    }
}

/// The keyword's check.
///
/// # Errors
/// For a value that is neither `long` nor `decimal`.
pub(super) fn keyword<'a>(
    _parent: &'a Map<String, Value>,
    value: &'a Value,
    _place: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    match value.as_str() {
        Some("long") => Ok(Box::new(Mapped::Long)),
        Some("decimal") => Ok(Box::new(Mapped::Decimal)),
        _ => Err(ValidationError::custom("must be `long` or `decimal`")),
    }
}
