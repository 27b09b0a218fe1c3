//! Which numbers survive, and how they are held.
//!
//! Owns the rule: an integer within ±(2^53−1), or a number whose shortest double form has exactly its decimal value. Every
//! other number reads differently in some program, so that one could be approved and another executed.
//!
//! Invariant: numbers of equal decimal value become the same `Number`; numbers of different value never do.

use serde_json::Number;

/// Beyond this no double has an exact short form, and comparing digits would only cost time.
const LITERAL_BYTES_MAX: usize = 512;

const SAFE_INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// The number that this JSON literal denotes, or what to send instead. The literal's grammar was checked before.
pub(super) fn strict_number(literal: &str) -> Result<Number, String> {
    if literal.len() > LITERAL_BYTES_MAX {
        return Err(format!(
            "its text is longer than {LITERAL_BYTES_MAX} bytes, send fewer digits"
        ));
    }
    let out_of_range = || "it is out of range, send it as a string".to_owned();
    let decimal = Decimal::read(literal).ok_or_else(out_of_range)?;
    let integer = decimal.integer();
    if let Some(integer) = integer.as_ref().filter(|integer| is_safe(integer)) {
        return Ok(integer.clone());
    }
    let double: f64 =
        literal.parse().ok().filter(|double: &f64| double.is_finite()).ok_or_else(out_of_range)?;
    let shortest = shortest_form(double);
    if Decimal::read(&shortest).as_ref() != Some(&decimal) {
        let is_whole = !literal.contains(['.', 'e', 'E']);
        return Err(if is_whole {
            // The nearest would be the number of something else.
            "send it as a string".to_owned()
        } else {
            format!("send it as a string, or the nearest that can be, `{shortest}`")
        });
    }
    integer.or_else(|| Number::from_f64(double)).ok_or_else(out_of_range)
}

/// The ECMAScript text of a number: what RFC 8785 prescribes, for every number that passed the rule.
pub(super) fn text(number: &Number) -> String {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => integer.to_string(),
        (None, Some(integer), _) => integer.to_string(),
        (None, None, Some(double)) if double.is_finite() => shortest_form(double),
        // A number that is neither can exist only with serde_json's arbitrary precision: its own digits are exact.
        (None, None, _) => number.to_string(),
    }
}

fn shortest_form(double: f64) -> String {
    ryu_js::Buffer::new().format_finite(double).to_owned()
}

fn is_safe(integer: &Number) -> bool {
    integer
        .as_i64()
        .map(i64::unsigned_abs)
        .or(integer.as_u64())
        .is_some_and(|magnitude| magnitude <= SAFE_INTEGER_MAX)
}

/// A decimal value in one form only: ±0.d₁d₂… without leading and trailing zeros, zero without a sign.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    /// The significant digits; none for zero.
    digits: String,
    /// The value is `digits` × 10^`exponent`.
    exponent: i64,
}

impl Decimal {
    /// Reads a JSON number; `None` if its exponent is out of any range.
    fn read(literal: &str) -> Option<Self> {
        let (negative, unsigned) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let written = format!("{whole}{fraction}");
        let digits = written.trim_end_matches('0');
        let zeros = written.len().checked_sub(digits.len())?;
        let digits = digits.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        let exponent = exponent
            .parse::<i64>()
            .ok()?
            .checked_sub(i64::try_from(fraction.len()).ok()?)?
            .checked_add(i64::try_from(zeros).ok()?)?;
        Some(Self { negative, digits, exponent })
    }

    /// The value as integer, if it is one of 64 bits.
    fn integer(&self) -> Option<Number> {
        const U64_DIGITS_MAX: usize = 20;
        let zeros = usize::try_from(self.exponent).ok().filter(|zeros| *zeros <= U64_DIGITS_MAX)?;
        let digits = format!(
            "{}{}",
            if self.digits.is_empty() { "0" } else { &self.digits },
            "0".repeat(zeros)
        );
        if self.negative {
            format!("-{digits}").parse::<i64>().ok().map(Number::from)
        } else {
            digits.parse::<u64>().ok().map(Number::from)
        }
    }
}
