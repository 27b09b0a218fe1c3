//! Lengths of time as annotations write them: `90s`, `30m`, `4h`, `7d`.
//!
//! Owns the text form. The permitted range is up to each annotation.

/// A length of time in an author's notation.
pub(super) fn in_words(ms: u64) -> String {
    const UNITS: [(u64, &str, &str); 4] = [
        (86_400_000, "day", "days"),
        (3_600_000, "hour", "hours"),
        (60_000, "minute", "minutes"),
        (1_000, "second", "seconds"),
    ];
    let found = UNITS.into_iter().find_map(|(unit, one, many)| {
        let count = ms.checked_div(unit).filter(|count| *count > 0)?;
        Some(format!("{count} {}", if count == 1 { one } else { many }))
    });
    found.unwrap_or_else(|| format!("{ms} milliseconds"))
}

/// A length of time in milliseconds, if the text is one.
pub(super) fn duration_ms(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let unit_ms: u64 = match unit {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return None,
    };
    text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(unit_ms)
}
